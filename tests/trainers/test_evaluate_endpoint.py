"""An evaluation over a chat endpoint, from the command line: a server that plays the oracles, and servers that fail."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.models.loading import QUICKSTART
from agents.policies.scripted import fenced
from agents.trajectory import read_jsonl
from sandboxes import SandboxUnavailable, open_sandbox
from tasks.endpoints import http
from tasks.sources import load_tasks
from tests.agents.policies.fake_endpoint import Answer, endpoint, said
from tests.agents.policies.stumbling import EXTRA, STUMBLING
from tests.agents.policies.vllm.fake import Fake, running
from tests.shared_data import REPOSITORY
from trainers.evaluate import main

TASKS = "generated:quickstart?n=4&seed=11"
KEY = "sk-secret-0123456789"


@pytest.fixture(scope="module", autouse=True)
def sandbox() -> None:
    try:
        open_sandbox("auto").close()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox works here: {error}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)


def oracle() -> Callable[[dict[str, Any]], Any]:
    """Plays the oracle of the task that the first message tells of."""
    tasks = load_tasks(TASKS)

    def script(body: dict[str, Any]) -> Any:
        first = next(message["content"] for message in body["messages"] if message["role"] == "user")
        (task,) = [task for task in tasks if task.intent in first]
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        commands = task.oracle.commands if task.oracle else []
        return said(fenced(commands[turn]) if turn < len(commands) else "TASK_COMPLETE")

    return script


def evaluate(url: str, folder: Path, *more: str) -> int:
    return main(["--model", f"openai:tiny@{url}", "--tasks", TASKS, "--output_dir", str(folder), *more])


def assert_no_key(folder: Path) -> None:
    for path in folder.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes(), path


def test_an_endpoint_that_knows_the_way_passes_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "e"
    with endpoint(oracle()) as server:
        assert evaluate(server.url, folder, "--temperature", "0.7", "--request_body", '{"top_p": 0.9}') == 0
        assert all(body["top_p"] == 0.9 and body["temperature"] == 0.7 for body in server.asked)
        asked, url = len(server.asked), server.url
    record = json.loads((folder / "evaluation.json").read_text())
    arm = record["arms"]["sampled"]
    assert (arm["n"], arm["passed"], arm["infrastructure"]) == (4, 4, 0)
    assert arm["sampling"] == 'T=0.7, max_tokens=512, {"top_p": 0.9}'
    model = record["model"]
    assert (model["kind"], model["url"], model["model"]) == ("endpoint", url, "tiny")
    assert model["server_says"] == {"model": ["served-model-1"], "system_fingerprint": ["fp_1"]}
    assert "need not honour" in model["seeds"] and model["usage"]["prompt_tokens"] == 10 * asked
    assert record["date"][:4].isdigit()
    assert record["timing"]["sampled"]["sampled_tokens"] is None, "its ids are bytes, no tokens"
    assert record["timing"]["sampled"]["turns"] == asked
    assert json.loads((folder / "environment.json").read_text())["prompt_style"] == "standard"
    episodes = list(read_jsonl(folder / "episodes_sampled.jsonl"))
    assert all(e.passed and turn.logprobs is None for e in episodes for turn in e.turns)
    assert sorted(path.name for path in folder.glob("episodes*")) == ["episodes_sampled.jsonl"]
    out = capsys.readouterr().out
    assert "4/4 = 100.0 %" in out
    assert f"used so far, as the server counts: {asked} replies, {10 * asked} prompt tokens, {3 * asked} com" in out
    with pytest.raises(ValueError, match="played it"):
        episodes[0].flat()
    assert KEY not in out
    assert_no_key(folder)


def test_an_evaluation_that_goes_on_adds_up_what_the_endpoint_was_asked(tmp_path: Path) -> None:
    folder = tmp_path / "e"
    with endpoint(oracle()) as server:
        assert evaluate(server.url, folder) == 0
        whole, asked = json.loads((folder / "evaluation.json").read_text()), server.asked[:]
        assert main(["--output_dir", str(folder), "--resume", "--retries", "2"]) == 0
        again = json.loads((folder / "evaluation.json").read_text())
        assert again == whole and len(server.asked) == len(asked)
        lines = (folder / "episodes_sampled.jsonl").read_text().splitlines()
        (folder / "episodes_sampled.jsonl").write_text("\n".join(lines[1:]) + "\n")
        assert main(["--output_dir", str(folder), "--resume"]) == 0
        again = json.loads((folder / "evaluation.json").read_text())
        assert again["model"]["usage"]["replies"] == len(server.asked) > len(asked)
    assert again["model"]["server_says"] == whole["model"]["server_says"] and again["arms"] == whole["arms"]


def test_tokens_that_the_endpoint_tells_and_their_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 6},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    play = oracle()
    with endpoint(lambda body: play(body) | {"usage": usage}) as server:
        assert evaluate(server.url, tmp_path / "e", "--price", "2", "8", "0.5") == 0
        asked = len(server.asked)
    tokens = json.loads((tmp_path / "e" / "evaluation.json").read_text())["tokens"]["sampled"]
    counts = {name: tokens[name] for name in ("replies", "uncounted", "prompt", "completion", "cached", "reasoning")}
    assert counts == {"replies": asked, "uncounted": 0, "prompt": 10 * asked, "completion": 4 * asked,
                      "cached": 6 * asked, "reasoning": 3 * asked}  # fmt: skip
    assert tokens["cost"] == pytest.approx(asked * (4 * 2 + 6 * 0.5 + 4 * 8) / 1e6)
    out = capsys.readouterr().out
    assert f"mean tokens of an episode: prompt {10 * asked / 4:.1f}, cached {6 * asked / 4:.1f}, completion " in out
    assert f"cost: {tokens['cost']:.6g}, " in out and " for each pass" in out


def test_a_model_as_the_user_is_recorded_and_costs_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "e"
    asks = ["--env", "ClawGym-v1", "--tasks", "library:which-meyer", "--model", "oracle", "--output_dir", str(folder)]
    with endpoint(lambda body: said("1")) as server:
        assert main([*asks, "--user", f"openai:tiny@{server.url}"]) == 0
        name, asked = f"openai:tiny@{server.url}", server.asked
    (episode,) = read_jsonl(folder / "episodes_sampled.jsonl")
    assert episode.passed and episode.environment["user"] == name
    assert [record["rule"] for record in episode.notes["user"]] == [0, 1]
    (body,) = asked  # one message; what is said at a turn needs no model
    assert body["temperature"] == 0 and "Which one is it?" in body["messages"][-1]["content"]
    assert "the user, used so far, as the server counts: 1 replies" in capsys.readouterr().out
    assert_no_key(folder)


def test_a_user_belongs_to_an_environment_that_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--env", "ClawGym-v0", "--user", "openai:m@http://h/v1"]) == 2
    assert "--user: nobody answers in ClawGym-v0; --env ClawGym-v1 has a user" in capsys.readouterr().err
    assert main(["--env", "ClawGym-v1", "--user", "quickstart"]) == 2
    assert "is no chat endpoint" in capsys.readouterr().err


def test_two_endpoints_are_compared_with_their_decode_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with endpoint(oracle()) as server:
        assert evaluate(server.url, tmp_path / "a", "--request_body", '{"top_p": 0.9}') == 0
    with endpoint(lambda body: said("TASK_COMPLETE")) as server:
        assert evaluate(server.url, tmp_path / "b") == 0
    capsys.readouterr()
    assert main(["--compare", str(tmp_path / "b"), str(tmp_path / "a")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "+100.0 points [" in out and "on 4 shared tasks" in out
    settings = 'A T=1, max_tokens=512; B T=1, max_tokens=512, {"top_p": 0.9}'
    assert f"different settings, so no verdict: decode settings: {settings}" in out


def test_a_server_that_dies_half_way_leaves_what_was_finished(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, play = tmp_path / "e", oracle()
    answered: list[str] = []

    def script(body: dict[str, Any]) -> Any:
        if answered.count("TASK_COMPLETE") == 2:
            return Answer(503, {"error": {"message": f"out of memory, {KEY}"}})
        answer = play(body)
        answered.append(answer["choices"][0]["message"]["content"])
        return answer

    with endpoint(script) as server:
        assert evaluate(server.url, folder, "--slots", "1") == 1
    captured = capsys.readouterr()
    partial = folder / "episodes_sampled.partial.jsonl"
    assert f"sampled is not measured; 2 finished episodes (and 2 without a grade) are in {partial}" in captured.err
    assert "the policy failed: all 2 requests since the last reply failed, the first with: http" in captured.err
    assert "HTTP 503, 11 attempts: out of memory, ***" in captured.err
    assert "Traceback" not in captured.err and "used so far" in captured.out
    episodes = list(read_jsonl(partial))
    assert [(e.stop_reason, e.passed, e.reward is None) for e in episodes] == [
        ("submitted", True, False),
        ("submitted", True, False),
        ("infrastructure", None, True),  # the first lone failure ends its episode
        ("infrastructure", None, True),  # the second in a row ends the evaluation
    ]
    assert episodes[2].error is not None and "HTTP 503" in episodes[2].error
    assert json.loads((folder / "evaluation.json").read_text())["arms"] == {}
    assert KEY not in captured.out + captured.err
    assert_no_key(folder)


def test_one_reply_that_is_withheld_costs_one_episode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    play, intent = oracle(), load_tasks(TASKS)[1].intent

    def script(body: dict[str, Any]) -> Any:
        return said(None, "content_filter") if any(intent in m["content"] for m in body["messages"]) else play(body)

    with endpoint(script) as server:
        assert evaluate(server.url, tmp_path / "e") == 0
    arm = json.loads((tmp_path / "e" / "evaluation.json").read_text())["arms"]["sampled"]
    assert (arm["n"], arm["graded"], arm["passed"], arm["infrastructure"]) == (4, 3, 3, 1)
    assert "excluded, 1 times: Unanswered: tiny: the server's content filter" in capsys.readouterr().out


def test_a_conversation_that_outgrows_the_context_is_graded_as_it_stands(tmp_path: Path) -> None:
    play = oracle()

    def script(body: dict[str, Any]) -> Any:
        if any(message["role"] == "assistant" for message in body["messages"]):
            return Answer(400, {"error": {"message": "maximum context length is 9", "code": "context_length_exceeded"}})
        return play(body)

    with endpoint(script) as server:
        assert evaluate(server.url, tmp_path / "e") == 0
    arm = json.loads((tmp_path / "e" / "evaluation.json").read_text())["arms"]["sampled"]
    assert (arm["graded"], arm["stops"]) == (4, {"max_tokens": 4})
    assert arm["mean_turns"] == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--model", "openai:m@http://me:hunter2@h/v1"], "holds a user name"),
        (["--model", "openai:m@http://h/v1", "--request_body", "{"], "--request_body is not JSON"),
        (["--model", "openai:m@http://h/v1", "--request_body", "[1]"], "is no JSON object"),
        (["--model", "openai:m@http://h/v1", "--request_body", '{"seed": 1}'], "extra holds seed"),
        (["--model", "openai:m@http://h/v1", "--dtype", "bfloat16"], "--dtype does nothing with --model openai:m@"),
        (["--model", "openai:m@http://h/v1", "--tokenizer", "x"], "--tokenizer does nothing"),
        (["--model", "openai:m@http://h/v1", "--prompt_style", "base"], "a chat endpoint takes messages"),
        (["--model", "openai:m@http://h/v1", "--concurrency", "0"], "--concurrency is 0: at least 1"),
        (["--model", "openai:m@http://h/v1", "--retries", "-1"], "--retries is -1: at least 0"),
        (["--model", "oracle", "--retries", "2"], "--retries does nothing with --model oracle"),
        (["--model", "vllm:http://h,h"], "the address is no http"),
        (
            ["--model", "openai:m@http://h/v1", "--request_body", '{"temperature": null}', "--greedy"],
            "--greedy does nothing where --request_body leaves the temperature out",
        ),
        (["--model", "oracle", "--concurrency", "2"], "--concurrency does nothing with --model oracle"),
        (["--model", "openai:m@http://h/v1", "--timeout", "nan"], "--timeout is nan"),
        (["--model", "oracle", "--limit", "-3"], "--limit is -3: at least 0"),
        (["--model", "oracle", "--sandbox_workers", "-2"], "--sandbox_workers is -2: at least 0"),
        (["--model", "oracle", "--max_tokens", "0"], "--max_tokens is 0: at least 1"),
        (["--model", "oracle", "--max_tokens", "-4"], "--max_tokens is -4: at least 1"),
        (["--model", "oracle", "--max_episode_tokens", "-4"], "--max_episode_tokens is -4: at least 0"),
        (["--model", "openai:m@http://h/v1", "--max_episode_tokens", "90"], "--max_episode_tokens 90: this policy"),
        (["--model", "oracle", "--temperature", "nan"], "--temperature must be a number"),
        (["--model", "vllm:http://h", "--eos_ids", "-1"], "--eos_ids must not be negative"),
        (["--model", "oracle", "--eos_ids", "1"], "--eos_ids does nothing"),
        (["--model", "m" * 300], "no model 'mmm"),
        (["--model", "~nobody-of-this-name/x"], "no model '~nobody"),
        (["--model", "openai:gpt-4o-mini"], "the address of its server, as in openai:"),
    ],
)
def test_mistakes_get_one_line(
    argv: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*argv, "--tasks", TASKS, "--output_dir", str(tmp_path / "e")]) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err and "hunter2" not in err
    assert not (tmp_path / "e").exists()


@pytest.mark.parametrize("name", STUMBLING)
def test_a_server_that_stumbles_loses_no_episode(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT", 0.005)
    with endpoint(STUMBLING[name](oracle())) as server:
        body = ["--request_body", json.dumps(EXTRA[name])] if name in EXTRA else []
        assert evaluate(server.url, tmp_path / "e", "--samples", "3", *body) == 0
    record = json.loads((tmp_path / "e" / "evaluation.json").read_text())
    arm = record["arms"]["sampled"]
    assert (arm["n"], arm["passed"], arm["infrastructure"]) == (12, 12, 0)
    assert record["model"]["seeds"].startswith("not sent" if "seed" in EXTRA.get(name, {}) else "sent")


@pytest.mark.parametrize(("late", "slots"), [(0, 4), (2, 4), (0, 1)])
def test_one_conversation_that_is_refused_ends_alone(tmp_path: Path, late: int, slots: int) -> None:
    """Others are over by the time that it is refused, or have not begun."""
    seen: list[str] = []

    def script(body: dict[str, Any]) -> Any:
        first = body["messages"][1]["content"]
        if first not in seen:
            seen.append(first)
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        if first != seen[0]:
            return said("TASK_COMPLETE")
        if turn == late:
            return Answer(400, {"error": {"message": "text blocks must be non-empty \ud800"}})
        return said(fenced("true"))

    with endpoint(script) as server:
        assert evaluate(server.url, tmp_path / "e", "--slots", str(slots)) == 0
    arm = json.loads((tmp_path / "e" / "evaluation.json").read_text())["arms"]["sampled"]
    assert (arm["n"], arm["graded"], arm["infrastructure"]) == (4, 3, 1)


def test_a_vllm_server_without_a_card_says_which_prompts_it_gets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(QUICKSTART, folder, ignore=shutil.ignore_patterns("turngym.json"))
    with running(Fake(models=[{"id": "base", "root": str(folder), "max_model_len": 1000}])) as fake:
        argv = ["--model", f"vllm:{fake.url}", "--tasks", TASKS, "--output_dir", str(tmp_path / "e")]
        assert main(argv) == 1
    said_so = " ".join(capsys.readouterr().out.split())
    assert f"no model card is known for what {fake.url} serves, so it gets the prompt style standard" in said_so


def test_ctrl_c_ends_the_process_though_the_server_is_silent(tmp_path: Path) -> None:
    asked, over = threading.Event(), threading.Event()
    play = oracle()

    def script(body: dict[str, Any]) -> Any:
        if any(message["role"] == "assistant" for message in body["messages"]):
            asked.set()
            over.wait(120)
        return play(body)

    with endpoint(script) as server:
        command = [sys.executable, "-m", "trainers.evaluate", "--model", f"openai:tiny@{server.url}", "--tasks", TASKS]
        process = subprocess.Popen(
            [*command, "--output_dir", str(tmp_path / "e")],
            cwd=REPOSITORY, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert asked.wait(120)
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        finally:
            process.kill()
            over.set()
    assert process.returncode == 130, err
    assert "trainers.evaluate: stopped" in err and "Traceback" not in err
    assert "sampled is not measured; 0 finished episodes" in err
