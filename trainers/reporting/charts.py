"""The charts of the report."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from trainers.reporting.folder import RunFolder
from trainers.run.device import PeakMemory
from trainers.run.summary import STOPS, passes, percent, steady_words
from trainers.stats import wilson

# ---------------------------------------------------------------------------------------------------------------------
# Charts of the report as inline SVG: drawn here, coloured by the page's CSS variables, with data for its tooltips.
#
# Every function returns `Markup`; all text in it is escaped. Coordinates are the view box's.

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 14, 34

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """One line.

    Attributes:
        name: For the legend.
        points: (x, y), in x order.
        color: 1..6, a colour of the page.
        band: (x, low, high) around the line.
        faint: Thin, pale and without dots: raw values behind a smoothed line.
        dashed: A dashed reference line, not in the legend.
        dots: Mark each point.
        tips: What the tooltip says for each point; default: the formatted value.
    """

    name: str
    points: Sequence[Point]
    color: int
    band: Sequence[tuple[float, float, float]] = ()
    faint: bool = False
    dashed: bool = False
    dots: bool = False
    tips: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Chart:
    """A line or area chart.

    Attributes:
        title: What it shows; `label` the same in a sentence for screen readers.
        percent: y is a share in [0, 1], shown as percent.
        low: Ends of the y axis (`high` the other); `None` fits the data.
        mark: (x, text): a vertical line, for the chosen step.
    """

    title: str
    label: str
    series: Sequence[Series]
    percent: bool = False
    low: float | None = None
    high: float | None = None
    mark: tuple[float, str] | None = None
    x_name: str = "step"

    def legend(self) -> list[tuple[str, int]]:
        """(name, colour) of each series that is neither a faint background nor a reference line."""
        return [(s.name, s.color) for s in self.series if not s.faint and not s.dashed and s.points]

    @property
    def empty(self) -> bool:
        """True when there is nothing to draw."""
        return not any(s.points for s in self.series)


@dataclass(frozen=True, slots=True)
class _Axes:
    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        span = self.x1 - self.x0 or 1.0
        return LEFT + (value - self.x0) / span * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        span = self.y1 - self.y0 or 1.0
        return HEIGHT - BOTTOM - (value - self.y0) / span * (HEIGHT - TOP - BOTTOM)


def line_chart(chart: Chart) -> Markup:
    """Lines with bands, an axis from the data, the chosen step marked."""
    axes = _axes(chart)
    parts: list[str] = [_grid(axes, chart.percent, chart.x_name)]
    for s in chart.series:
        if s.band:
            upper = [(axes.x(x), axes.y(h)) for x, _, h in s.band]
            lower = [(axes.x(x), axes.y(low)) for x, low, _ in reversed(s.band)]
            parts.append(f'<path class="band" style="fill:var(--c{s.color})" d="{_path(upper + lower)}Z"/>')
    if chart.mark is not None:
        parts.append(_mark(axes, *chart.mark))
    for s in chart.series:
        xy = [(axes.x(x), axes.y(y)) for x, y in s.points]
        kind = "line faint" if s.faint else "line"
        dash = ' stroke-dasharray="5 4"' if s.dashed else ""
        if xy:
            parts.append(f'<path class="{kind}" style="stroke:var(--c{s.color})"{dash} d="{_path(xy)}"/>')
        if s.dots or len(xy) == 1:
            parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2" style="fill:var(--c{s.color})"/>' for x, y in xy]
    return _svg(chart, parts, _hover(chart, axes))


def stacked_area(chart: Chart) -> Markup:
    """Shares that add up to 1, stacked in the order of the series."""
    axes = _Axes(*_x_range(chart), 0.0, 1.0)
    base: dict[float, float] = {}
    parts = [_grid(axes, True, chart.x_name)]
    for s in chart.series:
        lower = [(axes.x(x), axes.y(base.get(x, 0.0))) for x, _ in s.points]
        for x, y in s.points:
            base[x] = base.get(x, 0.0) + y
        upper = [(axes.x(x), axes.y(min(1.0, base[x]))) for x, _ in s.points]
        if upper:
            d = _path(upper + lower[::-1])
            parts.append(f'<path class="area" style="fill:var(--c{s.color})" d="{d}Z"/>')
    if chart.mark is not None:
        parts.append(_mark(axes, *chart.mark))
    return _svg(chart, parts, _hover(chart, axes))


@dataclass(frozen=True, slots=True)
class Share:
    """Passed of n with its interval; `n` 0 draws nothing."""

    passed: int
    n: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        """The share; 0 of 0 is 0 and is never drawn."""
        return self.passed / self.n if self.n else 0.0

    def text(self) -> str:
        """Counts and percent."""
        return f"{self.passed}/{self.n} = {100 * self.rate:.0f} % [{100 * self.low:.0f}, {100 * self.high:.0f}]"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a before/after chart; `shares` from first to last, by name."""

    name: str
    shares: Mapping[str, Share] = field(default_factory=dict)


def before_after(rows: Sequence[Row], label: str) -> Markup:
    """One row per name: a dot with interval for each measurement, the first hollow, the last filled."""
    step, left, width = 30, 168, WIDTH
    height = step * len(rows) + 34

    def x(value: float) -> float:
        return left + value * (width - left - 22)

    parts = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        parts.append(f'<path class="grid" d="M{x(share):.1f} 6V{height - 24}"/>')
        parts.append(f'<text class="tick" text-anchor="middle" x="{x(share):.1f}" y="{height - 8}">{share:.0%}</text>')
    for i, row in enumerate(rows):
        y = 22 + i * step
        name = row.name if len(row.name) <= 24 else row.name[:23] + "…"
        parts.append(f'<text class="name" text-anchor="end" x="{left - 10}" y="{y + 4}">{escape(name)}</text>')
        shares = [(key, s) for key, s in row.shares.items() if s.n]
        if len(shares) == 2:
            a, b = shares[0][1].rate, shares[1][1].rate
            color = "var(--good)" if b >= a else "var(--bad)"
            parts.append(f'<path class="link" style="stroke:{color}" d="M{x(a):.1f} {y}H{x(b):.1f}"/>')
        for k, (key, s) in enumerate(shares):
            dy = 0 if len(shares) == 1 else (-4 if k == 0 else 4)
            last = k == len(shares) - 1
            parts.append(
                f"<g><title>{escape(row.name)}, {escape(key)}: {escape(s.text())}</title>"
                f'<path class="whisker" d="M{x(s.low):.1f} {y + dy}H{x(s.high):.1f}"/>'
                f'<circle class="{"after" if last else "before"}" cx="{x(s.rate):.1f}" cy="{y}" r="5"/></g>'
            )
    svg = f'<svg class="chart" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    return Markup(svg + "".join(parts) + "</svg>")


def stacked_bar(parts: Sequence[tuple[str, float, int]], label: str) -> Markup:
    """One horizontal bar of (name, amount, colour); amounts of 0 are left out."""
    total = sum(amount for _, amount, _ in parts)
    if total <= 0:
        return Markup("")
    out, at = [], 0.0
    for name, amount, color in parts:
        if amount <= 0:
            continue
        w = amount / total * WIDTH
        tip = escape(f"{name}: {amount:.1f} s ({100 * amount / total:.0f} %)")
        out.append(
            f'<g><title>{tip}</title><rect x="{at:.2f}" y="0" width="{max(w - 1.5, 0.5):.2f}" height="26"'
            f' style="fill:var(--c{color})"/>'
        )
        if w > 52:
            out.append(
                f'<text class="inbar" x="{at + w / 2:.1f}" y="17" text-anchor="middle">'
                f"{100 * amount / total:.0f} %</text>"
            )
        out.append("</g>")
        at += w
    svg = f'<svg class="chart bar" viewBox="0 0 {WIDTH} 26" role="img" aria-label="{escape(label)}">'
    return Markup(svg + "".join(out) + "</svg>")


def ticks(low: float, high: float, count: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers inside [low, high], about `count` of them; `whole` keeps to integers."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    if whole:
        step = max(1.0, math.ceil(step))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def _x_range(chart: Chart) -> tuple[float, float]:
    xs = [x for s in chart.series for x, _ in s.points]
    low, high = min(xs, default=0.0), max(xs, default=1.0)
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _axes(chart: Chart) -> _Axes:
    ys = [y for s in chart.series for _, y in s.points]
    ys += [v for s in chart.series for _, low, high in s.band for v in (low, high)]
    low, high = min(ys, default=0.0), max(ys, default=1.0)
    pad = 0.06 * (high - low) or 0.05 * abs(high) or 0.5
    y0 = chart.low if chart.low is not None else low - pad
    y1 = chart.high if chart.high is not None else high + pad
    return _Axes(*_x_range(chart), y0, y1)


def _number(value: float, percent: bool) -> str:
    if percent:
        return f"{100 * value:.0f} %"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _grid(axes: _Axes, percent: bool, x_name: str) -> str:
    out = []
    for value in ticks(axes.y0, axes.y1):
        y = axes.y(value)
        out.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        out.append(
            f'<text class="tick" text-anchor="end" x="{LEFT - 7}" y="{y + 3.5:.1f}">{_number(value, percent)}</text>'
        )
    for value in ticks(axes.x0, axes.x1, 8, whole=True):
        x = axes.x(value)
        out.append(f'<text class="tick" text-anchor="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 16}">{value:g}</text>')
    out.append(f'<path class="axis" d="M{LEFT} {HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    out.append(f'<text class="tick" text-anchor="end" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}">{escape(x_name)}</text>')
    return "".join(out)


def _mark(axes: _Axes, at: float, text: str) -> str:
    x = axes.x(at)
    anchor = "end" if x > WIDTH / 2 else "start"
    dx = -5 if anchor == "end" else 5
    return (
        f'<path class="mark" d="M{x:.1f} {TOP - 6}V{HEIGHT - BOTTOM}"/>'
        f'<text class="marktext" text-anchor="{anchor}" x="{x + dx:.1f}" y="{TOP + 3}">{escape(text)}</text>'
    )


def _path(points: Sequence[Point]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""


def _hover(chart: Chart, axes: _Axes) -> str:
    """Tooltip rows by x position, as JSON for the page's script."""
    rows: dict[float, list[tuple[str, int, str]]] = {}
    for s in chart.series:
        for i, (x, y) in enumerate(s.points):
            tip = s.tips[i] if s.tips else _number(y, False) if not chart.percent else f"{100 * y:.1f} %"
            rows.setdefault(x, []).append((s.name, s.color, tip))
    data = [{"x": round(axes.x(x), 1), "title": f"{chart.x_name} {x:g}", "rows": rows[x]} for x in sorted(rows)]
    return json.dumps(data, ensure_ascii=True)


def _svg(chart: Chart, parts: Sequence[str], hover: str) -> Markup:
    head = (
        f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.label)}" '
        f'data-top="{TOP}" data-bottom="{HEIGHT - BOTTOM}" data-hover="{escape(hover)}">'
    )
    return Markup(head + "".join(parts) + '<path class="cursor" d=""/></svg>')


# -- The report's charts, from a run folder's figures -----------------------------------------------------------------

SETTING_COLORS = {"sampled": 1, "greedy": 2}
STOP_COLORS = {"submitted": 3, "max_turns": 5, "max_seconds": 1, "max_tokens": 4, "lost": 2, "infrastructure": 6}
SMOOTHING = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn chart with its legend, a note, and the same numbers as a table."""

    title: str
    svg: Markup
    legend: list[tuple[str, int]]
    note: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def overlay(runs: Sequence[RunFolder]) -> list[Figure]:
    """Charts that lay several runs over one another, one colour per run."""
    out = []
    settings = dict.fromkeys(name for run in runs for point in run.held_out for name in point.settings)
    for setting in settings:
        series = [_held_out_series(run, setting, "pass_rate", i % 6 + 1, run.name) for i, run in enumerate(runs)]
        out.append(
            _line(
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
            out.append(_line(chart, f"moving mean of {SMOOTHING} steps"))
    return out


def smooth(points: Sequence[tuple[float, float]], width: int = SMOOTHING) -> list[tuple[float, float]]:
    """Trailing moving mean: no value from a later step enters an earlier one."""
    out = []
    for i, (x, _) in enumerate(points):
        window = [y for _, y in points[max(0, i - width + 1) : i + 1]]
        out.append((x, sum(window) / len(window)))
    return out


def run_figures(run: RunFolder) -> list[Figure]:
    """Every chart that the run has data for, in the order of the page."""
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
        _counts(run, "families", "Pass rate by task family, held-out"),
        _counts(run, "kinds", "Assertions that hold, by kind, held-out"),
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
        _lines(run, "Gradient norm", [("gradient norm", "grad_norm")]),
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
    return None if chart.empty else _line(chart, note)


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
    return Figure(chart.title, stacked_area(chart), chart.legend(), "of graded episodes", *_table(chart))


def _counts(run: RunFolder, attribute: str, title: str) -> Figure | None:
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
        Row(name, {key: _share(counts[name]) for key, counts in columns.items() if name in counts}) for name in names
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
) -> Figure | None:
    found = [(name, run.series(metric)) for name, metric in metrics]
    found = [(name, points) for name, points in found if points]
    if not found or (needs_nonzero and not any(y for _, points in found for _, y in points)):
        return None
    series = [Series(name, points, 1 + i) for i, (name, points) in enumerate(found)]
    chart = Chart(title, f"{title} by training step", series, percent=is_share, low=0.0, mark=_chosen(run))
    return _line(chart)


def _line(chart: Chart, note: str = "") -> Figure:
    return Figure(chart.title, line_chart(chart), chart.legend(), note, *_table(chart))


def _table(chart: Chart) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """The chart's numbers as a table: for readers without the picture."""
    series = [s for s in chart.series if not s.dashed and s.points]
    xs = sorted({x for s in series for x, _ in s.points})
    rows = []
    for x in xs:
        cells = [f"{x:g}"]
        for s in series:
            at = next((i for i, (px, _) in enumerate(s.points) if px == x), None)
            if at is None:
                cells.append("")
            elif s.tips:
                cells.append(s.tips[at])
            else:
                y = s.points[at][1]
                cells.append(f"{100 * y:.1f} %" if chart.percent else f"{y:.4g}")
        rows.append(tuple(cells))
    return (chart.x_name, *(s.name for s in series)), tuple(rows)


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
