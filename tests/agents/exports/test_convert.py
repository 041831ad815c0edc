"""What `convert` writes for the tools of others: every format, and that those tools read it."""

from __future__ import annotations

import functools
import http.server
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.__main__ import main
from agents.exports.convert import TARGETS
from agents.exports.inspect_log import CREATED
from agents.trajectory import Trajectory
from envs.episode import StopReason
from tests.agents.view.browser import CHROMIUM, browser
from tests.agents.view.made import check, command, episode, failed, turn, write

FOLDERS = sorted(name for name, target in TARGETS.items() if target.file_name)
FOREIGN = ["atif", "inspect", "jsonl"]
SEED = 2**62 + 1
HOSTILE = "<script>alert(1)</script></script> \x1b[31m \u202e half \ud83d"


def broken(task: str = "lost") -> Trajectory:
    """One that the machinery broke: no grade, no reward. What an assertion said before stays on record."""
    return episode(
        task,
        stop_reason=StopReason.INFRASTRUCTURE.value,
        passed=None,
        rate=None,
        reward=None,
        error="the sandbox was lost \ud83d",
        assertions=[check("file_equals:a", "error", "no answer")],
    )


def odd() -> list[Trajectory]:
    """A pass, a failure with all that a record can hold, a broken one, text from nowhere good, one without a grade, one
    without turns."""
    infinite = command(0, "ls")
    infinite.logprobs = [-float("inf"), *[-0.5] * (len(infinite.ids) - 1)]
    infinite.seed = SEED
    hostile = [turn(0, HOSTILE, observation=HOSTILE, action="malformed"), infinite]
    hostile[1].index, hostile[1].context_ids = 1, [257] * 3
    text = turn(0, "I know.", observation="")
    text.ids, text.logprobs, text.entropies, text.forced = [], None, None, []
    foreign = episode("text", turns=[text], source="fieldnotes", passed=None, rate=None, reward=None)
    foreign.prompt_ids = []
    return [
        episode(),
        failed(),
        broken(),
        episode(HOSTILE, turns=hostile, passed=False, rate=0.0, reward=0.0, notes={"wide": [2**60, float("nan")]}),
        foreign,
        episode("nothing", turns=[]),
    ]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The odd episodes in each foreign format."""
    folder = tmp_path_factory.mktemp("exports")
    source = write(folder / "odd.jsonl", odd())
    for name in FOREIGN:
        assert main(["convert", str(source), str(folder / name), "--to", name, "--tasks", "none"]) == 0
    return {name: folder / name for name in FOREIGN} | {"source": source}


def texts_of(path: Path) -> Iterator[str]:
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        yield from file.read_text(encoding="ascii").splitlines()


def records(path: Path) -> list[Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    return [json.loads(text, parse_constant=refuse) for text in texts_of(path)]


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_equal_episodes_give_equal_bytes_and_nothing_is_overwritten(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write(tmp_path / "mine.jsonl", [episode(), failed()])
    for out in ("a", "b"):
        assert main(["convert", str(source), str(tmp_path / out), "--to", name, "--tasks", "none"]) == 0
    said = capsys.readouterr().out
    assert "2 episodes written" in said and ("left out" in said) == bool(TARGETS[name].lost)
    first, again = tmp_path / "a", tmp_path / "b"
    assert first.is_dir() == (name in FOLDERS)
    assert list(texts_of(first)) == list(texts_of(again))
    if name in FOLDERS:
        assert [path.name for path in sorted(first.iterdir())] == [path.name for path in sorted(again.iterdir())]
    assert main(["convert", str(source), str(first), "--to", name]) == 2
    assert "is already there" in capsys.readouterr().err


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder_that_cannot_be_filled_is_not_left_behind(name: str, tmp_path: Path) -> None:
    source = write(tmp_path / "mine.jsonl", [episode()] * 2)
    source.write_text(source.read_text() + "{}\n")
    assert main(["convert", str(source), str(tmp_path / "out"), "--to", name, "--tasks", "none"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["mine.jsonl"]


@pytest.mark.parametrize("name", FOREIGN)
def test_no_reader_of_json_loses_what_is_in_a_record(name: str, made: dict[str, Path]) -> None:
    whole = "\n".join(texts_of(made[name]))
    seeds = [f'"{2**62}"', f'"{SEED}"', f'"{2**60}"']
    assert all(seed in whole for seed in seeds), "wide numbers are text"
    assert "\\ud83d <" not in whole and "half \\\\ud83d" in whole, "half a pair is no UTF-8"

    def wide(value: Any) -> bool:
        if isinstance(value, dict):
            return any(map(wide, value.values()))
        if isinstance(value, list):
            return any(map(wide, value))
        return isinstance(value, int) and abs(value) >= 2**53

    assert not wide(records(made[name]))


def test_lines_of_messages(made: dict[str, Path]) -> None:
    lines = records(made["jsonl"])
    assert [line["passed"] for line in lines] == [True, False, None, False, None, True]
    roles = [[message["role"] for message in line["messages"]] for line in lines]
    assert roles[0] == ["user", "assistant", "user", "assistant", "user"]
    assert roles[4] == ["user", "assistant"] and roles[5] == ["user"]
    assert lines[0]["messages"][0]["content"] == "\x01\x02\x03", "the prompt as its tokenizer has it"
    assert lines[1]["turns"][1]["command"] == "cat a.txt" and lines[1]["turns"][1]["rejected_candidates"] == 1
    assert lines[2]["error"] and lines[2]["reward"] is None


def test_a_log_has_no_score_where_there_is_no_grade(made: dict[str, Path]) -> None:
    (log,) = records(made["inspect"])
    samples = log["samples"]
    assert [sample["scores"].get("passed", {}).get("value") for sample in samples] == ["C", "I", None, "I", None, "C"]
    assert samples[2]["scores"] == {} and "sandbox was lost" in samples[2]["error"]["message"]
    assert [("error" in sample) for sample in samples] == [False, False, True, False, False, False]
    by_name = {score["name"]: score for score in log["results"]["scores"]}
    assert by_name["passed"]["metrics"]["accuracy"]["value"] == 0.5 and by_name["passed"]["unscored_samples"] == 2
    assert by_name["rate"]["metrics"]["mean"]["value"] == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert log["results"]["total_samples"] == 6 and log["results"]["completed_samples"] == 5
    assert "file_equals:out.csv" in samples[1]["scores"]["passed"]["explanation"]
    assert [sample["epoch"] for sample in samples[:2]] == [1, 2], "two attempts at one task"
    assert log["eval"]["dataset"]["samples"] * log["eval"]["config"]["epochs"] == 6


def test_even_groups_are_samples_times_epochs(tmp_path: Path) -> None:
    source = write(tmp_path / "mine.jsonl", [episode(task, n) for task in "ab" for n in range(3)])
    assert main(["convert", str(source), str(tmp_path / "out"), "--to", "inspect", "--tasks", "none"]) == 0
    (log,) = records(tmp_path / "out")
    assert (log["eval"]["dataset"]["samples"], log["eval"]["config"]["epochs"]) == (2, 3)


def test_ids_travel_with_a_trajectory(made: dict[str, Path]) -> None:
    found, given = records(made["atif"]), odd()
    for one, wanted in zip(found, given, strict=True):
        steps = one["steps"][1:]
        assert [step.get("metrics", {}).get("completion_token_ids", []) for step in steps] == [
            t.ids for t in wanted.turns
        ]
        if wanted.prompt_ids:
            assert [step["metrics"]["prompt_token_ids"] for step in steps] == wanted.prompts()
    assert found[1]["steps"][2]["metrics"]["extra"]["forced"][:4] == [True, True, True, False]
    assert "logprobs" not in found[3]["steps"][2]["metrics"] and "logprobs" in found[3]["steps"][1]["metrics"]
    assert found[2]["extra"]["error"] and "passed" not in found[2]["extra"] and "reward" not in found[2]["extra"]


def test_model_and_intent_come_from_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = tmp_path / "mine.yaml"
    tasks.write_text("id: t\nintent: Write a.\nassertions: [{kind: file_exists, path: a}]\n")
    from tasks.sources import load_tasks

    (task,) = load_tasks(str(tasks))
    (tmp_path / "config.yaml").write_text(f"tasks: {tasks}\nmodel: some/model\n")
    (tmp_path / "environment.json").write_text("{}")
    one, changed = episode("t", task_hash=task.content_hash), episode("t", 1)
    for turns in (one.turns, changed.turns):
        turns[0].ids[0] = 0  # no tokenizer at hand makes the reply of it
    source = write(tmp_path / "episodes_greedy.jsonl", [one, changed])
    assert main(["convert", str(source), str(tmp_path / "out"), "--to", "inspect"]) == 0
    (log,) = records(tmp_path / "out")
    assert log["eval"]["model"] == "some/model" and log["eval"]["task"] == "episodes_greedy"
    assert [sample["input"] for sample in log["samples"]] == [
        "Write a.",
        "(the text of the prompt is not known; task t)",
    ]
    assert "of 2 episodes the prompt is not known as text" in capsys.readouterr().err


# -- The tools themselves ----------------------------------------------------------------------------------------------

READS = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log
(info,) = list_eval_logs(sys.argv[1])
assert read_eval_log(info, header_only=True).samples is None
log = read_eval_log(info)
print(json.dumps({
    "status": log.status, "created": log.eval.created, "total": log.results.total_samples,
    "messages": [len(sample.messages) for sample in log.samples],
    "seeds": [sample.metadata["seed"] for sample in log.samples],
    "errors": [sample.error is not None for sample in log.samples],
    "scores": [{k: s.as_str() if k == "passed" else s.as_float() for k, s in sample.scores.items()}
               for sample in log.samples],
    "means": {s.name: {m.name: m.value for m in s.metrics.values()} for s in log.results.scores},
}))
"""
VALIDATES = """
import json, sys
from pathlib import Path
from harbor.models.trajectories.trajectory import Trajectory
found = [Trajectory.model_validate(json.loads(path.read_text())) for path in sorted(Path(sys.argv[1]).iterdir())]
print(json.dumps([[len(one.steps), one.final_metrics.total_steps, one.extra["seed"]] for one in found]))
"""


def python_with(package: str) -> str:
    variable = f"TURNGYM_TEST_{package.upper()}"
    python = os.environ.get(variable)
    if not python:
        pytest.skip(f"{variable} names no Python with {package}: .ci/peer {package} FOLDER makes one")
    return python


def answer(python: str, script: str, path: Path) -> Any:
    done = subprocess.run([python, "-c", script, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_inspect_reads_the_log(made: dict[str, Path]) -> None:
    found, given = answer(python_with("inspect"), READS, made["inspect"]), odd()
    assert found["status"] == "success" and found["created"] == CREATED and found["total"] == len(given)
    assert found["messages"] == [
        1 + len(one.turns) + sum(bool(turn.observation) for turn in one.turns) for one in given
    ]
    assert found["seeds"] == [str(one.seed) for one in given]
    assert found["errors"] == [one.stop_reason == StopReason.INFRASTRUCTURE for one in given]
    verdicts = {True: "C", False: "I"}
    assert found["scores"] == [
        {"passed": verdicts[one.passed], "rate": one.rate, "reward": one.reward} if one.passed is not None else {}
        for one in given
    ]
    assert found["means"]["passed"] == {"accuracy": 0.5} and found["means"]["reward"]["mean"] == 2.25 / 4


def test_harbor_validates_the_trajectories(made: dict[str, Path]) -> None:
    found = answer(python_with("harbor"), VALIDATES, made["atif"])
    assert found == [[1 + len(one.turns), 1 + len(one.turns), str(one.seed)] for one in odd()]


ASKED_FOR = ("eval-set.json", "flow.yaml")
"""Files that the viewer looks for beside any log, and that a log by itself does not have."""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_the_viewer_shows_the_same_counts_without_an_error(made: dict[str, Path], tmp_path: Path) -> None:
    python = python_with("inspect")
    bundle = [str(Path(python).parent / "inspect"), "view", "bundle", "--log-dir", str(made["inspect"])]
    subprocess.run([*bundle, "--output-dir", str(tmp_path / "page")], check=True, capture_output=True)
    handler = functools.partial(Quiet, directory=str(tmp_path / "page"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, browser(tmp_path) as page:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            page.open(f"http://127.0.0.1:{server.server_port}/", ready="document.body?.innerText.includes('6 rows')")
            seen = page.run("document.body.innerText")
            assert "passed (4/6)" in seen and "1 of 6 samples" in seen and "6 / " not in seen
            (name,) = (path.name for path in made["inspect"].iterdir())
            page.run(f"location.hash = {json.dumps(f'#/logs/{name}/samples/sample/merge/2')}")
            page.wait("document.body.innerText.includes('cat: a.txt: no such file')")
            errors = [line for line in page.console if not any(f"/logs/{file}" in line for file in ASKED_FOR)]
            assert errors == []
        finally:
            server.shutdown()


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, *args: Any) -> None:
        pass
