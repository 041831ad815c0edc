"""One episode of a step has a command that waits: what does that cost the other groups?

    python -m benchmarks.slow_command
    python -m benchmarks.slow_command --seconds 10 --repeats 9

The packaged policy plays a step of 8 tasks x 4 attempts in the real sandbox, in both rollout modes, with and without a
command of a few seconds in one episode; all four in turns within one run. What counts is when the last episode of the
other seven groups is over, as a ratio to the calm step of the same mode (limit 1.05 in asynchronous mode), and the calm
step of asynchronous mode as a ratio to that of lockstep.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import torch

from agents.models.card import read_card
from agents.models.loading import load_model, resolve_model
from agents.policies.transformers import TransformersPolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine, RolloutMode
from agents.trajectory import Trajectory
from envs.clawgym import ClawGymEnv
from envs.conversation import Exchange
from sandboxes import SandboxPool
from tasks.sources import load_tasks
from tasks.task import Task

GROUPS, ATTEMPTS = 8, 4
LIMIT = 1.05
MODES = (RolloutMode.LOCKSTEP, RolloutMode.ASYNCHRONOUS)


class OneWaits(ClawGymEnv):
    """The first command of the first episode of task `slow` waits."""

    slow = ""
    seconds = 0.0
    waits = False

    def _exchange(self, reply: str) -> Exchange:
        if OneWaits.waits and self.task.id == OneWaits.slow:
            OneWaits.waits = False
            assert self._sandbox is not None
            self._sandbox.run(f"sleep {OneWaits.seconds}", timeout=2 * OneWaits.seconds + 10)
        return super()._exchange(reply)


@dataclass(frozen=True, slots=True)
class Step:
    """One step: seconds until the other groups were over, and until all were; `turns` were played."""

    others: float
    whole: float
    turns: int


def play(engine: RolloutEngine, tasks: list[Task], *, waits: bool, seed: int) -> Step:
    """Play a step."""
    OneWaits.waits = waits
    ends = [0.0]
    start = time.perf_counter()

    def over(episode: Trajectory) -> None:
        if episode.task_id != OneWaits.slow:
            ends.append(time.perf_counter() - start)

    jobs = [Job(task, attempt, seed) for task in tasks for attempt in range(ATTEMPTS)]
    result = engine.run(jobs, Sampling(1.0, 512), on_episode=over)
    return Step(max(ends), time.perf_counter() - start, result.timing.turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="that the command waits")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--sandbox", default="auto")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = list(load_tasks(f"generated:quickstart?n={GROUPS}&seed=1000"))
    OneWaits.slow, OneWaits.seconds = tasks[0].id, args.seconds
    policy = TransformersPolicy(*load_model("quickstart"))
    style = read_card(resolve_model("quickstart").location).prompt_style
    slots = GROUPS * ATTEMPTS
    steps: dict[tuple[RolloutMode, bool], list[Step]] = {}
    with SandboxPool(args.sandbox, slots) as sandboxes:

        def make() -> ClawGymEnv:
            return OneWaits(tasks[:1], sandbox=sandboxes, prompt_style=style)

        engines = {mode: RolloutEngine(policy, make, slots=slots, workers=2, mode=mode) for mode in MODES}
        for repeat in range(args.repeats + 1):
            for mode, engine in engines.items():
                for waits in (False, True):
                    step = play(engine, tasks, waits=waits, seed=repeat)
                    if repeat:  # the first warms up
                        steps.setdefault((mode, waits), []).append(step)
            for engine in engines.values() if repeat == args.repeats else ():
                engine.close()
        print(f"{slots} episodes, {sandboxes.backend}, one command waits {args.seconds:g} s; medians of {args.repeats}")
    for mode in MODES:
        calm, waiting = steps[mode, False], steps[mode, True]
        ratio = statistics.median(slow.others / quick.others for slow, quick in zip(waiting, calm, strict=True))
        print(
            f"{mode:<13} calm {statistics.median(s.whole for s in calm):5.2f} s   with the command: the other groups "
            f"{statistics.median(s.others for s in waiting):5.2f} s, ratio {ratio:.2f}"
            + (f" (limit {LIMIT})" if mode is RolloutMode.ASYNCHRONOUS else "")
        )
    pairs = zip(steps[MODES[1], False], steps[MODES[0], False], strict=True)
    ratios = [own.whole / lockstep.whole for own, lockstep in pairs]
    print(f"asynchronous / lockstep, calm: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
