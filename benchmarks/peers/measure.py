"""Measuring contenders in turns, and the table of what came out.

Contenders alternate, so that a busy machine slows all of them: compare the ratios, not the milliseconds.
"""

from __future__ import annotations

import math
import random
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Action = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Target:
    """What a contender should reach: `limit` times `base` at most (times) or at least (rates).

    Without a base the limit is a rate by itself.
    """

    limit: float
    base: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Attributes:
        section: What was measured.
        who: The contender.
        count: Measurements.
        median: Milliseconds of one, in the median.
        p95: Milliseconds that 95 of 100 stay below.
        rate: How many per second; None where only single times were taken.
        base: The contender it is compared with; empty for none.
        ratio: Its time, or its rate, divided by that of the base.
        judged: The number that the target is about: the ratio, or the rate.
        target: What that number should be, in words; empty for none.
        met: Whether it is.
    """

    section: str
    who: str
    count: int
    median: float
    p95: float
    rate: float | None = None
    base: str = ""
    ratio: float | None = None
    judged: float | None = None
    target: str = ""
    met: bool | None = None


@dataclass(slots=True)
class Sample:
    """Measurements of one contender: milliseconds, and for rates one number per window."""

    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Milliseconds in the median."""
        return statistics.median(self.times)

    @property
    def rate(self) -> float | None:
        """Per second, the median of the windows."""
        return statistics.median(self.rates) if self.rates else None


def timed(action: Action) -> tuple[float, Any]:
    """Milliseconds of one call, and its result."""
    begin = time.perf_counter()
    result = action()
    return (time.perf_counter() - begin) * 1000, result


def latencies(
    contenders: Mapping[str, Action],
    *,
    batches: int,
    size: int,
    slow: Sequence[str] = (),
    pause: tuple[float, float] | None = None,
    right: object = None,
) -> dict[str, Sample]:
    """Time single calls in batches that alternate. The first call of each batch is not counted.

    Args:
        contenders: What is called.
        batches: How many for each.
        size: Calls in a batch.
        slow: Contenders of which a sixth of the calls is enough.
        pause: Seconds, from and to, that pass before each call.
        right: What each call must return; None accepts all.
    """
    dice = random.Random(0)
    samples = {name: Sample() for name in contenders}
    names = list(contenders)
    for batch in range(batches):
        turn = batch % len(names)
        for name in names[turn:] + names[:turn]:
            for call in range(1 + (max(1, size // 6) if name in slow else size)):
                if pause is not None:
                    time.sleep(dice.uniform(*pause))
                spent, result = timed(contenders[name])
                if right is not None and result != right:
                    raise RuntimeError(f"{name} answered {result!r} instead of {right!r}")
                if call:
                    samples[name].times.append(spent)
    return samples


def rates(
    contenders: Mapping[str, Sequence[Action]],
    *,
    windows: int,
    seconds: float,
    slow: Sequence[str],
    check: Callable[[str, Any], None],
) -> dict[str, Sample]:
    """Count calls per second, in windows that alternate; each contender has one action per thread.

    A thread that is in a call when the window ends finishes it; each thread's rate is over its own time, so that slow
    contenders lose nothing by that. The `slow` ones take part in every second window.
    """
    samples = {name: Sample() for name in contenders}
    names = list(contenders)
    for number in range(windows):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if name in slow and number % 2:
                continue
            times, rate = _window(name, contenders[name], seconds, check)
            samples[name].times += times
            samples[name].rates.append(rate)
    return samples


def _window(
    name: str, actions: Sequence[Action], seconds: float, check: Callable[[str, Any], None]
) -> tuple[list[float], float]:
    start = threading.Barrier(len(actions))
    times: list[float] = []
    shares: list[float] = []
    failures: list[BaseException] = []

    def work(action: Action) -> None:
        try:
            start.wait()
            mine: list[float] = []
            begin = time.perf_counter()
            while not mine or time.perf_counter() - begin < seconds:
                spent, result = timed(action)
                check(name, result)
                mine.append(spent)
            shares.append(len(mine) / (time.perf_counter() - begin))
            times.extend(mine)
        except BaseException as error:  # raised below, on the thread that measures
            failures.append(error)

    threads = [threading.Thread(target=work, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return times, sum(shares)


class Table:
    """Prints rows as they come, and keeps them."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.skipped: dict[str, str] = {}

    def skip(self, who: str, reason: str) -> None:
        """Say why somebody does not take part."""
        self.skipped[who] = reason
        print(f"skipped: {who}: {reason}")

    def add(
        self, section: str, samples: Mapping[str, Sample], base: str = "", targets: Mapping[str, Target] | None = None
    ) -> None:
        """Print one section: every contender beside the base."""
        print(f"\n{section}" + (f" (ratio to: {base})" if base else ""))
        print(f"  {'':<34}{'median ms':>10}{'p95':>9}{'n':>6}{'per s':>8}{'ratio':>8}  target")
        for name, sample in samples.items():
            target = (targets or {}).get(name)
            against = target.base if target is not None and target.base else base
            self._print(_row(section, name, sample, samples, against if name != base else "", target))

    def _print(self, row: Row) -> None:
        self.rows.append(row)
        line = f"  {row.who:<34}{row.median:>10.2f}{row.p95:>9.2f}{row.count:>6}"
        line += f"{row.rate:>8.1f}" if row.rate is not None else f"{'-':>8}"
        line += f"{row.ratio:>8.2f}" if row.ratio is not None else f"{'-':>8}"
        if row.met is not None:
            line += f"  {row.target}: {'met' if row.met else 'NOT met'}"
        print(line, flush=True)

    def compare(self, section: str, who: str, samples: Mapping[str, Sample], target: Target) -> None:
        """One more line: a contender beside another than the base."""
        row = _row(section, who, samples[who], samples, target.base, target)
        self.rows.append(row)
        print(f"  {f'{who} / {target.base}':<67}{row.ratio:>8.2f}  {row.target}: {'met' if row.met else 'NOT met'}")

    def summary(self) -> None:
        """The targets, and whether they are met."""
        judged = [row for row in self.rows if row.met is not None]
        missed = [row for row in judged if not row.met]
        print(f"\n{len(judged) - len(missed)} of {len(judged)} targets met")
        for row in missed:
            print(f"  not met: {row.section}: {row.who}: {row.judged:.2f}, target {row.target}")


def _row(
    section: str, who: str, sample: Sample, samples: Mapping[str, Sample], base: str, target: Target | None
) -> Row:
    times = sorted(sample.times)
    ratio = judged = met = None
    words = ""
    if base:
        other = samples[base]
        mine, its = (sample.median, other.median) if sample.rate is None else (sample.rate, other.rate)
        assert its is not None
        ratio = mine / its
    if target is not None:
        judged = ratio if target.base else sample.rate
        assert judged is not None
        at_most = sample.rate is None
        met = judged <= target.limit if at_most else judged >= target.limit
        unit = f" x {target.base}" if target.base else "/s"
        words = f"{'<=' if at_most else '>='} {target.limit:g}{unit}"
    p95 = times[math.ceil(0.95 * len(times)) - 1]
    return Row(section, who, len(times), sample.median, p95, sample.rate, base, ratio, judged, words, met)
