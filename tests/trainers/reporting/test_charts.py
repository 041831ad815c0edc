from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html import unescape

import pytest

from trainers.reporting.charts import (
    Chart,
    Effect,
    Row,
    Series,
    Share,
    before_after,
    forest,
    line_chart,
    stacked_area,
    stacked_bar,
    ticks,
)

HOSTILE = "\"'><script>alert(1)</script>"


def paths(svg: str, name: str) -> list[str]:
    root = ET.fromstring(svg)
    return [p.get("d", "") for p in root.iter("path") if name in (p.get("class") or "").split()]


def test_ticks_are_round_and_inside() -> None:
    assert ticks(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert ticks(0, 40, 8, whole=True) == [0, 5, 10, 15, 20, 25, 30, 35, 40]
    assert ticks(0, 3, 8, whole=True) == [0, 1, 2, 3]
    assert ticks(2, 2) == [2]


def test_line_chart_draws_every_point_where_it_belongs() -> None:
    series = Series("a", [(0, 0.0), (10, 1.0)], 1, band=[(0, 0.0, 0.1), (10, 0.9, 1.0)], dots=True)
    svg = line_chart(Chart("t", "l", [series], percent=True, low=0, high=1, mark=(10, "chosen")))
    (line,) = paths(svg, "line")
    assert line == "M46.0 216.0L548.0 14.0"  # bottom left to top right of the plot
    assert len(paths(svg, "band")) == 1 and svg.count("<circle") == 2 and "chosen" in svg
    root = ET.fromstring(svg)
    (mark,) = [t for t in root.iter("text") if t.text == "chosen"]
    assert float(mark.get("y", "")) < 14, "above the plot, where it covers no curve"
    hover = json.loads(unescape(ET.fromstring(svg).get("data-hover", "")))
    assert [h["title"] for h in hover] == ["step 0", "step 10"]
    assert hover[1]["rows"] == [["a", 1, "100.0 %"]]


def test_flat_and_single_values_do_not_divide_by_zero() -> None:
    svg = line_chart(Chart("t", "l", [Series("a", [(3, 0.5)], 1)]))
    assert svg.count("<circle") == 1 and "nan" not in svg.lower()
    assert "nan" not in line_chart(Chart("t", "l", [Series("a", [(1, 0.0), (2, 0.0)], 1)])).lower()
    assert Chart("t", "l", [Series("a", [], 1)]).empty


def test_stacked_area_fills_the_plot() -> None:
    series = [Series("a", [(0, 0.25), (1, 0.5)], 1), Series("b", [(0, 0.75), (1, 0.5)], 2)]
    lower, upper = paths(stacked_area(Chart("t", "l", series)), "area")
    assert lower.endswith("L548.0 216.0L46.0 216.0Z")
    assert upper.startswith("M46.0 14.0L548.0 14.0L")


def test_before_after_names_counts_and_direction() -> None:
    rows = [
        Row("up", {"start": Share(1, 4, 0.1, 0.6), "end": Share(4, 4, 0.5, 1.0)}),
        Row("down", {"start": Share(2, 4, 0.1, 0.6), "end": Share(1, 4, 0.1, 0.6)}),
        Row("new", {"end": Share(1, 2, 0.1, 0.9)}),
    ]
    svg = before_after(rows, "families")
    assert "up, start: 1/4 = 25 % [10, 60]" in svg
    assert svg.count("var(--good)") == 1 and svg.count("var(--bad)") == 1
    assert svg.count("<circle") == 5


def test_text_is_escaped_everywhere() -> None:
    chart = Chart(HOSTILE, HOSTILE, [Series(HOSTILE, [(0, 1), (1, 2)], 1, tips=[HOSTILE, HOSTILE])], mark=(0, HOSTILE))
    for svg in (
        line_chart(chart),
        stacked_area(chart),
        before_after([Row(HOSTILE, {HOSTILE: Share(1, 2, 0.1, 0.9)}, link=HOSTILE)], HOSTILE),
        stacked_bar([(HOSTILE, 1.0, 1)], HOSTILE),
        forest([Effect(HOSTILE, HOSTILE, 0.1, 0.0, 0.2)], HOSTILE),
    ):
        assert "<script" not in svg
        ET.fromstring(svg)


def test_stacked_bar_leaves_out_nothing_and_zero() -> None:
    svg = stacked_bar([("a", 3.0, 1), ("b", 0.0, 2), ("c", 1.0, 3)], "time")
    assert svg.count("<rect") == 2 and "a: 3.0 s (75 %)" in svg
    assert stacked_bar([("a", 0.0, 1)], "time") == ""


def test_a_forest_plot_places_intervals_around_zero() -> None:
    effects = [Effect("up", "+0.1", 0.1, 0.05, 0.15, "good"), Effect("same", "0", 0.0, -0.15, 0.15, hollow=True)]
    root = ET.fromstring(forest(effects, "differences", threshold=0.01, percent=True))
    rows = root.findall("svg")
    zero, interval = rows[0].findall("line")
    assert zero.get("x1") == "50.00%", "symmetric around 0"
    ends = [float((interval.get(end) or "").rstrip("%")) for end in ("x1", "x2")]
    assert 50 < ends[0] < float((rows[0].findall("circle")[0].get("cx") or "").rstrip("%")) < ends[1] < 100
    assert "var(--good)" in (interval.get("style") or "") and "var(--card)" in ET.tostring(rows[1], "unicode")
    assert [text.text for text in rows[-1].iter("text")] == ["-10", "0", "+10"]
    assert "nan" not in forest([Effect("flat", "", 0.0, 0.0, 0.0)], "nothing differs")
