"""An evaluation that was stopped goes on, and leaves what an uninterrupted one leaves."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.policies import opening
from agents.policies.scripted import OraclePolicy
from agents.policy import Completion, Request, Sampling
from sandboxes import SandboxUnavailable, open_sandbox
from trainers.evaluate import main

TASKS = ["--model", "oracle", "--tasks", "generated:quickstart?n=6&seed=11", "--slots", "2", "--samples", "2"]
ARMS = ["--temperature", "1.0", "0.7"]
FIRST, SECOND = "episodes_T=1", "episodes_T=0.7"


class Deadly(OraclePolicy):
    """Ends its process in the middle of the second decode setting."""

    calls = 0

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        self.calls += sampling.temperature == 0.7
        if self.calls == 8:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().complete(requests, sampling)


def run(folder: Path, *more: str) -> int:
    return main([*TASKS, *ARMS, "--output_dir", str(folder), *more])


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `whole`, and a folder `killed` of the same evaluation, ended by SIGKILL."""
    try:
        open_sandbox("auto").close()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox works here: {error}")
    base = tmp_path_factory.mktemp("evaluations")
    child = os.fork()
    if child == 0:
        opening.POLICIES["oracle"] = replace(opening.POLICIES["oracle"], open=lambda *_: opening.Actor(Deadly()))
        os._exit(run(base / "killed"))
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert run(base / "whole") == 0
    return base


def copy(folder: Path, to: Path) -> Path:
    to.mkdir()
    for path in folder.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def without_clocks(folder: Path) -> Any:
    record = json.loads((folder / "evaluation.json").read_text())
    del record["date"]
    for timing in record["timing"].values():
        for name in [name for name in timing if name.endswith("seconds")]:
            del timing[name]
    return json.dumps(record)


def played(folder: Path, name: str) -> list[Any]:
    lines = (folder / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_killed_evaluation_resumed_gives_the_file_of_the_uninterrupted_one(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy(killed / "killed", tmp_path / "e")
    done = (folder / f"{FIRST}.jsonl").read_bytes()
    with open(folder / f"{SECOND}.partial.jsonl", "a") as file:
        file.write('{"task_id": "cut')
    kept = len(played(killed / "killed", f"{SECOND}.partial"))
    assert 0 < kept < 12
    assert main(["--output_dir", str(folder), "--resume"]) == 0
    out = capsys.readouterr().out
    assert "T=1: 12 of 12 episodes have a grade already, 0 to play" in out
    assert f"T=0.7: {kept} of 12 episodes have a grade already, {12 - kept} to play" in out
    assert without_clocks(folder) == without_clocks(killed / "whole")
    assert (folder / f"{FIRST}.jsonl").read_bytes() == done
    assert sorted(path.name for path in folder.iterdir()) == sorted(path.name for path in (killed / "whole").iterdir())


def test_what_the_machinery_lost_is_played_again(killed: Path, tmp_path: Path) -> None:
    folder = copy(killed / "whole", tmp_path / "e")
    episodes = played(folder, SECOND)
    episodes[3] |= {"stop_reason": "infrastructure", "reward": None, "passed": None, "rate": None, "assertions": []}
    (folder / f"{SECOND}.jsonl").write_text("".join(json.dumps(episode) + "\n" for episode in episodes))
    assert main(["--output_dir", str(folder), "--resume"]) == 0
    assert without_clocks(folder) == without_clocks(killed / "whole")
    assert played(folder, SECOND)[3]["passed"] is True


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--seed", "5"], "seed is 5, was 0"),
        (["--max_turns", "3", "--reward", "binary"], "max_turns is 3, was 0; reward is binary, was shaped"),
        (["--tasks", "generated:quickstart?n=4&seed=12"], "tasks is generated:quickstart?n=4&seed=12, was generated:"),
        (["--model", "noop"], "model is noop, was oracle"),
    ],
)
def test_other_settings_are_refused_with_what_differs(
    more: list[str], message: str, killed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in (killed / "killed").iterdir()}
    assert main(["--output_dir", str(killed / "killed"), "--resume", *more]) == 2
    assert message in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in (killed / "killed").iterdir()} == before


def test_another_image_is_told_and_gone_on_with(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy(killed / "whole", tmp_path / "e")
    environment = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps(environment | {"images": {"x:1": ["sha256:aa"]}}))
    monkeypatch.setattr(
        "trainers.evaluation.check.refuse_missing_images", lambda tasks, sandbox: {"x:1": ["sha256:bb"]}
    )
    assert main(["--output_dir", str(folder), "--resume"]) == 0
    assert "warning: the image x:1 is sha256:bb, and was sha256:aa: commands may" in capsys.readouterr().out


def test_other_content_and_other_episodes_are_refused(
    killed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = copy(killed / "killed", tmp_path / "e")
    record = json.loads((folder / "evaluation.json").read_text())
    name = next(iter(record["tasks"]))
    (folder / "evaluation.json").write_text(json.dumps(record | {"tasks": record["tasks"] | {name: "other"}}))
    assert main(["--output_dir", str(folder), "--resume"]) == 2
    assert f"1 task ({name}) other than before" in capsys.readouterr().err
    (folder / "evaluation.json").write_text(json.dumps(record))
    episodes = played(folder, FIRST)
    episodes[0]["seed"] += 1
    (folder / f"{FIRST}.jsonl").write_text("".join(json.dumps(episode) + "\n" for episode in episodes))
    assert main(["--output_dir", str(folder), "--resume"]) == 2
    assert f"attempt 0 at task {name} is none that this evaluation plays" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--resume"], "name that folder"),
        (["--resume", "--output_dir", "nothing"], "holds no evaluation to go on with"),
    ],
)
def test_resume_without_an_evaluation_is_refused(
    argv: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(argv) == 2
    assert message in capsys.readouterr().err
