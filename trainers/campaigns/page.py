"""The report of a campaign as one self-contained page. The template only lays this out; every text is made here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainers.campaigns.figures import POOL, SHARES, ConditionFigures, RunLine
from trainers.campaigns.results import Report
from trainers.campaigns.run import duration
from trainers.curves import Curve, SeedMean
from trainers.emergence import Recommendation
from trainers.jsonl import write_whole
from trainers.reporting.charts import Chart, Effect, Figure, Series, forest, line_figure
from trainers.reporting.episodes import shown
from trainers.reporting.page import rendered, yaml_text
from trainers.reporting.run_charts import SMOOTHING
from trainers.run.summary import both_ways, p_text, percent
from trainers.settings.help import CONFIGS
from trainers.verdicts import Comparison, Verdict

PAGE = "report.html"
COLORS = 6
"""Of the page: so many curves in one chart, the baseline's in each."""
TONES = {Recommendation.IMPROVEMENT: "good", Recommendation.DEGRADATION: "bad", Recommendation.INSUFFICIENT: "neutral"}


@dataclass(frozen=True, slots=True)
class VerdictView:
    """A verdict in the words of the text report.

    Attributes:
        head: What may be said; `lines` the figures behind it.
        tone: `good`, `bad` or `neutral`.
    """

    head: str
    lines: list[str]
    tone: str


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text; `links` the address of a row's last cell, `None` where it has none."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    links: Sequence[str | None]

    @classmethod
    def of(cls, header: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Table:
        """One without links."""
        return cls(header, rows, [None] * len(rows))


def write_page(report: Report) -> Path:
    """Write the page of a report into the campaign's folder, from which its links to the runs' own pages go."""
    file = report.campaign.path
    name = file.stem if file.parent == CONFIGS else str(file)
    text = rendered(
        "campaign.html.j2",
        title=f"TurnGym campaign: {report.campaign.file.name}",
        report=report,
        lead=report.lead,
        verdicts=[_verdict(verdict) for verdict in report.judged],
        conditions=_conditions(report),
        forests=list(_forests(report.judged)),
        beside=_beside(report),
        curves=list(_curves(report)),
        runs=_runs(report.runs),
        left_out=_left_out(report.judged),
        budget=_budget(report.conditions),
        decode=_decode(report.conditions),
        given=[(c.name, yaml_text(c.given) or "nothing beyond the settings of all") for c in report.conditions],
        commands=[f"python -m trainers.campaign {verb} {name}" for verb in ("run", "report")],
        source=shown(file.read_text(encoding="utf-8"), 20_000),
        environment=yaml_text(report.environment),
    )
    path = report.campaign.folder / PAGE
    write_whole(path, text)
    return path


def _verdict(verdict: Verdict) -> VerdictView:
    head, *lines = verdict.lines()
    return VerdictView(head, [line.strip() for line in lines], TONES[verdict.recommendation])


# -- Conditions, and what lies between them ---------------------------------------------------------------------------


def _conditions(report: Report) -> Table:
    judged = {verdict.candidate: verdict for verdict in report.judged}
    rows = []
    for c in report.conditions:
        verdict = judged.get(c.name)
        firsts = {one.figure: one for one in verdict.comparisons} if verdict else {}
        rate, reward = firsts.get("pass rate"), firsts.get("reward")
        rows.append(
            (
                c.name if verdict else f"{c.name} (baseline)",
                f"{len(c.seeds)} of {c.planned}",
                _mean_text(c.pass_rate, as_percent=True),
                _mean_text(c.reward, as_percent=False),
                f"{_points_text(rate)}, p {p_text(rate.p_value)}" if rate else "-",
                f"{_reward_text(reward)}, p {p_text(reward.p_value)}" if reward else "-",
                p_text(verdict.p_holm) if verdict else "-",
                "" if verdict is None else verdict.recommendation.value.replace("_", " "),
            )
        )
    header = ("condition", "seeds", "pass rate", "reward", "difference of pass rates, points", "difference of rewards",
              "p after Holm", "what may be said")  # fmt: skip
    return Table.of(header, rows)


def _mean_text(mean: SeedMean | None, *, as_percent: bool) -> str:
    if mean is None:
        return "-"
    scale, digits = (100, 1) if as_percent else (1, 3)
    text = percent(mean.mean) if as_percent else f"{mean.mean:.3f}"
    ends = mean.interval
    return f"{text} [{scale * ends.low:.{digits}f}, {scale * ends.high:.{digits}f}]" if ends else text


def _points_text(one: Comparison) -> str:
    ends = one.test.interval
    return f"{100 * one.test.difference:+.1f} [{100 * ends.low:+.1f}, {100 * ends.high:+.1f}]"


def _reward_text(one: Comparison) -> str:
    ends = one.test.interval
    return f"{one.test.difference:+.3f} [{ends.low:+.3f}, {ends.high:+.3f}]"


def _beside(report: Report) -> Table:
    rows = [
        (
            one.name,
            one.condition,
            str(len(one.seeds)),
            f"{one.passed}/{one.graded}",
            _mean_text(one.pass_rate, as_percent=True),
            one.difference,
            one.p,
        )
        for one in report.beside
    ]
    return Table.of(("measured", "condition", "seeds", "passed", "pass rate", "difference, points", "p"), rows)


def _forests(judged: Sequence[Verdict]) -> Iterator[Figure]:
    """One for each figure: differences from the baseline, also with the runs that were cut short."""
    for figure in dict.fromkeys(one.figure for verdict in judged for one in verdict.comparisons):
        effects, threshold, level = [], 0.0, 0.0
        rate = figure == "pass rate"
        for verdict in judged:
            for one in (*verdict.comparisons, *verdict.with_cut_short):
                if one.figure == figure:
                    hollow = one in verdict.with_cut_short
                    threshold, level = one.threshold, one.level
                    effects.append(_effect(verdict, one, hollow=hollow, rate=rate))
        small = f"{100 * threshold:g} points" if rate else f"{threshold:g}"
        note = (
            f"{judged[0].baseline} is 0; intervals at {100 * level:.4g} %, which hold for all conditions at once; "
            f"shaded: less than {small}, which does not matter"
        )
        title = "Difference of pass rates, points" if rate else f"Difference of {figure}s"
        svg = forest(effects, title, threshold=threshold, percent=rate)
        yield Figure(title, svg, [], note)


def _effect(verdict: Verdict, one: Comparison, *, hollow: bool, rate: bool) -> Effect:
    how = f"{len(one.seeds_baseline)} pairs" if one.paired else "Welch"
    said = _points_text(one) if rate else _reward_text(one)
    return Effect(
        name=verdict.candidate + (", with runs cut short" if hollow else ""),
        detail=f"{said}, p {p_text(one.p_value)} ({how})",
        difference=one.test.difference,
        low=one.test.interval.low,
        high=one.test.interval.high,
        tone=TONES[verdict.recommendation],
        hollow=hollow,
    )


def _curves(report: Report) -> Iterator[Figure]:
    """Each figure's curves with bands; where there are more conditions than colours, several charts of it."""
    baseline = report.campaign.baseline
    others = [c for c in report.conditions if c.name != baseline]
    first = [c for c in report.conditions if c.name == baseline]
    groups = [first + others[at : at + COLORS - 1] for at in range(0, len(others), COLORS - 1)]
    for title in dict.fromkeys(title for c in report.conditions for title in c.curves):
        for group in groups:
            found = [(1 + n, c.name, c.curves[title]) for n, c in enumerate(group) if title in c.curves]
            series = [_series(name, curve, color) for color, name, curve in found]
            label = f"{title} by training step, mean over seeds of each condition"
            chart = Chart(title, label, series, percent=title in SHARES)
            yield line_figure(chart, _band_note(title, [curve for _, _, curve in found]))


def _series(name: str, curve: Curve, color: int) -> Series:
    band = list(zip(curve.steps, curve.low, curve.high, strict=True)) if curve.low else []
    points = list(zip(curve.steps, curve.mean, strict=True))
    return Series(f"{name} ({curve.runs})", points, color, band=band, dots=len(points) < 12)


def _band_note(title: str, curves: Sequence[Curve]) -> str:
    parts = ["mean over seeds (how many) and its 95 % band (t), step by step"]
    if title in POOL:
        parts.append(f"each run smoothed over {SMOOTHING} steps")
    if short := [run for curve in curves for run in curve.short]:
        parts.append(f"cut to the shortest run: {', '.join(short)}")
    return "; ".join(parts)


# -- Runs, what was left out, what it took ----------------------------------------------------------------------------


def _runs(lines: Sequence[RunLine]) -> Table:
    adapters = any(line.rank for line in lines)
    rows = [
        (
            line.result.condition,
            str(line.result.seed),
            line.state,
            f"{line.result.steps} of {line.result.planned}",
            _counts(line),
            "-" if line.result.reward is None else f"{line.result.reward:.3f}",
            _thousands(line.tokens),
            "-" if line.seconds is None else duration(line.seconds),
            str(line.warnings),
            *([str(line.rank or "-")] if adapters else []),
            line.left_out or "in",
            "report" if line.page else "-",
        )
        for line in lines
    ]
    rank = ["rank that keeps 95 %"] if adapters else []
    header = ("condition", "seed", "state", "steps", "held-out", "reward", "tokens", "time", "warnings", *rank,
              "in the means", "own report")  # fmt: skip
    return Table(header, rows, [line.page for line in lines])


def _counts(line: RunLine) -> str:
    r = line.result
    if r.pass_rate is None:
        return "-"
    text = f"{r.passed}/{r.graded} = {percent(r.pass_rate)}"
    return f"{text}, {both_ways(r.passed, r.graded, line.excluded)}" if line.excluded else text


def _thousands(tokens: float | None) -> str:
    return "-" if tokens is None else f"{tokens:,.0f}"


def _left_out(judged: Sequence[Verdict]) -> Table:
    """Each run with its reason, once; a reason of one comparison alone names it."""
    found: dict[tuple[str, str], list[str]] = {}
    for verdict in judged:
        for one in verdict.left_out:
            found.setdefault((str(one.result), one.reason), []).append(verdict.candidate)
    counted = {
        f"{condition} seed {seed}"
        for verdict in judged
        for one in verdict.with_cut_short
        for condition, seeds in ((verdict.baseline, one.seeds_baseline), (verdict.candidate, one.seeds_candidate))
        for seed in seeds
    }
    rows = [
        (run, reason, ", ".join(candidates), "yes" if run in counted else "no")
        for (run, reason), candidates in found.items()
    ]
    return Table.of(("run", "why", "in the verdicts about", "counted with runs cut short"), rows)


def _budget(conditions: Sequence[ConditionFigures]) -> Table:
    rows = [
        (
            c.name,
            "-" if c.steps is None else f"{c.steps:g}",
            _thousands(c.tokens),
            "-" if c.seconds is None else duration(c.seconds),
            "-" if c.all_seconds is None else duration(c.all_seconds),
        )
        for c in conditions
    ]
    return Table.of(("condition", "steps a run", "sampled tokens a run", "time a run", "time of all its runs"), rows)


def _decode(conditions: Sequence[ConditionFigures]) -> Table:
    """How each condition was sampled; one row for all where all were sampled alike."""
    same = len({c.decode for c in conditions}) == 1
    shown_of = [("all", conditions[0])] if same else [(c.name, c) for c in conditions]
    return Table.of(("condition", "what", "how"), [(name, *row) for name, c in shown_of for row in c.decode])
