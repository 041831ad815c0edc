"""Held-out evaluation in the real sandbox: how much of its wall time the model works.

    python -m benchmarks.evaluation
    python -m benchmarks.evaluation --tasks "generated:quickstart?n=96&seed=2" --slots 32 64 --repeats 3

Plays the quickstart's held-out tasks through `HeldOut.evaluate`, sampled and greedy, as training does. Model-bound is
the share of wall time in which a call of the policy is in progress; the rest waits for sandboxes or is our own. Two
arms take turns at the policy, so that the sandboxes of one step while it decodes for the other; "arm by arm" plays one
after the other, and the floor also has one thread and lays no task out ahead, so that nothing overlaps. All
settings run in turns, so that their shares compare on a busy machine; where other processes take the cores, sandboxes
wait for them and the shares fall. Where model and sandboxes keep all cores busy, no order of work makes the model's
share larger without making the whole slower: how busy they were is printed beside it. Every setting must play the same
episodes, id for id: that is checked.
"""

from __future__ import annotations

import argparse
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import torch

from agents.models.card import read_card
from agents.models.loading import load_model, resolve_model
from agents.policies.transformers import TransformersPolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine, RolloutResult, Timing
from envs.clawgym import ClawGymEnv
from sandboxes import SandboxPool
from tasks.sources import load_tasks
from tasks.task import Task
from trainers.heldout import HeldOut
from trainers.run.machine import AHEAD


class Setting(NamedTuple):
    """How the engine is set up."""

    name: str
    slots: int
    workers: int
    ahead: int
    interleave: bool = True


@dataclass
class Player:
    """Plays with an engine and keeps its timings; has no weights to save."""

    engine: RolloutEngine
    interleave: bool
    timings: list[Timing] = field(default_factory=list)
    ids: list[tuple[int, ...]] = field(default_factory=list)

    def rollout(self, jobs: Sequence[Job], sampling: Sampling, *, training: bool) -> RolloutResult:
        return self.rollout_together([(jobs, sampling)])[0]

    def rollout_together(self, parts: Sequence[tuple[Sequence[Job], Sampling]]) -> list[RolloutResult]:
        together = [parts] if self.interleave else [[part] for part in parts]
        results = [result for group in together for result in self.engine.run_together(group)]
        for result in results:
            self.timings.append(result.timing)
            self.ids += [tuple(i for turn in t.turns for i in turn.ids) for t in result.trajectories]
        return results

    def save_policy(self, folder: Path) -> None:
        raise AssertionError("a HeldOut without output_dir saves nothing")


class Shares(NamedTuple):
    """Of the wall time of one evaluation."""

    model: float
    sandbox: float
    overhead: float
    wall: float
    busy: float
    """Cores at work, of all there are: this process, its sandboxes, and whatever else runs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="quickstart")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--tasks", default="generated:quickstart?n=320&seed=2")
    parser.add_argument("--slots", type=int, nargs="+", default=[16, 32, 64])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--ahead", type=int, default=AHEAD)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = load_tasks(args.tasks)
    settings = [Setting(f"{slots} slots", slots, args.workers, args.ahead) for slots in args.slots]
    settings.append(Setting("arm by arm", max(args.slots), args.workers, args.ahead, interleave=False))
    settings.append(Setting("no overlap", max(args.slots), 1, 0, interleave=False))
    model, tokenizer = load_model(args.model)
    style = read_card(resolve_model(args.model).location).prompt_style
    found: dict[str, list[Shares]] = {setting.name: [] for setting in settings}
    played: dict[str, list[tuple[int, ...]]] = {}
    for _ in range(args.repeats):
        for setting in settings:
            shares, ids = measure(setting, model, tokenizer, tasks, args.sandbox, style)
            found[setting.name].append(shares)
            if played.setdefault(setting.name, ids) != ids or ids != played[settings[0].name]:
                raise SystemExit(f"{setting.name}: other episodes than {settings[0].name}")
    print(f"{len(tasks)} tasks, sampled and greedy, {args.workers} threads, {args.ahead} ahead, {args.model}")
    load = os.getloadavg()
    print(f"load over the last 1, 5, 15 minutes: {load[0]:.1f}, {load[1]:.1f}, {load[2]:.1f} on {os.cpu_count()} cores")
    for name, shares in found.items():
        middle, worst, best = (f([s.model for s in shares]) for f in (statistics.median, min, max))
        rest = f"sandbox {statistics.median(s.sandbox for s in shares):.1%}, ours "
        rest += f"{statistics.median(s.overhead for s in shares):.1%}"
        rest += f"; {statistics.median(s.busy for s in shares):.0%} of {os.cpu_count()} cores busy"
        print(f"  {name:12} model-bound {middle:.1%} ({worst:.1%} to {best:.1%}); {rest}")
    floor = found["no overlap"]
    for setting in settings[:-1]:
        ratio = statistics.median(a.wall / b.wall for a, b in zip(found[setting.name], floor, strict=True))
        print(f"  wall of {setting.name} / no overlap: {ratio:.2f}")
    print("every setting played the same episodes, id for id")


def measure(
    setting: Setting, model: object, tokenizer: object, tasks: Sequence[Task], sandbox: str, style: str
) -> tuple[Shares, list[tuple[int, ...]]]:
    """One evaluation; the engine has played a few tasks before, so that sandboxes and threads are there."""
    with SandboxPool(sandbox, setting.slots + setting.ahead) as sandboxes:

        def make() -> ClawGymEnv:
            return ClawGymEnv(tasks[:1], sandbox=sandboxes, prompt_style=style)

        policy = TransformersPolicy(model, tokenizer)
        with RolloutEngine(policy, make, slots=setting.slots, workers=setting.workers, ahead=setting.ahead) as engine:
            engine.run([Job(task, 0, 1) for task in tasks[: setting.slots]], Sampling(1.0, 40))
            player = Player(engine, setting.interleave)
            rule = HeldOut(tasks, {"sampled": Sampling(1.0, 40), "greedy": Sampling(0.0, 40)}, "sampled_pass_rate")
            before = cpu_ticks()
            rule.evaluate(player, 0)
            busy, total = (now - then for now, then in zip(cpu_ticks(), before, strict=True))
    wall = sum(t.wall_seconds for t in player.timings)
    parts = (sum(getattr(t, name) for t in player.timings) / wall for name in ("model_seconds", "sandbox_seconds"))
    model_share, sandbox_share = parts
    return Shares(model_share, sandbox_share, 1 - model_share - sandbox_share, wall, busy / total), player.ids


def cpu_ticks() -> tuple[int, int]:
    """Ticks that the cores have worked, and all ticks, since the machine started."""
    user, nice, system, idle, waiting, *others = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    total = user + nice + system + idle + waiting + sum(others[:2])
    return total - idle - waiting, total


if __name__ == "__main__":
    main()
