"""The report of a campaign: planted differences are found, equal ones are not, and the page says what the text says."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from tests.trainers.campaigns.fake_campaign import GRADED, make_campaign
from tests.trainers.reporting.browser import CHROMIUM, Page, opens_without_messages
from tests.trainers.test_rank import save_adapter
from trainers.campaign import main
from trainers.campaigns.page import write_page
from trainers.campaigns.plan import Campaign
from trainers.campaigns.results import Report, make_report
from trainers.run.summary import Stopped

START = (80, 95, 108, 118)
NOISE = (3, -4, 1, -2, 5, 0)
"""Of each seed: passes that it is above the others, in every condition."""
AGAIN = (1, 0, -2, 2, 0, -1)
"""Of each seed in one condition alone."""


def reported(campaign: Campaign) -> Report:
    """The report, and its page written."""
    report = make_report(campaign)
    assert write_page(report) == campaign.folder / "report.html"
    return report


def runs(end: int, seeds: int = 6, wobble: int = 1) -> list[list[int]]:
    """Passes of each seed: the same start, and about `end` at the last measurement."""
    own = [wobble * value for value in AGAIN]
    return [[*(count + NOISE[n] for count in START), end + NOISE[n] + own[n]] for n in range(seeds)]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """A better condition, a worse one with a run that a guard stopped, and the baseline again."""
    passes = {"grpo": runs(126, wobble=0), "better": runs(146), "worse": runs(100), "again": runs(127, wobble=3)}
    return reported(make_campaign(tmp_path_factory.mktemp("planted"), passes, ended={("worse", 5): Stopped.GUARD}))


@pytest.fixture(scope="module")
def page(report: Report) -> str:
    return (report.campaign.folder / "report.html").read_text(encoding="utf-8")


def test_what_was_planted_is_found_and_the_same_thing_is_not(report: Report) -> None:
    said = {verdict.candidate: (verdict.recommendation, verdict.status) for verdict in report.judged}
    assert said == {
        "better": ("statistically_significant_improvement", "CONFIRMED"),
        "worse": ("significant_degradation", "FAILED"),
        "again": ("insufficient_statistical_evidence", "INCONCLUSIVE"),
    }


@pytest.mark.parametrize("wobble", [0, 1, -2])
def test_three_seeds_of_the_same_thing_are_no_evidence(tmp_path: Path, wobble: int) -> None:
    campaign = make_campaign(tmp_path, {"grpo": runs(126, 3, 0), "grpo_again": runs(126, 3, wobble)})
    report = reported(campaign)
    (verdict,) = report.judged
    assert verdict.recommendation == "insufficient_statistical_evidence" and verdict.status == "INCONCLUSIVE"
    text = (campaign.folder / "report.html").read_text(encoding="utf-8")
    assert "grpo_again against grpo: insufficient statistical evidence (INCONCLUSIVE)" in text


def test_the_page_says_what_the_text_says_and_says_it_first(report: Report, page: str) -> None:
    body = unescape(page[page.index("<main>") :])
    lines = [line.strip() for verdict in report.judged for line in verdict.lines()]
    places = [body.index(line) for line in lines]
    assert places == sorted(places) and max(places) < body.index("<h2>Conditions</h2>")
    assert all(line in report.lines() for verdict in report.judged for line in verdict.lines())


def test_the_page_has_no_column_for_what_no_run_has(page: str) -> None:
    assert "rank that keeps" not in page and "Cosine of the gradient" not in page


def test_the_page_is_one_file_whose_links_are_the_runs(report: Report, page: str) -> None:
    links = [link for link in Page(page).links if not link.startswith("data:")]
    assert links == [f"{line.page}" for line in report.runs] and len(links) == 24
    assert all((report.campaign.folder / link).is_file() for link in links)
    assert not re.search(r"https?://", page) and "@import" not in page and "url(" not in page
    assert Page(page).handlers == [] and "default-src 'none'" in page


@pytest.mark.parametrize(
    "wanted",
    [
        "<td class=\"short\">63.2 % [61.5, 65.0]</td>",  # 126.5 of 200; the deviation over seeds is 3.27
        "worse, with runs cut short",
        "Difference of pass rates, points",
        "Held-out pass rate",
        "Pool pass rate",
        ">worse seed 5</td>",
        "stopped by a guard after 30 of 40 steps",
        "<td class=\"short\">122,500</td>",
        "temperature=1.0, max_turn_tokens=64",
        "held-out, sampled",
        "python -m trainers.campaign run ",
        "[conditions.again]",
        "machine: two cores",
    ],
)  # fmt: skip
def test_the_page_holds(wanted: str, page: str) -> None:
    assert wanted in page


def test_means_and_curves_are_of_the_runs_that_ended_as_planned(report: Report) -> None:
    figures = {figure.name: figure for figure in report.conditions}
    assert figures["worse"].seeds == (0, 1, 2, 3, 4) and figures["worse"].planned == 6
    better = figures["better"]
    last = [line.result.passed / GRADED for line in report.runs if line.result.condition == "better"]
    curve = better.curves["Held-out pass rate"]
    assert curve.steps == (0.0, 10.0, 20.0, 30.0, 40.0) and curve.runs == 6
    assert better.pass_rate is not None and better.pass_rate.interval is not None
    assert curve.mean[-1] == pytest.approx(sum(last) / 6) == better.pass_rate.mean
    assert curve.low[-1] == pytest.approx(better.pass_rate.interval.low)
    assert (better.tokens, better.steps, better.all_seconds) == (122_500, 40, 2415)


def test_the_data_hold_the_same_figures(report: Report) -> None:
    found = json.loads((report.campaign.folder / "report.json").read_text())
    assert found["lines"] == report.lines()
    assert [c["name"] for c in found["conditions"]] == ["grpo", "better", "worse", "again"]
    assert found["conditions"][0]["pass_rate"]["mean"] == report.conditions[0].pass_rate.mean  # type: ignore[union-attr]
    stopped = next(run for run in found["runs"] if (run["condition"], run["seed"]) == ("worse", 5))
    assert (stopped["state"], stopped["page"]) == ("guard", "worse/seed_5/report.html")


def test_a_campaign_of_many_conditions_repeats_no_colour(tmp_path: Path) -> None:
    passes = {f"arm_{n}": runs(120 + n, 2) for n in range(8)}
    campaign = make_campaign(tmp_path, passes)
    reported(campaign)
    text = (campaign.folder / "report.html").read_text(encoding="utf-8")
    charts = re.findall(r"<h3>Held-out pass rate</h3>.*?</ul>", text, re.DOTALL)
    colors = [re.findall(r"var\(--(c\d)\)", chart) for chart in charts]
    assert [len(set(found)) for found in colors] == [len(found) for found in colors] == [6, 3]
    assert all("arm_0 (2)" in chart for chart in charts), "the baseline is in each"


def test_a_condition_has_one_colour_in_all_charts(page: str) -> None:
    for title, there in (("Held-out pass rate", 4), ("Tied pairs of attempts", 1)):
        (legend,) = re.findall(rf"<h3>{title}</h3>.*?</ul>", page, re.DOTALL)
        assert 'var(--c2)"></i>better (6)' in legend and legend.count("<li>") == there


def test_one_seed_has_no_band_and_no_verdict(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, {"grpo": runs(126, 1), "other": runs(126, 1)})
    report = reported(campaign)
    assert report.conditions[0].curves["Held-out pass rate"].low == ()
    text = (campaign.folder / "report.html").read_text(encoding="utf-8")
    assert "missing: grpo: 1 seeds that ended as planned" in text and "Differences from grpo" not in text


def test_runs_with_adapters_say_which_rank_would_do(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, {"grpo": runs(126, 2), "lora": runs(126, 2)})
    save_adapter(campaign.folder / "lora/seed_1/best", scale=0.0)
    report = reported(campaign)
    text = (campaign.folder / "report.html").read_text(encoding="utf-8")
    assert [str(line.rank) for line in report.runs] == ["None", "None", "None", "2 of 8"]
    assert "rank that keeps 95 %" in text and text.count(">2 of 8</td>") == 1


def test_the_command_names_the_page(report: Report, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(report.campaign.path)]) == 0
    out = capsys.readouterr().out
    assert out.rstrip().endswith(str(report.campaign.folder / "report.html")) and "look 1 of 1" in out


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_chromium_opens_it_without_console_messages(report: Report, tmp_path: Path) -> None:
    opens_without_messages(report.campaign.folder / "report.html", tmp_path)
