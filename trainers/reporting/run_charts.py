"""The charts of one run's page, and those that lay several runs over one another, from the figures of run folders."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote, urlencode

from trainers.reporting.charts import (
    Chart,
    Figure,
    Row,
    Series,
    Share,
    before_after,
    chart_table,
    line_figure,
    stacked_area,
    stacked_bar,
)
from trainers.reporting.folder import RunFolder
from trainers.run.device import PeakMemory
from trainers.run.summary import STOPS, passes, percent, steady_words
from trainers.stats import wilson

SETTING_COLORS = {"sampled": 1, "greedy": 2}
STOP_COLORS = {"submitted": 3, "max_turns": 5, "max_seconds": 1, "max_tokens": 4, "lost": 2, "infrastructure": 6}
SMOOTHING = 5


def overlay(runs: Sequence[RunFolder]) -> list[Figure]:
    """Charts that lay several runs over one another, one colour per run."""
    out = []
    settings = dict.fromkeys(name for run in runs for point in run.held_out for name in point.settings)
    for setting in settings:
        series = [_held_out_series(run, setting, "pass_rate", i % 6 + 1, run.name) for i, run in enumerate(runs)]
        out.append(
            line_figure(
                Chart(
                    f"Held-out pass rate, {setting}",
                    f"Held-out pass rate of each run, {setting}",
                    series,
                    percent=True,
                    low=0.0,
                    high=1.0,
                )
            )
        )
    for title, metric, is_share in (
        ("Pool reward", "reward", False),
        ("Mean turns in the pool", "env/mean_turns", False),
    ):
        series = [
            Series(run.name, smooth(run.series(metric)), i % 6 + 1) for i, run in enumerate(runs) if run.series(metric)
        ]
        if series:
            chart = Chart(title, f"{title} of each run", series, percent=is_share)
            out.append(line_figure(chart, f"moving mean of {SMOOTHING} steps"))
    return out


def smooth(points: Sequence[tuple[float, float]], width: int = SMOOTHING) -> list[tuple[float, float]]:
    """Trailing moving mean: no value from a later step enters an earlier one."""
    out = []
    for i, (x, _) in enumerate(points):
        window = [y for _, y in points[max(0, i - width + 1) : i + 1]]
        out.append((x, sum(window) / len(window)))
    return out


def run_figures(run: RunFolder, browser: str = "") -> list[Figure]:
    """Every chart that the run has data for, in the order of the page; `browser`: the page of all episodes."""
    figures = [
        _rates(
            run,
            "pass_rate",
            "env/pass_rate",
            "Pass rate: held-out and pool",
            "dashed: the start; bands: 95 % intervals",
        ),
        _rates(run, "assertion_rate", "env/assertion_rate", "Assertion rate: held-out and pool", "dashed: the start"),
        _rates(run, "reward", "reward", "Reward: held-out and pool", "dashed: the start", is_share=False),
        _rates(run, "mean_turns", "env/mean_turns", "Turns per episode", "dashed: the start", is_share=False),
        _stops(run),
        _counts(run, "families", "Pass rate by task family, held-out", browser and f"{browser}#family="),
        _counts(run, "kinds", "Assertions that hold, by kind, held-out", browser and f"{browser}#failed="),
        _lines(run, "Uncertainty", [("entropy per token (nats)", "sampling/entropy")]),
        _lines(
            run,
            "Turn resampling (T2PO)",
            [("turns resampled", "t2po/resampled_turn_frac"), ("forced tokens", "t2po/forced_token_frac")],
            is_share=True,
            needs_nonzero=True,
        ),
        _lines(
            run,
            "Excluded, lost and broken, pool",
            [
                ("excluded", "env/infra_error_frac"),
                ("lost (fails)", "env/stop/lost"),
                ("a check broke (fails)", "env/broke_frac"),
                ("a sandbox was lost", "env/loss_frac"),
            ],
            is_share=True,
            needs_nonzero=True,
        ),
        _lines(
            run,
            "Where the training signal is",
            [("tokens with advantage 0", "gigpo/frac_zero_adv"), ("turns in a group", "gigpo/grouped_turn_frac")],
            is_share=True,
        ),
        _lines(run, "Loss", [("loss", "loss")], low=None),
        _lines(run, "KL from the start (nats)", [("KL", "kl")]),
        _lines(
            run,
            "Ratios: trained to sampled",
            [("largest", "sampling/ratio_max"), ("mean weight of a token", "sampling/importance_mean")],
        ),
        _lines(run, "Gradient norm", [("gradient norm", "grad_norm")]),
        _lines(run, "Learning rate", [("learning rate", "learning_rate")]),
    ]
    return [figure for figure in figures if figure is not None]


def _chosen(run: RunFolder) -> tuple[float, str] | None:
    return (float(run.best.step), f"chosen: step {run.best.step}") if run.best else None


def _held_out_series(run: RunFolder, setting: str, figure: str, color: int, name: str) -> Series:
    points, band, tips = [], [], []
    for point in run.held_out:
        m = point.settings.get(setting)
        value = getattr(m, figure) if m else None
        if m is None or value is None:
            continue
        points.append((float(point.step), float(value)))
        if figure == "pass_rate" and m.low is not None and m.high is not None:
            band.append((float(point.step), m.low, m.high))
            tips.append(passes(m))
    return Series(name, points, color, band=band, dots=True, tips=tips)


def _rates(run: RunFolder, figure: str, metric: str, title: str, note: str, *, is_share: bool = True) -> Figure | None:
    settings = dict.fromkeys(name for point in run.held_out for name in point.settings)
    raw = run.series(metric)
    series = [Series("pool, raw", raw, 4, faint=True)] if len(raw) > SMOOTHING else []
    if raw:
        series.append(Series("pool" if len(raw) <= SMOOTHING else f"pool, mean of {SMOOTHING}", smooth(raw), 4))
    for i, setting in enumerate(settings):
        color = SETTING_COLORS.get(setting, i % 6 + 1)
        series.append(_held_out_series(run, setting, figure, color, f"held-out, {setting}"))
        base = run.baseline.settings.get(setting) if run.baseline else None
        value = getattr(base, figure) if base else None
        if value is not None and raw:
            series.append(Series(f"start, {setting}", [(0.0, value), (raw[-1][0], value)], color, dashed=True))
    bounds = (0.0, 1.0) if is_share else (None, None)
    label = f"{title} by training step"
    chart = Chart(title, label, series, percent=is_share, low=bounds[0], high=bounds[1], mark=_chosen(run))
    return None if chart.empty else line_figure(chart, note)


def _stops(run: RunFolder) -> Figure | None:
    found = {name for step in run.steps for name, share in step.items() if name.startswith("env/stop/") and share}
    reasons = [r for r in STOPS if f"env/stop/{r}" in found]
    if not reasons:
        return None
    series = [
        Series(r, [(float(s["step"]), float(s.get(f"env/stop/{r}") or 0.0)) for s in run.steps], STOP_COLORS[r])
        for r in reasons
    ]
    chart = Chart(
        "How episodes end, pool",
        "Share of each stop reason by training step",
        series,
        percent=True,
        mark=_chosen(run),
    )
    return Figure(chart.title, stacked_area(chart), chart.legend(), "of graded episodes", *chart_table(chart))


def _counts(run: RunFolder, attribute: str, title: str, link: str) -> Figure | None:
    """Counts of the start and the chosen step; `link`, with a name behind it, leads to the episodes of that name."""
    best, base = run.best, run.baseline
    if best is None:
        return None
    setting = "sampled" if "sampled" in best.settings else next(iter(best.settings))
    columns: dict[str, dict[str, list[int]]] = {}
    if base is not None and setting in base.settings:
        columns["start"] = getattr(base.settings[setting], attribute)
    if best.step:
        columns[f"step {best.step}"] = getattr(best.settings[setting], attribute)
    names = sorted({name for counts in columns.values() for name in counts})
    if not names:
        return None
    rows = [
        Row(
            name,
            {key: _share(counts[name]) for key, counts in columns.items() if name in counts},
            link and f"{link}{quote(name)}&{urlencode({'arm': f'held-out {setting}'})}",
        )
        for name in names
    ]
    table = tuple(
        (row.name, *(row.shares[key].text() if key in row.shares else "-" for key in columns)) for row in rows
    )
    note = f"{setting}; ring: start, dot: chosen step" if len(columns) > 1 else setting
    return Figure(title, before_after(rows, title), [], note, ("", *columns), table)


def _share(count: Sequence[int]) -> Share:
    interval = wilson(count[0], count[1])
    return Share(count[0], count[1], interval.low, interval.high)


def _lines(
    run: RunFolder,
    title: str,
    metrics: Sequence[tuple[str, str]],
    *,
    is_share: bool = False,
    needs_nonzero: bool = False,
    low: float | None = 0.0,
) -> Figure | None:
    found = [(name, run.series(metric)) for name, metric in metrics]
    found = [(name, points) for name, points in found if points]
    if not found or (needs_nonzero and not any(y for _, points in found for _, y in points)):
        return None
    series = [Series(name, points, 1 + i) for i, (name, points) in enumerate(found)]
    chart = Chart(title, f"{title} by training step", series, percent=is_share, low=low, mark=_chosen(run))
    return line_figure(chart)


def time_figure(run: RunFolder) -> Figure | None:
    """Where the run's wall time went; `None` before its end."""
    timing = (run.summary or {}).get("timing")
    if not timing:
        return None
    parts = [
        ("rollout: model", timing["model_seconds"], 1),
        ("rollout: sandbox", timing["sandbox_seconds"], 3),
        ("rollout: our overhead", timing["overhead_seconds"], 6),
        ("learning", timing["learn_seconds"], 2),
        ("held-out evaluation", timing["held_out_seconds"], 4),
        ("the rest", timing["other_seconds"], 5),
    ]
    steps, turns = timing["steps"] or 0, timing["turns"] or 0
    rows = tuple(
        (
            name,
            f"{seconds:.1f} s",
            f"{seconds / steps:.2f} s" if steps else "-",
            f"{1000 * seconds / turns:.2f} ms" if turns and name.startswith("rollout") else "",
        )
        for name, seconds, _ in parts
    )
    note = f"our overhead is {percent(timing['overhead_share_of_rollout'])} of rollout wall time"
    if hidden := timing.get("hidden_seconds"):  # summaries of older releases have none
        note += f"; {hidden:.1f} s of the rollouts are hidden behind the rest: the parts are more than the wall time"
    found = (run.summary or {}).get("peak_memory")
    memory = PeakMemory(**found) if found else None
    if steady := steady_words(timing.get("steady") or {}, gpu=memory is not None and memory.on_gpu):
        note += f"; {steady}"
    if memory is not None:
        note += f"; {memory.words()}"
    bar = stacked_bar(parts, "Wall time of the run by what it was spent on")
    legend = [(name, color) for name, seconds, color in parts if seconds > 0]
    return Figure("Where the time went", bar, legend, note, ("", "all", "per step", "per turn"), rows)
