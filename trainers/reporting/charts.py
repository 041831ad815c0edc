"""The charts of report pages as inline SVG: lines with bands, areas, bars, before and after, forests.

They are drawn here and coloured by the page's CSS variables; `data-hover` is for the tooltips of its script. Every
function returns `Markup`; all text in it is escaped. Coordinates are those of the view box.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

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
    """One line of a before/after chart; `shares` from first to last, by name; `link` leads to what is behind it."""

    name: str
    shares: Mapping[str, Share] = field(default_factory=dict)
    link: str = ""


def before_after(rows: Sequence[Row], label: str) -> Markup:
    """One row per name: a dot with interval for each measurement, the first hollow, the last filled."""
    quarters = (0.0, 0.25, 0.5, 0.75, 1.0)
    ground = "".join(f'<line class="grid" x1="{q:.0%}" x2="{q:.0%}" y1="0" y2="100%"/>' for q in quarters)
    out = []
    for row in rows:
        parts = [ground]
        shares = [(key, s) for key, s in row.shares.items() if s.n]
        if len(shares) == 2:
            a, b = shares[0][1].rate, shares[1][1].rate
            color = "var(--good)" if b >= a else "var(--bad)"
            parts.append(f'<line class="link" style="stroke:{color}" x1="{a:.2%}" x2="{b:.2%}" y1="14" y2="14"/>')
        for k, (key, s) in enumerate(shares):
            y = 14 if len(shares) == 1 else (10 if k == 0 else 18)
            kind = "after" if k == len(shares) - 1 else "before"
            parts.append(
                f"<g><title>{escape(row.name)}, {escape(key)}: {escape(s.text())}</title>"
                f'<line class="whisker" x1="{s.low:.2%}" x2="{s.high:.2%}" y1="{y}" y2="{y}"/>'
                f'<circle class="{kind}" cx="{s.rate:.2%}" cy="14" r="5"/></g>'
            )
        name = f'<a href="{escape(row.link)}">{escape(row.name)}</a>' if row.link else escape(row.name)
        out.append(f'<div class="what">{name}</div><svg width="100%" height="28">{"".join(parts)}</svg>')
    scale = "".join(f'<text class="tick" text-anchor="middle" x="{q:.0%}" y="13">{q:.0%}</text>' for q in quarters)
    out.append(f'<div></div><svg width="100%" height="18" aria-hidden="true">{scale}</svg>')
    return Markup(f'<div class="forest rows" role="group" aria-label="{escape(label)}">{"".join(out)}</div>')


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


@dataclass(frozen=True, slots=True)
class Effect:
    """One row of a forest plot: a difference with its interval.

    Attributes:
        name: What is compared; `detail` beside it, such as the figures.
        tone: `good`, `bad` or `neutral`: a colour of the page.
        hollow: Of other data than the other rows; drawn as a ring.
    """

    name: str
    detail: str
    difference: float
    low: float
    high: float
    tone: str = "neutral"
    hollow: bool = False


def forest(effects: Sequence[Effect], label: str, *, threshold: float = 0.0, percent: bool = False) -> Markup:
    """Differences with their intervals around 0: text beside drawings that take the width there is.

    Args:
        effects: The rows, from the top.
        label: For screen readers.
        threshold: Differences below it are shaded: they do not matter.
        percent: The differences are shares, shown as points.
    """
    ends = [0.0, threshold, -threshold]
    ends += [value for e in effects for value in (e.low, e.high, e.difference) if math.isfinite(value)]
    pad = 0.08 * (max(ends) - min(ends)) or 0.5
    low, high = min(ends) - pad, max(ends) + pad

    def x(value: float) -> str:
        return f"{100 * (min(max(value, low), high) - low) / (high - low):.2f}%"

    ground = f'<line class="zero" x1="{x(0.0)}" x2="{x(0.0)}" y1="0" y2="100%"/>'
    if threshold:
        width = 100 * 2 * threshold / (high - low)
        ground = f'<rect class="shade" x="{x(-threshold)}" y="0" width="{width:.2f}%" height="100%"/>' + ground
    rows = []
    for e in effects:
        color = {"good": "var(--good)", "bad": "var(--bad)"}.get(e.tone, "var(--c4)")
        fill = "var(--card)" if e.hollow else color
        drawn = (
            f'<line x1="{x(e.low)}" x2="{x(e.high)}" y1="50%" y2="50%" style="stroke:{color};stroke-width:2.5"/>'
            f'<circle cx="{x(e.difference)}" cy="50%" r="5.5" style="fill:{fill};stroke:{color};stroke-width:2"/>'
        )
        rows.append(
            f'<div class="what"><b>{escape(e.name)}</b><span class="note">{escape(e.detail)}</span></div>'
            f'<svg width="100%" height="34" aria-hidden="true">{ground}{drawn}</svg>'
        )
    marks = ticks(low, high, 4)
    scale = "".join(
        f'<text class="tick" text-anchor="middle" x="{x(v)}" y="13">{_signed(100 * v if percent else v)}</text>'
        for v in marks
    )
    rows.append(f'<div></div><svg width="100%" height="18" aria-hidden="true">{scale}</svg>')
    return Markup(f'<div class="forest" role="group" aria-label="{escape(label)}">{"".join(rows)}</div>')


def spark(
    points: Sequence[Point],
    limits: Sequence[Point],
    fired: Sequence[tuple[float, str]],
    label: str,
    span: tuple[float, float],
) -> Markup:
    """A small line without axes, its limit dashed; a bar with a tooltip where something fired.

    Args:
        points: The line.
        limits: Its limit at the same places.
        fired: x and what the tooltip says.
        label: For screen readers.
        span: The x at both ends.
    """
    ys = [y for _, y in (*points, *limits)]
    low, high = min(ys), max(ys) - min(ys) or 1.0

    def at(x: float) -> float:
        return 100 * (x - span[0]) / (span[1] - span[0] or 1.0)

    def path(some: Sequence[Point]) -> str:
        return _path([(at(x), 27 - 24 * (y - low) / high) for x, y in some])

    bars = "".join(
        f'<path class="fired" d="M{at(x):.1f} 0V30"><title>{escape(text)}</title></path>' for x, text in fired
    )
    last = "" if len(points) > 1 else "h100"
    return Markup(
        f'<svg class="spark" viewBox="0 0 100 30" preserveAspectRatio="none" role="img" aria-label="{escape(label)}">'
        f'<path class="limit" d="{path(limits)}{last}"/><path class="line" d="{path(points)}{last}"/>{bars}</svg>'
    )


def strip(shares: Sequence[float | None], marked: int | None, label: str) -> Markup:
    """One column per share, as high as it is; an empty frame for one that does not exist.

    Args:
        shares: In order.
        marked: Place of the one with a mark under it.
        label: For screen readers.
    """
    frames = "".join(f"M{11 * i}.5 .5h9v17h-9z" for i in range(len(shares)))
    fills = "".join(f"M{11 * i}.5 17.5v{-17 * s:.1f}h9v{17 * s:.1f}z" for i, s in enumerate(shares) if s)
    none = "".join(f"M{11 * i}.5 .5l9 17" for i, s in enumerate(shares) if s is None)
    under = "" if marked is None else f'<path class="under" d="M{11 * marked} 20.5h10"/>'
    return Markup(
        f'<svg class="strip" width="{11 * len(shares)}" height="22" role="img" aria-label="{escape(label)}">'
        f'<path class="frame" d="{frames}"/><path class="fill" d="{fills}"/><path class="none" d="{none}"/>'
        f"{under}</svg>"
    )


def _signed(value: float) -> str:
    return f"{value:+.3g}" if value else "0"


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
        return f"{100 * value:.0f}%"
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
    out.append(f'<text class="tick" text-anchor="end" x="{WIDTH - RIGHT}" y="{HEIGHT + 3}">{escape(x_name)}</text>')
    return "".join(out)


def _mark(axes: _Axes, at: float, text: str) -> str:
    """A vertical line; its text stands above the plot, where no curve is."""
    x = axes.x(at)
    anchor = "end" if x > WIDTH / 2 else "start"
    return (
        f'<path class="mark" d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}"/>'
        f'<text class="marktext" text-anchor="{anchor}" x="{x:.1f}" y="{TOP - 6}">{escape(text)}</text>'
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


# -- A drawn chart beside its legend and its numbers --


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn chart with its legend, a note, and the same numbers as a table."""

    title: str
    svg: Markup
    legend: list[tuple[str, int]]
    note: str = ""
    header: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


def line_figure(chart: Chart, note: str = "") -> Figure:
    """A line chart with its legend and its table."""
    return Figure(chart.title, line_chart(chart), chart.legend(), note, *chart_table(chart))


def chart_table(chart: Chart) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
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
