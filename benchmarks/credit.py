"""What credit costs: 256 episodes of 2,048 tokens (K = 8, 8 turns), every operator on, on one core.

    python -m benchmarks.credit
    python -m benchmarks.credit --runs 40

Every set of operators is measured in interleaved rounds; medians of CPU time, which is wall time on an idle machine:
the operators use one thread. The floor is a few operators of the same formula
(surprisal, GTPO, the sum with the turn term) as a plain Python loop over the same numbers, extrapolated from a few
episodes.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

from trainers.credit import Credit, CreditBatch, CreditSettings, EpisodeOperator, TokenText, TurnRecord
from trainers.credit.planning import DEFAULT_PHRASES
from trainers.credit.token import DelightMode, DelightNorm, SepaMode, SepaSchedule

TARGET = 50.0
"""Milliseconds that credit with every operator on should stay within."""
EPISODES, TOKENS, GROUP, TURNS, VOCABULARY = 256, 2048, 8, 8, 4096
EVERY: dict[str, Any] = dict(
    token_operators="sepa,gtpo,hicra,delight,entropy_mask",
    sepa_mode=SepaMode.AMP_CLAMPED,
    sepa_schedule=SepaSchedule.AUTO,
    sepa_steps=10,
    sepa_delay=0,
    sepa_gate=0.0,
    delight_norm=DelightNorm.MAD,
    delight_adaptive=True,
)


def make_batch(seed: int = 0) -> CreditBatch:
    """Episodes with turns of random length, 30 % of the tokens between them; words of planning phrases among others."""
    rng = np.random.default_rng(seed)
    turn_ids = np.full((EPISODES, TOKENS), -1, dtype=np.int64)
    for row in turn_ids:
        edges = np.sort(rng.choice(np.arange(1, TOKENS), TURNS - 1, replace=False)).tolist()
        for turn, (start, end) in enumerate(zip([0, *edges], [*edges, TOKENS], strict=True)):
            row[start : end - (end - start) * 3 // 10] = turn
    words = sorted({word for phrase in DEFAULT_PHRASES for word in phrase.split()})
    # Token ids as in text: some are common, most are rare; words of phrases are among both.
    ids = np.minimum(rng.zipf(1.2, turn_ids.shape) - 1, VOCABULARY - 1)
    texts = {i: f"word{i}" for i in range(VOCABULARY)} | {7 + 11 * i: word for i, word in enumerate(words)}
    return CreditBatch(
        rewards=rng.random(EPISODES).round(2).tolist(),
        turns=[
            [TurnRecord(float(rng.random()), f"{t}:{rng.integers(3)}") for t in range(TURNS)] for _ in range(EPISODES)
        ],
        turn_ids=turn_ids,
        group_size=GROUP,
        logprobs=-rng.exponential(0.5, turn_ids.shape) * (turn_ids >= 0),
        tokens=TokenText(ids, texts),
        passed=(rng.random(EPISODES) < 0.5).tolist(),
    )


def python_floor(batch: CreditBatch, rows: int) -> float:
    """Seconds for all episodes of surprisal, GTPO and the sum with a turn term, as loops over Python floats."""
    assert batch.logprobs is not None
    logprobs, turn_ids = batch.logprobs[:rows].tolist(), batch.turn_ids[:rows].tolist()
    started = time.process_time()
    for lps, ids in zip(logprobs, turn_ids, strict=True):
        signal = [min(-lp, 50.0) for lp, turn in zip(lps, ids, strict=True) if turn >= 0]
        mean = sum(signal) / len(signal)
        weights = iter([max(0.0, 1 + 0.1 * (s / (mean + 1e-8) - 1)) for s in signal])
        _ = [0.5 * next(weights) + 0.3 * 0.1 if turn >= 0 else 0.0 for turn in ids]
    return (time.process_time() - started) * len(batch.turn_ids) / rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=25)
    args = parser.parse_args()
    batch = make_batch()
    every = CreditSettings(
        episode_operator=EpisodeOperator.REINFORCE_PP, invalid_action_penalty=0.1, **EVERY, advantage_cap=2.0
    )
    sets = {
        "none (the default)": CreditSettings(),
        "gtpo": CreditSettings(token_operators="gtpo"),
        "sepa, gtpo, hicra": CreditSettings(**EVERY | dict(token_operators="sepa,gtpo,hicra")),
        "entropy_mask": CreditSettings(token_operators="entropy_mask"),
        "every operator, delight soft": every,
        "every operator, delight hard": replace(every, **EVERY | dict(delight_mode=DelightMode.HARD)),
    }
    credits = {name: Credit(settings) for name, settings in sets.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sets}
    floor: list[float] = []
    for number in range(args.runs + 1):
        for name, credit in credits.items():
            started = time.process_time()
            credit.assign(batch)
            if number:  # the first round warms up
                seconds[name].append(time.process_time() - started)
        floor.append(python_floor(batch, 4))
    print(f"{EPISODES} episodes x {TOKENS} tokens, K = {GROUP}, {TURNS} turns; {args.runs} interleaved runs, one core")
    for name, values in seconds.items():
        ms = sorted(1e3 * value for value in values)
        print(f"  {name:30} {statistics.median(ms):7.1f} ms   (fastest {ms[0]:.1f}, slowest {ms[-1]:.1f})")
    print(f"  {'floor: gtpo in plain Python':30} {1e3 * statistics.median(floor):7.1f} ms")
    worst = max(statistics.median(values) for name, values in seconds.items() if name.startswith("every"))
    print(f"target {TARGET:.0f} ms: {'holds' if 1e3 * worst <= TARGET else 'MISSED'}")


if __name__ == "__main__":
    main()
