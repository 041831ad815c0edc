"""Where a rollout's time goes: model, sandboxes, and our own overhead, on a model and tasks of the quickstart's shape.

    python -m benchmarks.rollout --sandbox bubblewrap
    python -m benchmarks.rollout --sandbox none     # the sandbox is a sleep of 4 ms

The model is random, so its replies are noise of about `--reply` ids: times are realistic, rewards are not.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import time
from typing import Any

import torch

from agents.policies.transformers import TransformersPolicy
from agents.policy import Request, Sampling
from agents.rollout import Job, RolloutEngine
from benchmarks.policy import build
from envs.clawgym import ClawGymEnv
from tasks.sources import load_tasks
from trainers.tokenizer import train_tokenizer


class Echo:
    """Steers a random model towards a command: each reply is forced to be one, so that sandboxes have work to do."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def force(self, ids: Any, entropy: float, max_logprob: float) -> int | None:
        return self.ids[len(ids)] if len(ids) < len(self.ids) else None


class Steered(TransformersPolicy):
    """The engine under test, with forced replies."""

    command: list[int] = []

    def complete(self, requests: Any, sampling: Sampling) -> Any:
        steered = [
            Request(r.conversation, r.prompt_ids, r.seed, r.max_tokens, r.first_turn, Echo(self.command))
            for r in requests
        ]
        return super().complete(steered, sampling)


class Sleeping(ClawGymEnv):
    """No sandbox: laying out and stepping take 4 ms of sleep."""

    def _lay(self, task: Any) -> str:
        time.sleep(0.004)
        return task.intent

    def _exchange(self, reply: str) -> Any:
        from envs.actions import ActionKind
        from envs.conversation import Exchange

        time.sleep(0.004)
        return Exchange("ok", ActionKind.COMMAND, None, "ls", 0, signal=0.0)

    def _outcome(self) -> Any:
        from tasks.outcome import Outcome

        return Outcome({}, {}, None)

    def _anchor(self) -> str:
        return "x"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = load_tasks(f"generated:quickstart?n={args.episodes // 8}&seed=0")
    tokenizer = train_tokenizer([], [task.intent for task in tasks], min_count=2)
    model = build(128, 4, 4, 4, len(tokenizer))
    policy = Steered(model, tokenizer)
    policy.command = [*tokenizer.encode("```bash\ncat notes.txt | head -n 3\n```"), tokenizer.eos_token_id]
    kind = Sleeping if args.sandbox == "none" else ClawGymEnv
    settings = {} if args.sandbox == "none" else {"sandbox": args.sandbox}
    jobs = [Job(task, attempt, 0) for task in tasks for attempt in range(8)]

    def make() -> Any:
        return kind(tasks, max_turns=args.turns, prompt_style="compact", **settings)

    with RolloutEngine(policy, make, slots=args.slots, workers=args.workers) as engine:
        engine.run(jobs, Sampling(1.0, 64))
        print(f"{len(jobs)} episodes of {args.turns} turns, {args.slots} slots, {len(policy.command)} ids a reply")
        for _ in range(args.repeats):
            timing = engine.run(jobs, Sampling(1.0, 64)).timing
            wall, turns = timing.wall_seconds, timing.turns
            parts = {"model": timing.model_seconds, "sandbox": timing.sandbox_seconds, "own": timing.overhead_seconds}
            shares = "  ".join(f"{k} {1e3 * v / turns:6.2f} ms a turn ({v / wall:4.0%})" for k, v in parts.items())
            print(f"{wall:6.2f} s  {shares}")
        if args.profile:
            profile = cProfile.Profile()
            profile.runcall(engine.run, jobs, Sampling(1.0, 64))
            pstats.Stats(profile).sort_stats("tottime").print_stats(35)


if __name__ == "__main__":
    main()
