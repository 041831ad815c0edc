"""What turn resampling costs: the packaged policy on quickstart tasks in the real sandbox, without and with T2PO.

    python -m benchmarks.t2po
    python -m benchmarks.t2po --tasks 64 --pairs 5 --slots 128 --sandbox landlock

The same jobs are played plainly, with the band calibrated to `--rate` (warm-up on other tasks, not measured), and with
the fixed eta of 0.3 nats that a published run of this method used, where nearly every turn lies in the band. Rounds are
interleaved and their order alternates, so that a busy machine hits all three alike; ratios are medians over rounds.
`model` is wall time inside the policy; `cpu` is CPU time of this process, sandboxes left out, and the least noisy.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

from agents.models.card import read_card
from agents.models.loading import load_model, resolve_model
from agents.policies.transformers import TransformersPolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine, Timing
from agents.t2po import T2PO, T2POConfig
from envs.clawgym import ClawGymEnv
from tasks.sources import load_tasks

TARGET = 1.3
"""Wall ratio that resampling at the calibrated rate should stay within."""
PUBLISHED = 1.33
"""Wall ratio a rollout of the published run reports at its saturated eta of 0.3 (7B model, vLLM, one machine)."""
SATURATED = 0.3


def jobs(count: int, seed: int, attempts: int) -> list[Job]:
    return [Job(t, k, seed) for t in load_tasks(f"generated:quickstart?n={count}&seed={seed}") for k in range(attempts)]


def calibrated(engine: RolloutEngine, policy: Any, args: argparse.Namespace, sampling: Sampling) -> float:
    """Eta from warm-up turns on tasks that are not measured."""
    config = T2POConfig(
        turn_resample=True,
        turn_resample_rate=args.rate,
        turn_resample_warmup=args.warmup,
        turn_resample_signal=args.signal,
    )
    engine.policy = wrapper = T2PO(policy, config)
    seed = 1000
    while wrapper.eta is None:
        engine.run(jobs(args.tasks, seed, args.attempts), sampling)
        seed += 1
    return wrapper.eta


def orders(names: list[str], rounds: int) -> Iterator[list[str]]:
    for number in range(rounds):
        yield names if number % 2 == 0 else names[::-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sandbox", default="auto")
    parser.add_argument("--tasks", type=int, default=32)
    parser.add_argument("--attempts", type=int, default=4)
    parser.add_argument("--slots", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--rate", type=float, default=0.15)
    parser.add_argument("--warmup", type=int, default=256)
    parser.add_argument("--signal", default="entropy")
    parser.add_argument("--max-try", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(1)
    model, tokenizer = load_model("quickstart")
    policy = TransformersPolicy(model, tokenizer)
    style = read_card(resolve_model("quickstart").location).prompt_style
    measured, sampling = jobs(args.tasks, 0, args.attempts), Sampling(1.0, 40)
    some = [job.task for job in measured[:1]]

    def make() -> ClawGymEnv:
        return ClawGymEnv(some, sandbox=args.sandbox, prompt_style=style)

    for slots in args.slots:
        compare(policy, make, slots, args, measured, sampling)


def compare(
    policy: Any, make: Any, slots: int, args: argparse.Namespace, measured: list[Job], sampling: Sampling
) -> None:
    with RolloutEngine(policy, make, slots=slots, workers=args.workers) as engine:
        engine.run(measured, sampling)
        eta = calibrated(engine, policy, args, sampling)
        etas = {"plain": None, "calibrated": eta, "saturated": SATURATED}
        wrappers = {
            name: T2PO(
                policy,
                T2POConfig(
                    turn_resample=True,
                    turn_resample_eta=width,
                    turn_resample_signal=args.signal,
                    turn_resample_max_try=args.max_try,
                ),
            )
            for name, width in etas.items()
            if width is not None
        }
        timings: dict[str, list[Timing]] = {name: [] for name in etas}
        cpu: dict[str, list[float]] = {name: [] for name in etas}
        for order in orders(list(etas), args.pairs):
            for name in order:
                engine.policy = wrappers.get(name, policy)
                begin = time.process_time()
                timings[name].append(engine.run(measured, sampling).timing)
                cpu[name].append(time.process_time() - begin)

    print(f"{len(measured)} episodes, {slots} slots, signal {args.signal}, up to {args.max_try} extra samples a turn")
    print(f"{args.pairs} rounds, medians of ratios; extra: samples a round")
    print(f"{'':12}{'eta':>8}{'rate':>7}{'extra':>7}{'wall':>7}{'model':>7}{'cpu':>7}{'tokens':>8}{'wall a turn':>13}")
    for name, width in etas.items():
        pairs = list(zip(timings[name], timings["plain"], strict=True))
        wall, model_part, tokens = (
            statistics.median(getattr(a, key) / getattr(b, key) for a, b in pairs)
            for key in ("wall_seconds", "model_seconds", "sampled_tokens")
        )
        own = statistics.median(a / b for a, b in zip(cpu[name], cpu["plain"], strict=True))
        per_turn = statistics.median(1e3 * t.wall_seconds / t.turns for t in timings[name])
        wrapper = wrappers.get(name)
        if wrapper is None:
            head = f"{name:12}{'':>8}{'':>7}{'':>7}"
        else:
            meter = wrapper.meter
            head = f"{name:12}{width:8.4f}{wrapper.trigger_rate():7.1%}{meter.extra / args.pairs:7.0f}"
        print(f"{head}{wall:6.2f}x{model_part:6.2f}x{own:6.2f}x{tokens:7.2f}x{per_turn:10.2f} ms")
    print(f"target at the calibrated rate: wall <= {TARGET}x; published run, saturated: {PUBLISHED}x")
    for name, wrapper in wrappers.items():
        if (said := wrapper.warning()) is not None:
            print(f"{name}: {said}")


if __name__ == "__main__":
    main()
