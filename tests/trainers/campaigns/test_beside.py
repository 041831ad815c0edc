"""Figures beside the compared one: each with its own test, in no verdict, and gone where no run has them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.trainers.campaigns.fake_campaign import make_campaign
from tests.trainers.stub_run import measured
from trainers.campaigns.beside import FRESH
from trainers.campaigns.page import write_page
from trainers.campaigns.plan import Campaign
from trainers.campaigns.results import make_report
from trainers.run.summary import Stopped

PASSES = {"grpo": [[80, 120 + n] for n in range(4)], "better": [[80, 122 + n] for n in range(4)]}


def add(campaign: Campaign, other: Callable[[str, int], int], fresh: Callable[[str, int], int] | None = None) -> None:
    """Give each run a second set, of 50, and a confirmation, of 100."""
    for condition, seed in campaign.names():
        place = campaign.folder / condition / f"seed_{seed}"
        points = [json.loads(line) for line in (place / "held_out.jsonl").read_text().splitlines()]
        for point in points:
            point["settings"]["other_sampled"] = measured(other(condition, seed), 50)
        (place / "held_out.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
        if fresh is not None:
            side = {"sampled": measured(fresh(condition, seed), 100)}
            content = {"source": "fresh", "step": 10, "before": side, "after": side, "why": ""}
            (place / "confirmation.json").write_text(json.dumps(content))


def test_each_figure_has_its_test_and_none_is_in_a_verdict(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, PASSES)
    alone = make_report(campaign)
    add(
        campaign,
        lambda condition, seed: 30 + seed % 2 if condition == "grpo" else 20 + seed,
        lambda condition, seed: 60 + seed,
    )
    report = make_report(campaign)
    assert report.judged == alone.judged
    found = {(one.name, one.condition): one for one in report.beside}
    assert list(found) == [(n, c) for n in ("other_sampled", FRESH) for c in ("grpo", "better")]
    worse = found["other_sampled", "better"]
    assert (worse.passed, worse.graded, worse.seeds, worse.pairs) == (86, 200, (0, 1, 2, 3), 4)
    assert worse.test is not None and worse.test.difference == pytest.approx(-0.18) and worse.test.p_value < 0.01
    assert found["other_sampled", "grpo"].test is None
    equal = found[FRESH, "better"]
    assert equal.test is not None and equal.test.difference == 0 and equal.test.p_value == 1
    text = "\n".join(report.lines())
    assert (
        "they decide nothing" in text
        and "other_sampled, better: 86/200 = 43.0 % over 4 seeds, difference -18.0 [" in text
    )
    page = write_page(report).read_text()
    assert "Beside the verdicts" in page and "86/200" in page
    assert json.loads((campaign.folder / "report.json").read_text())["beside"][1]["passed"] == 86


def test_the_compared_figure_is_not_among_them(tmp_path: Path) -> None:
    report = make_report(make_campaign(tmp_path, PASSES))
    assert report.beside == () and "beside the verdicts" not in "\n".join(report.lines())
    assert "Beside the verdicts" not in write_page(report).read_text()


def test_where_the_fresh_tasks_decide_the_last_measurement_is_beside(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, PASSES, top='figure = "confirmed"\n')
    add(campaign, lambda condition, seed: 10, lambda condition, seed: 50 + seed)
    names = {one.name for one in make_report(campaign).beside}
    assert names == {"sampled", "other_sampled"}


def test_runs_that_are_in_no_mean_are_not_in_these(tmp_path: Path) -> None:
    campaign = make_campaign(tmp_path, PASSES, ended={("better", 3): Stopped.GUARD})
    add(campaign, lambda condition, seed: 10 + seed * (condition == "grpo"))
    (grpo, better) = make_report(campaign).beside
    assert (grpo.seeds, better.seeds, better.pairs) == ((0, 1, 2, 3), (0, 1, 2), 3)


def test_one_pair_has_no_test_and_equal_differences_no_p(tmp_path: Path) -> None:
    few = make_campaign(tmp_path, {name: runs[:1] for name, runs in PASSES.items()})
    add(few, lambda condition, seed: 10)
    assert all(one.test is None and one.p == "-" == one.difference for one in make_report(few).beside)
    (tmp_path / "all").mkdir()
    shifted = make_campaign(tmp_path / "all", PASSES)
    add(shifted, lambda condition, seed: 10 + seed + 5 * (condition == "better"))
    assert [one.p for one in make_report(shifted).beside] == ["-", "-"]
