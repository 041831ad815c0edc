"""GSM8K checks per second on one core, beside lm-eval's two extractions on the same replies in the same run.

    python -m benchmarks.answers_numbers                   # the packaged sample
    python -m benchmarks.answers_numbers --data data/gsm8k  # the public solutions

The peer is lm-eval's regular expressions and comparison as published (filters `strict-match` and `flexible-extract`),
run bare: no assertion, no result record. Ours is the whole `number_equals` assertion. Processor seconds, best of five.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tasks.answers.number_equals import NumberEquals, NumberMode
from tasks.assertions.base import Outcome
from tasks.sources import gsm8k

TARGET = 50_000
"""Checks of marked replies a second, at least."""
LIMIT = 1.5
"""Processor time of mode `fixed` beside `flexible-extract` on the same replies, at most."""
_IGNORED = [re.compile(pattern) for pattern in (",", r"\$", "(?s).*#### ", r"\.$")]
_PEER = {
    "strict-match": (re.compile(r"#### (\-?[0-9\.\,]+)"), 0),
    "flexible-extract": (re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)"), -1),
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.answers_numbers", description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, help="folder with the public test.jsonl (default: the packaged sample)")
    parser.add_argument("--rounds", type=int, default=5, help="the best counts (default: %(default)s)")
    options = parser.parse_args(arguments)
    tasks = gsm8k.load(str(options.data) if options.data else "sample")
    pairs: list[tuple[str, str]] = []
    for task in tasks:
        assertion = task.assertions[0]
        assert isinstance(assertion, NumberEquals) and task.oracle is not None and task.oracle.answer is not None
        pairs.append((task.oracle.answer, assertion.gold))
    pairs *= max(1, 2000 // len(pairs))
    unmarked = [(reply.replace("#### ", "The total is "), gold) for reply, gold in pairs]
    dropped = [(reply.partition("#### ")[0].rstrip(), gold) for reply, gold in pairs]
    result: dict[str, object] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "replies": len(pairs),
        "target_checks_per_second": TARGET,
        "most_times_flexible_extract": LIMIT,
    }
    met = True
    for name, replies in (("marked", pairs), ("unmarked", unmarked), ("marker line dropped", dropped)):
        ours = {mode.value: _rate(_ours(replies, mode), options.rounds, len(replies)) for mode in NumberMode}
        peer = {
            f"lm-eval {filter_}": _rate(_peer(replies, *how), options.rounds, len(replies))
            for filter_, how in _PEER.items()
        }
        result[name] = {**ours, **peer}
        times = {mode: round(peer["lm-eval flexible-extract"] / ours[mode], 2) for mode in ("fixed", "any")}
        result[f"{name}: processor time beside flexible-extract"] = times
        met = met and times["fixed"] <= LIMIT and (name != "marked" or ours["fixed"] >= TARGET)
    result["met"] = met
    print(json.dumps(result, indent=2))


def _ours(replies: Sequence[tuple[str, str]], mode: NumberMode) -> Callable[[], int]:
    made = [(NumberEquals(gold=gold, mode=mode), Outcome({}, {}, reply)) for reply, gold in replies]
    return lambda: sum(assertion.check(outcome).score == 1.0 for assertion, outcome in made)


def _peer(replies: Sequence[tuple[str, str]], pattern: re.Pattern[str], which: int) -> Callable[[], int]:
    def bare(text: str) -> str:
        for ignored in _IGNORED:
            text = ignored.sub("", text)
        return text.lower()

    def check(reply: str, gold: str) -> bool:
        found = pattern.findall(reply)
        if not found:
            return False
        one = found[which]
        text = one if isinstance(one, str) else next(filter(None, one))
        return bare(text.strip()) == bare(gold)

    return lambda: sum(check(reply, gold) for reply, gold in replies)


def _rate(run: Callable[[], int], rounds: int, count: int) -> int:
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        run()
        best = min(best, time.process_time() - start)
    return round(count / best)


if __name__ == "__main__":
    main()
