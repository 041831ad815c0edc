from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.trainers.fake_run import HOSTILE, make_run
from trainers.errors import RunFolderError
from trainers.guards import GuardName
from trainers.report import write_report
from trainers.reporting.folder import RunFolder, read_run
from trainers.reporting.guard_panel import guard_views


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "fake", steps=20, n_held_out=4, text=HOSTILE)


def test_every_guard_is_there_those_that_spoke_first(run: Path) -> None:
    views = guard_views(read_run(run))
    assert sorted(view.name for view in views) == sorted(GuardName)
    first = views[0]
    assert (first.name, first.state) == ("signal_meter", "note")
    assert [(step, severity) for step, severity, _ in first.said] == [(10, "note")]
    lines = {gauge.name: gauge for view in views for gauge in view.gauges}
    entropy = lines["entropy per token (nats)"]
    values = [json.loads(line)["sampling/entropy"] for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert entropy.now.startswith(f"{sum(values[-4:]) / 4:.3g} (") and entropy.now.endswith("fires below 0.02")
    signal = lines["groups with signal, last 10 steps"].line
    assert signal.count('class="fired"') == 1 and "M47.4 0V30" in signal, "at step 10 of 1 to 20"
    assert 'class="limit"' in signal and "<script" not in signal


def test_guards_that_are_off_are_said_to_be_off(run: Path) -> None:
    data = read_run(run)
    data.config["guards"], data.findings = "none,seeds", []
    assert {view.state for view in guard_views(data) if view.name != "seeds"} == {"off"}
    assert [view.state for view in guard_views(data) if view.name == "seeds"] == ["silent"]
    data.config["guards"] = "none,a_later_one"
    assert {view.state for view in guard_views(data)} == {"silent"} and "`a_later_one` is no guard" in data.notes[-1]


def test_a_run_without_figures_says_so(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "old", steps=10, n_held_out=4)
    assert "recorded no such figures" not in write_report([folder]).read_text(encoding="utf-8")
    (folder / "guard_figures.jsonl").unlink()
    assert "recorded no such figures" in write_report([folder]).read_text(encoding="utf-8")
    assert all(not view.gauges for view in guard_views(RunFolder(folder)))


def test_damaged_figures_are_named_and_what_is_no_number_is_left_out(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", steps=10, n_held_out=4)
    path = folder / "guard_figures.jsonl"
    path.write_text('{"step": 1, "figures": [["update_health", "kl", null, ">", 10.0]]}\n')
    assert read_run(folder).gauges == {}
    path.write_text('{"step": 1, "figures": [["update_health", "kl", 1.0, "near", 10.0]]}\n')
    with pytest.raises(RunFolderError, match=r"guard_figures\.jsonl: not figures of guards"):
        read_run(folder)
