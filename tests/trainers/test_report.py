from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from agents.view.collect import Collection
from agents.view.pack import Tokenizers
from agents.view.wanted import NONE, Wanted
from tests.agents.view.browser import CHROMIUM, browser
from tests.trainers.fake_run import HOSTILE, make_run
from tests.trainers.reporting.browser import Page
from trainers.measure import Confirmation
from trainers.report import main, write_report
from trainers.reporting.episodes import sample_episodes, shown
from trainers.reporting.folder import read_run
from trainers.reporting.page import headline, view_run
from trainers.reporting.run_charts import smooth


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "fake", steps=20, n_held_out=24)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("runs") / "hostile", steps=10, n_held_out=8, text=HOSTILE)


def test_page_is_self_contained_and_complete(run: Path) -> None:
    path = write_report([run])
    assert path == run / "report.html"
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert [link for link in page.links if not link.startswith("data:")] == []
    assert not re.search(r"https?://", text) and "@import" not in text and "url(" not in text
    assert "default-src 'none'" in text
    for wanted in (
        "Pass rate: held-out and pool",
        "Turns per episode",
        "How episodes end",
        "Pass rate by task family",
        "Assertions that hold, by kind",
        "Turn resampling",
        "Where the time went",
        "GPU busy 40.0 %",
        "peak memory 3.00 GiB in tensors, 4.00 GiB reserved (a GPU); estimated 5.00 GiB",
        "Episodes, first and last",
        "chosen: step",
        "collapse: mean turns fell",
        "greedy, max_tokens=64",
    ):
        assert wanted in text, wanted
    assert page.tags.count("svg") >= 9


def test_page_shows_the_figures_of_the_run(run: Path) -> None:
    text = write_report([run]).read_text(encoding="utf-8")
    data = read_run(run)
    assert data.baseline is not None and data.best is not None
    for point in (data.baseline, data.best):
        for m in point.settings.values():
            assert f"{m.passed}/{m.graded} = " in text


def test_hostile_text_stays_text(hostile: Path) -> None:
    text = write_report([hostile]).read_text(encoding="utf-8")
    page = Page(text)
    assert page.tags.count("script") == 1 and "img" not in page.tags and page.handlers == []
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert not set(text) & set("\x00\x1b\u202e\u202c")


def test_shown_makes_control_characters_visible_and_cuts() -> None:
    assert shown("a\x1b[31m\tb\n\u202ec\x00\ud800é漢") == "a<U+001B>[31m\tb\n<U+202E>c<U+0000><U+D800>é漢"
    long = shown("x" * 10_000)
    assert len(long) < 4200 and "6000 characters left out" in long


def test_samples_are_the_same_task_first_and_last(run: Path) -> None:
    samples = sample_episodes(read_run(run))
    assert 1 <= len(samples) <= 3
    assert samples[0].change == "failed to passed"
    for sample in samples:
        first, last = sample.episodes
        assert "step 0" in first.when and "step 0" not in last.when
        assert sample.intent.startswith("Append the line")


def test_a_run_without_held_out_or_summary_still_has_a_page(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    shutil.copytree(run, folder)
    for name in ("summary.json", "held_out.jsonl", "tasks.jsonl"):
        (folder / name).unlink()
    shutil.rmtree(folder / "held_out")
    (folder / "held_out").mkdir()
    view = view_run(read_run(folder))
    assert view.time is None and view.state == "unfinished"
    assert any("no summary.json" in note for note in view.notes)
    assert view.samples and "pool, step" in view.samples[0].episodes[0].when
    assert "nothing was measured" in write_report([folder]).read_text(encoding="utf-8")


def test_several_runs_are_laid_over_one_another(run: Path, hostile: Path, tmp_path: Path) -> None:
    text = write_report([run, hostile], tmp_path / "c.html").read_text(encoding="utf-8")
    assert "2 runs compared" in text and "Held-out pass rate, greedy" in text
    assert "B minus A is" in text and "<td>max_steps</td><td>20</td><td>10</td>" in text and "p, Holm" in text
    assert text.count('<details class="run">') == 2


@pytest.mark.parametrize("recorded", [True, False])
def test_what_was_excluded_lost_or_broke_stands_on_the_page(run: Path, tmp_path: Path, recorded: bool) -> None:
    folder = tmp_path / "lossy"
    shutil.copytree(run, folder)
    lines = [json.loads(line) for line in (folder / "held_out.jsonl").read_text().splitlines()]
    for line in lines:
        arm = line["settings"]["sampled"]
        arm["losses"] = {"task-a": {"kill -9 <1>": 2, "": 1}} if line["step"] == 0 else {}
        arm["broke"] = {"script": 3}
        if line["best"]:
            arm["infrastructure"], arm["graded"], arm["errors"] = 2, arm["graded"] - 2, {"SandboxError: gone": 2}
    (folder / "held_out.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    episodes = (folder / "trajectories" / "step_000001.jsonl").read_text().splitlines()
    first = json.loads(episodes[0])
    first["notes"] = {"losses": [{"turn": 1, "command": "rm -r /", "end": "replayed", "error": "gone"}]}
    (folder / "trajectories" / "step_000001.jsonl").write_text("\n".join([json.dumps(first), *episodes[1:]]) + "\n")
    outcomes = [json.loads(line) for line in (folder / "outcomes.jsonl").read_text().splitlines()]
    assert view_run(read_run(folder)).losses[0][0] != "pool", "they stand in outcomes.jsonl"
    for line in outcomes:
        line["losses"] = {first["task_id"]: {"rm -r /": 1}} if (line["step"], line["arm"]) == (1, "pool") else {}
    if recorded:
        (folder / "outcomes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in outcomes))
    else:  # as a run of release 0.6
        (folder / "outcomes.jsonl").unlink()
    view = view_run(read_run(folder))
    where = "held-out, sampled, step 0"
    assert view.losses == [
        ("pool", first["task_id"], "rm -r /", 1),
        (where, "task-a", "kill -9 <1>", 2),
        (where, "task-a", "", 1),
    ]
    (card,) = [card for card in view.cards if card.name == "excluded, sampled"]
    assert (card.before, card.after) == ("2", "2") and card.detail == "of 24; script broke (fails) 3, SandboxError 2"
    text = write_report([folder]).read_text(encoding="utf-8")
    assert "Sandboxes that were lost" in text and "kill -9 &lt;1&gt;" in text and ", 2 excluded: " in text
    assert "Sandboxes that were lost" not in write_report([run]).read_text(encoding="utf-8")


def test_smoothing_never_looks_ahead() -> None:
    assert smooth([(1, 1.0), (2, 3.0), (3, 5.0)], width=2) == [(1, 1.0), (2, 2.0), (3, 4.0)]


def test_command_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(run), "-o", str(tmp_path / "deep" / "page.html")]) == 0
    assert (tmp_path / "deep" / "page.html").exists()
    assert capsys.readouterr().out.strip() == str(tmp_path / "deep" / "page.html")
    assert main([str(tmp_path / "nothing")]) == 2
    assert "no such run folder" in capsys.readouterr().err


SMALLEST_LETTERS = """Math.min(...[...document.querySelectorAll("svg text")].map((text) => {
  const svg = text.ownerSVGElement, box = svg.viewBox.baseVal;
  const scale = box && box.width ? svg.getBoundingClientRect().width / box.width : 1;
  return scale ? scale * parseFloat(getComputedStyle(text).fontSize) : 99;
}))"""
EMPTY_CELLS = """[...document.querySelectorAll("div.grid, div.cards")].filter((grid) => grid.offsetParent &&
  grid.lastElementChild.getBoundingClientRect().right < grid.getBoundingClientRect().right - 2).length"""


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_a_browser_shows_it_on_a_desk_and_on_a_phone(run: Path, hostile: Path, tmp_path: Path) -> None:
    pages = [write_report([run]), write_report([hostile]), write_report([run, hostile], tmp_path / "both.html")]
    with browser(tmp_path) as window:
        for page in pages:
            for width in (1280, 390):
                window.open(page.as_uri(), width, ready="document.readyState === 'complete'")
                window.run("document.querySelectorAll('details').forEach((one) => one.open = true)")
                where = f"{page.name} at {width}"
                assert window.run("document.documentElement.scrollWidth") <= width, where
                assert window.run(SMALLEST_LETTERS) >= 11, where
                assert window.run(EMPTY_CELLS) == 0, where
        assert window.console == []
        assert set(window.requests) <= {page.as_uri() for page in pages}


def test_commands_are_shown_as_commands(run: Path) -> None:
    text = write_report([run]).read_text(encoding="utf-8")
    assert '<pre class="command">echo &#39;report&#39; &gt;&gt; note.txt</pre>' in text and "```" not in text
    assert "with <code>python -m trainers.evaluate</code> before" in text


def test_the_confirmation_leads_the_page(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "confirmed"
    shutil.copytree(run, folder)
    without = view_run(read_run(folder))
    assert without.cards[0].name == "held-out pass, sampled" and "`python -m trainers.evaluate` before" in without.lead
    data = read_run(folder)
    assert data.baseline is not None and data.best is not None
    found = Confirmation("24 fresh tasks", data.best.step, data.baseline.settings, data.best.settings)
    (folder / "confirmation.json").write_text(json.dumps(found.to_json()))
    view = view_run(read_run(folder))
    assert [card.name for card in view.cards[:2]] == [
        "confirmed pass, sampled (24 fresh tasks)",
        "confirmed pass, greedy (24 fresh tasks)",
    ]
    assert "paired p" in view.cards[0].detail and "points [" in view.cards[0].detail
    assert "T=1, max_tokens=64" in view.cards[0].detail
    assert "held-out figure leans high; the confirmed one, on 24 fresh tasks, does not" in view.lead
    assert headline([read_run(folder)]).startswith("Confirmed pass: ")
    text = write_report([folder]).read_text(encoding="utf-8")
    assert text.index("confirmed pass, sampled") < text.index("held-out pass, sampled")
    (folder / "confirmation.json").write_text(json.dumps(Confirmation(why="confirm=0").to_json()))
    none = view_run(read_run(folder))
    assert (none.cards[0].name, none.cards[0].after, none.cards[0].detail) == ("confirmed pass", "none", "confirm=0")
    assert none.lead.endswith("(not confirmed: confirm=0)") and headline([read_run(folder)]).startswith("Held-out pass")


def test_the_report_leads_to_all_episodes(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "looked at"
    shutil.copytree(run, folder)
    assert f"python -m agents view {folder} --open" in write_report([folder]).read_text(encoding="utf-8")
    page = folder / "episodes.html"
    page.write_text("")
    text = write_report([folder]).read_text(encoding="utf-8")
    (task, *_) = [sample.task for sample in view_run(read_run(folder)).samples]
    assert f'<a href="episodes.html#task={task}">' in text and "python -m agents view" not in text
    least = view_run(read_run(folder)).tasks[0].tasks[0].task
    assert f'<a href="episodes.html#task={least}&amp;pass=failed">' in text
    assert '<a href="episodes.html#family=append&amp;arm=held-out+sampled">append</a>' in text
    assert '<a href="episodes.html#failed=file_exists&amp;arm=held-out+sampled">file_exists</a>' in text
    elsewhere = write_report([folder], tmp_path / "report.html").read_text(encoding="utf-8")
    assert f'<a href="{page.as_uri()}#task={task}">' in elsewhere


def test_the_browser_of_episodes_knows_where_a_runs_files_come_from(run: Path) -> None:
    parts = list(Collection([run], Tokenizers(), Wanted(NONE)).refresh())
    folder = read_run(run)
    assert {part.step for part in parts if part.arm == "training"} == set(folder.training_steps()) != set()
    held_out = {(point.step, f"held-out {name}") for point in folder.held_out for name in point.settings}
    assert {(part.step, part.arm) for part in parts if part.arm.startswith("held-out")} <= held_out
    assert all(part.arm for part in parts)
