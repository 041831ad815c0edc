"""The rollout engine with the packaged policy in the real sandbox: where its time goes, beside two stock loops.

    python -m benchmarks.rollout
    python -m benchmarks.rollout --episodes 128 --repeats 5 --profile

All three play the same tasks with the same weights, decode settings, budgets, threads and sandboxes, in turns within
one run, so that the ratios stand even on a busy machine. Each draws samples of its own: turns and ids per episode stand
beside the ratio. Times are wall time, torch has one thread.

- `benchmarks.peers.rollout_generate`: in lockstep, on stock `generate`, batched.
- `benchmarks.peers.rollout_reencode`: one episode at a time, the conversation rendered and encoded anew each turn.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
from concurrent.futures import ThreadPoolExecutor

import torch

from agents.models.card import read_card
from agents.models.loading import load_model, resolve_model
from agents.policies.transformers import TransformersPolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine, RolloutMode, RolloutResult
from benchmarks.peers import rollout_generate, rollout_reencode
from benchmarks.peers.rollout_loop import Played
from envs.clawgym import ClawGymEnv
from sandboxes import SandboxPool
from tasks.sources import load_tasks

ATTEMPTS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="quickstart")
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--slots", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mode", choices=[*RolloutMode], default=RolloutMode.LOCKSTEP)
    parser.add_argument("--ahead", type=int, default=0, help="tasks laid out while the policy decodes")
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--profile", action="store_true", help="profile one more run of the engine")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tasks = load_tasks(f"generated:quickstart?n={args.episodes // ATTEMPTS}&seed=1000")
    jobs = [Job(task, attempt, 0) for task in tasks for attempt in range(ATTEMPTS)]
    sampling = Sampling(1.0, 512)
    model, tokenizer = load_model(args.model)
    policy = TransformersPolicy(model, tokenizer)
    style = read_card(resolve_model(args.model).location).prompt_style

    with SandboxPool(args.sandbox, args.slots + args.ahead) as sandboxes, ThreadPoolExecutor(args.workers) as threads:

        def make() -> ClawGymEnv:
            return ClawGymEnv(tasks[:1], sandbox=sandboxes, prompt_style=style)

        envs = [make() for _ in range(args.slots)]
        how = {"slots": args.slots, "workers": args.workers, "ahead": args.ahead, "mode": args.mode}
        with RolloutEngine(policy, make, **how) as engine:
            ours: list[RolloutResult] = []
            stock: dict[str, list[Played]] = {"batched generate": [], "re-encoding loop": []}
            for repeat in range(args.repeats + 1):
                torch.manual_seed(repeat)
                result = engine.run(jobs, sampling)
                batched = rollout_generate.play(model, tokenizer, policy.eos_ids, jobs, envs, sampling, threads)
                single = rollout_reencode.play(model, tokenizer, policy.eos_ids, jobs, envs[0], sampling)
                if repeat:  # the first warms up
                    ours.append(result)
                    stock["batched generate"].append(batched)
                    stock["re-encoding loop"].append(single)
            print(
                f"{len(jobs)} episodes, {args.slots} slots, {args.workers} threads, {sandboxes.backend}, {args.model}, "
                f"{args.mode}"
            )
            _shares(ours)
            for name, played in stock.items():
                _pair(name, ours, played)
            if args.profile:
                profile = cProfile.Profile()
                profile.runcall(engine.run, jobs, sampling)
                pstats.Stats(profile).sort_stats("tottime").print_stats(35)


def _shares(results: list[RolloutResult]) -> None:
    """Where the engine's time goes; medians over the repeats."""
    timings = [result.timing for result in results]
    for name in ("model", "sandbox", "overhead"):
        share = statistics.median(getattr(t, f"{name}_seconds") / t.wall_seconds for t in timings)
        spent = statistics.median(1e3 * getattr(t, f"{name}_seconds") / t.turns for t in timings)
        print(f"  {name:9} {share:6.1%} of wall  {spent:6.2f} ms a turn")
    own = [t.overhead_seconds / (t.overhead_seconds + t.model_seconds) for t in timings]
    print(f"  overhead is {statistics.median(own):.1%} of the time that is not waiting for sandboxes")


def _pair(name: str, ours: list[RolloutResult], theirs: list[Played]) -> None:
    """Episodes per second of the engine and of a loop; the ratio is the median over the repeats."""
    n = len(ours[0].trajectories)
    ratios = [b.seconds / a.timing.wall_seconds for a, b in zip(ours, theirs, strict=True)]
    rows = (
        (
            "engine",
            statistics.median(n / a.timing.wall_seconds for a in ours),
            sum(a.timing.turns for a in ours),
            sum(a.timing.sampled_tokens for a in ours),
            sum(bool(t.passed) for a in ours for t in a.trajectories),
        ),
        (
            name,
            statistics.median(n / b.seconds for b in theirs),
            sum(b.turns for b in theirs),
            sum(b.tokens for b in theirs),
            sum(b.passed for b in theirs),
        ),
    )
    print(f"engine / {name}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    total = n * len(ours)
    for who, rate, turns, tokens, passed in rows:
        print(
            f"  {who:17} {rate:6.2f} episodes/s  {turns / total:5.2f} turns and {tokens / total:6.2f} sampled ids an "
            f"episode, {passed / total:.0%} passed"
        )


if __name__ == "__main__":
    main()
