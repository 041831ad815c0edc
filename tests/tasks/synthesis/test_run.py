"""`python -m tasks synthesise`: what is kept, what is refused and why, and that a killed one goes on."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import sandboxes
from tasks.__main__ import run as command
from tasks.endpoints import http
from tasks.endpoints.chat import Price, Reply
from tasks.model import TaskError
from tasks.sources import load_tasks
from tasks.synthesis import proving, run
from tasks.synthesis.draft import Order
from tasks.synthesis.proving import Judged, Prover
from tests.agents.policies.fake_endpoint import Answer, FakeEndpoint, endpoint, said
from tests.tasks.fake_sandbox import FakeSandbox
from tests.tasks.synthesis.drafts import HELD_OUT, POOL, Planned, bad, few, good, hostile, planned, script


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)


class Here(Prover):
    """Proves in this process, without a sandbox."""

    def judge(self, reply: Reply, order: Order) -> Judged:
        return proving.judge(reply, order, FakeSandbox)


def here(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sandboxes, "open_sandbox", lambda name: FakeSandbox())
    patch.setattr(proving, "Prover", Here)


@pytest.fixture
def without_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    """For drafts of ours that only work in their folder: in this process, without a sandbox."""
    here(monkeypatch)


def arguments(server: FakeEndpoint, folder: Path, n: int, *more: str) -> list[str]:
    common = ["--endpoint", server.url, "--model", "m", "--output", str(folder), "-n", str(n), "--jobs", "2"]
    return ["synthesise", *common, "--pool", POOL, "--held_out", HELD_OUT, *more]


def recorded(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / run.DRAFTS).read_text().splitlines()]


def check(folder: Path, plan: Sequence[Planned]) -> None:
    """Every draft became what it must, and the kept ones are files that load."""
    lines = recorded(folder)
    assert len(lines) == len(plan)
    got = {f"{line['index']} {item.name}": line["verdict"] for item, line in zip(plan, lines, strict=True)}
    assert got == {f"{number} {item.name}": item.verdict for number, item in enumerate(plan)}
    for item, line in zip(plan, lines, strict=True):
        assert item.detail in "\n".join(line["details"]), item.name
        assert line["prompt"].startswith("Write one new task")
        assert line["reply"] == item.reply["choices"][0]["message"]["content"]
    kept = {line["task_id"]: line["content_hash"] for line in lines if line["verdict"] == "kept"}
    loaded = load_tasks(str(folder))
    assert {one.id: one.content_hash for one in loaded} == kept
    assert {file.stem for file in folder.iterdir()} == {*kept, "synthesis", "drafts"}


def everything(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_every_bad_draft_is_refused_for_its_own_reason_and_no_good_one(
    tmp_path: Path, without_walls: None, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(64)
    assert {item.name for item in bad()} <= {item.name for item in plan}
    with endpoint(script(plan)) as server:
        assert command(arguments(server, tmp_path / "out", len(plan), "--price", "2", "8")) == 0
        assert len(server.asked) == len(plan)
    check(tmp_path / "out", plan)
    shown = capsys.readouterr().out
    assert re.search(r"^all +64 +16$", shown, re.MULTILINE) and re.search(r"^refused +twin +7$", shown, re.MULTILINE)
    assert "tokens: prompt 640, completion 192\n" in shown
    assert "cost: 0.002816, 0.000176 for each kept task" in shown


@pytest.mark.bubblewrap
def test_what_drafts_do_stays_in_a_sandbox_and_a_killed_synthesis_goes_on(tmp_path: Path) -> None:
    outside = tmp_path / "outside.txt"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        drafts = list(hostile(outside=outside, port=listening.getsockname()[1]))
        plan = [one for pair in zip(drafts, good(), strict=False) for one in pair]  # after each of them a sound one
        with endpoint(script(plan)) as server:
            words = ["-m", "tasks", *arguments(server, tmp_path / "out", len(plan), "--sandbox", "bubblewrap")]
            process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE)
            assert process.stdout is not None
            process.stdout.readline()  # the first draft is recorded
            process.kill()
            process.communicate()
            assert 1 <= len(recorded(tmp_path / "out")) < len(plan)
            assert subprocess.run([sys.executable, *words], check=False).returncode == 0
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert not outside.exists()
    check(tmp_path / "out", plan)


def test_what_a_killed_synthesis_was_writing_goes_with_the_next(tmp_path: Path) -> None:
    with run.opened(tmp_path, {"seed": 0}):
        pass
    (tmp_path / f"one.yaml.{'0' * 32}.tmp").write_text("id: o")
    with run.opened(tmp_path, {"seed": 0}):
        assert sorted(everything(tmp_path)) == ["drafts.jsonl", "synthesis.json"]


@pytest.mark.whole
@pytest.mark.bubblewrap
def test_of_200_drafts_every_bad_one_is_refused_for_its_own_reason(tmp_path: Path) -> None:
    plan = planned(200)
    with endpoint(script(plan)) as server:
        words = arguments(server, tmp_path / "out", len(plan), "--sandbox", "bubblewrap")
        assert subprocess.run([sys.executable, "-m", "tasks", *words], check=False).returncode == 0
    check(tmp_path / "out", plan)
    assert command(["check", str(tmp_path / "out"), "--sandbox", "bubblewrap"]) == 0


# -- Going on ---------------------------------------------------------------------------------------------------------

FEW = few()


class Stopped(Exception):
    """The process is no more."""


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a synthesis leaves that nothing stopped."""
    folder = tmp_path_factory.mktemp("straight") / "out"
    with pytest.MonkeyPatch.context() as patch, endpoint(script(FEW)) as server:
        patch.setenv("NO_PROXY", "127.0.0.1")
        here(patch)
        assert command(arguments(server, folder, len(FEW))) == 0
    check(folder, FEW)
    return everything(folder)


def alike(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    """Equal but for the port of the endpoint."""
    assert {name: text for name, text in one.items() if name != run.SETTINGS} == {
        name: text for name, text in other.items() if name != run.SETTINGS
    }


@pytest.mark.parametrize(
    ("after", "left"),
    [(0, "a line"), (5, "a line"), (0, "half a line"), (3, "half a line"), (5, "lines without files")],
)
def test_a_stopped_synthesis_goes_on_to_the_same_record(
    after: int,
    left: str,
    tmp_path: Path,
    straight: dict[str, bytes],
    without_walls: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add = run.Folder.add

    def stop(folder: run.Folder, draft: run.Draft) -> None:
        if draft.index == after:
            if left == "half a line":
                with (folder.path / run.DRAFTS).open("ab") as lines:
                    lines.write(b'{"index": 3, "task')
            raise Stopped
        add(folder, draft)

    folder = tmp_path / "out"
    with endpoint(script(FEW)) as server:
        with monkeypatch.context() as patch, pytest.raises(Stopped):
            patch.setattr(run.Folder, "add", stop)
            command(arguments(server, folder, len(FEW)))
        assert (folder / run.DRAFTS).read_bytes().count(b"\n") == after
        if left == "lines without files":
            for file in folder.glob("*.yaml"):
                file.unlink()
        assert command(arguments(server, folder, len(FEW))) == 0
    alike(everything(folder), straight)


def test_a_complete_synthesis_asks_nobody_and_more_drafts_go_on(
    tmp_path: Path, without_walls: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    with endpoint(script(FEW)) as server:
        assert command(arguments(server, folder, 2)) == 0
        first = capsys.readouterr().out
        assert command(arguments(server, folder, 2)) == 0
        assert capsys.readouterr().out == first[first.index("\n\n") + 1 :] and len(server.asked) == 2
        assert command(arguments(server, folder, 4)) == 0
        assert len(recorded(folder)) == len(server.asked) == 4
        (kept,) = folder.glob("*-0000.yaml")
        kept.write_text("# edited\n" + kept.read_text())
        assert command(arguments(server, folder, 4)) == 0
        assert kept.read_text().startswith("# edited")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--seed", "1"], "seed was 0 and is 1"),
        (["--temperature", "0.5"], "request was"),
        (["--pool", "library:dunning"], "pool was"),
        (["--skills", "SKILLS"], "skills was"),
    ],
)
def test_other_settings_are_refused(
    more: list[str], said: str, tmp_path: Path, without_walls: None, capsys: pytest.CaptureFixture[str]
) -> None:
    skills = tmp_path / "skills.yaml"
    skills.write_text("skills: [{name: one, what: only this}]\n")
    with endpoint(script(FEW)) as server:
        assert command(arguments(server, tmp_path / "out", 1)) == 0
        more = [str(skills) if word == "SKILLS" else word for word in more]
        assert command(arguments(server, tmp_path / "out", 1, *more)) == 2
        assert said in capsys.readouterr().err


def test_a_folder_of_something_else_or_of_another_process_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("words\n")
    with pytest.raises(TaskError, match="holds something"), run.opened(tmp_path / "mine", {}):
        pass
    with run.opened(tmp_path / "out", {"seed": 0}) as folder:
        assert folder.drafts == []
        with pytest.raises(TaskError, match="another process"), run.opened(tmp_path / "out", {"seed": 0}):
            pass
    (tmp_path / "out" / run.DRAFTS).write_text('{"index": 1}\n')
    with pytest.raises(TaskError, match=r"drafts.jsonl:1: is no line of a synthesis"):
        run.opened(tmp_path / "out", {"seed": 0}).__enter__()


# -- The endpoint -----------------------------------------------------------------------------------------------------


def test_an_endpoint_that_fails_ends_it_with_what_was_paid_for(
    tmp_path: Path, straight: dict[str, bytes], without_walls: None, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = script(FEW)
    alive = 3

    def failing(body: dict[str, Any]) -> Any:
        nonlocal alive
        alive -= 1
        return answer(body) if alive >= 0 else Answer(401, {"error": {"message": "who are you?"}})

    folder = tmp_path / "out"
    with endpoint(failing) as server:
        assert command(arguments(server, folder, len(FEW), "--concurrency", "1")) == 2
        shown = capsys.readouterr().err
        assert "who are you?" in shown and "3 drafts recorded; the same command goes on" in shown
        alive = 100
        assert command(arguments(server, folder, len(FEW))) == 0
    alike(everything(folder), straight)


def test_the_key_is_sent_and_stands_in_no_record(
    tmp_path: Path, without_walls: None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-123")
    with endpoint(lambda body: said("```yaml\nid: sk-secret-123\nintent: sk-secret-123\n```")) as server:
        assert command(arguments(server, tmp_path / "out", 2)) == 0
        assert server.headers[0]["Authorization"] == "Bearer sk-secret-123"
    assert not any(b"secret" in content for content in everything(tmp_path / "out").values())
    assert "secret" not in "".join(capfd.readouterr())


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--price", "1"], "two or three numbers"),
        (["--request_body", "[]"], "no JSON object"),
        (["--endpoint", "http://user:word@host/v1"], "user name"),
        (["--personas", "missing.yaml"], "cannot be read"),
    ],
)
def test_what_cannot_work_is_said_before_anything_is_written(
    more: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with endpoint(script(FEW)) as server:
        assert command(arguments(server, tmp_path / "out", 1, *more)) == 2
        assert said in capsys.readouterr().err and not server.asked
    assert not (tmp_path / "out").exists()


def test_drafts_are_never_run_without_walls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with endpoint(script(FEW)) as server, pytest.raises(SystemExit):
        command(arguments(server, tmp_path / "out", 1, "--sandbox", "local"))
    assert "invalid choice: 'local'" in capsys.readouterr().err


def test_tokens_and_cost_count_replies_with_counts() -> None:
    def draft(verdict: str, tokens: int | None, cached: int | None = None) -> run.Draft:
        return run.Draft(0, "t", "who", "what", 0, "", "", tokens, tokens, cached, verdict)

    drafts = [draft("kept", 1_000_000, 500_000), draft("twin", 1_000_000), draft("reply", None)]
    rows, lines = run.yields(drafts, Price(1.0, 10.0, 0.5))
    assert rows[1:] == [
        ["all", "", "3", "1"], ["refused", "reply", "1", ""], ["refused", "twin", "1", ""],
        ["persona", "who", "3", "1"], ["skill", "what", "3", "1"],
    ]  # fmt: skip
    note = " (1 of 3 replies came without counts)"
    assert lines == [
        f"tokens: prompt 2,000,000, completion 2,000,000{note}",
        f"cost: 21.75, 21.75 for each kept task{note}",
    ]
