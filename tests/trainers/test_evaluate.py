from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from agents.policies import opening
from agents.policies.scripted import OraclePolicy
from agents.policy import Completion, Request, Sampling
from agents.trajectory import read_jsonl
from sandboxes import SandboxUnavailable, SupervisedSandbox, open_sandbox
from tasks.sources import load_tasks
from tasks.splits import split_tasks, write_lock
from tests.envs.fakes import kill
from trainers.evaluate import main

TASKS = "generated:quickstart?n=6&seed=11"


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Evaluations of the two scripted policies, two attempts a task."""
    try:
        open_sandbox("auto").close()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox works here: {error}")
    root = tmp_path_factory.mktemp("evaluations")
    for name in ("oracle", "noop"):
        argv = ["--model", name, "--tasks", TASKS, "--samples", "2", "--output_dir", str(root / name)]
        assert main(argv) == 0
    return root


def test_oracle_passes_everything_and_noop_nothing(evaluated: Path) -> None:
    for name, passed in (("oracle", 12), ("noop", 0)):
        record = json.loads((evaluated / name / "evaluation.json").read_text())
        arm = record["arms"]["sampled"]
        assert (arm["n"], arm["graded"], arm["passed"], arm["infrastructure"]) == (12, 12, passed, 0)
        assert record["model"] == {"name": name}
        assert len(record["tasks"]) == 6
        episodes = list(read_jsonl(evaluated / name / "episodes_sampled.jsonl"))
        assert [e.attempt for e in episodes] == [0, 1] * 6
        assert {e.task_id: e.task_hash for e in episodes} == record["tasks"]


def test_output_names_counts_interval_pass_at_k_and_decode(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["--model", "oracle", "--tasks", TASKS, "--limit", "3", "--samples", "2", "--temperature", "0.7", "--open"]
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert main([*argv, "--output_dir", str(tmp_path / "e")]) == 0
    assert opened == [(tmp_path / "e" / "episodes.html").as_uri()] and (tmp_path / "e" / "episodes.html").is_file()
    out = capsys.readouterr().out
    assert "6/6 = 100.0 % [" in out and "pass@1 100.0 %  pass@2 100.0 %" in out
    assert "T=0.7, max_tokens=512" in out
    assert "by family" in out and "by assertion kind" in out and "file_" in out


def test_lost_sandboxes_are_counted_and_listed(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    deadly, once = (load_tasks(TASKS)[i].oracle.commands[0] for i in (0, 1))  # type: ignore[union-attr]
    real, seen = SupervisedSandbox.run_and_snapshot, []

    def ending(sandbox: Any, command: str, **settings: Any) -> Any:
        if command == deadly or (command == once and command not in seen):
            kill(sandbox)
        seen.append(command)
        return real(sandbox, command, **settings)

    monkeypatch.setattr(SupervisedSandbox, "run_and_snapshot", ending)
    ids = [task.id for task in load_tasks(TASKS)]
    for agent_errors, graded in (("fail", 6), ("error", 5)):
        seen.clear()
        folder = tmp_path / agent_errors
        argv = ["--model", "oracle", "--tasks", TASKS, "--agent_errors", agent_errors, "--output_dir", str(folder)]
        assert main(argv) == 0
        arm = json.loads((folder / "evaluation.json").read_text())["arms"]["sampled"]
        assert (arm["graded"], arm["passed"], arm["pass_min"]) == (graded, 5, pytest.approx(5 / 6))
        assert arm["losses"][ids[1]] == {once: 1} and set(arm["losses"]) == set(ids[:2])
        assert yaml.safe_load((folder / "config.yaml").read_text())["agent_errors"] == agent_errors
        episodes = list(read_jsonl(folder / "episodes_sampled.jsonl"))
        assert episodes[0].stop_reason == ("lost" if graded == 6 else "infrastructure")
        assert episodes[1].passed and [loss["end"] for loss in episodes[1].notes["losses"]] == ["replayed"]
        assert {e.environment["agent_errors"] for e in episodes if e.environment} == {agent_errors}
        out = capsys.readouterr().out
        assert f"sandbox lost, 1 times: {ids[1]}: {once}\n" in out
        if graded == 6:
            assert "passed         │ 5/6 = 83.3 % [" in out and "excluded       │ 0" in out and "lost 17 %" in out
        else:
            assert "excluded       │ 1: 5/6 = 83.3 %" in out and "because of     │ SandboxError 1" in out
            assert "excluded, 1 times: SandboxError: the sandbox was lost twice at this command: " in out


def test_compare_is_paired_and_shows_both_decode_settings(evaluated: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--compare", str(evaluated / "noop"), str(evaluated / "oracle")]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "+100.0 points [+44.8, +100.0] on 6 shared tasks" in out and "improvement: B minus A is +100.0" in out
    assert "paired p 0.031" in out  # all six signs equal: 2 / 2**6
    assert "6 tasks better, 0 worse, 0 equal" in out
    assert out.count("T=1, max_tokens=512") == 2


def test_an_occupied_folder_is_refused_before_anything_runs(
    evaluated: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", "noop", "--tasks", TASKS, "--output_dir", str(evaluated / "noop")]) == 2
    assert "is occupied" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--env", "Chess-v0"], "--env Chess-v0: unknown environment 'Chess-v0': "),
        (["--samples", "0"], "--samples is 0: at least 1"),
        (["--temperature", "-1"], "must be a number and not negative"),
        (["--greedy", "--samples", "4"], "plays the same episode again"),
        (["--tasks", "generated:nothing?n=3"], "nothing"),
        (["--model", "quikstart"], "did you mean 'quickstart'"),
        (["--compare", "a", "b"], "no such folder: a"),
        (["--tasks", ""], "--tasks: is empty"),
        (["--price", "1"], "--price takes two or three numbers"),
        (["--all_checkpoints"], "--model noop is no run folder with a checkpoint"),
        (["--agent_errors", "maybe"], "unknown agent_errors 'maybe': choose one of fail, error"),
        (["--sandbox", "vm"], "--sandbox vm: one of auto, docker"),
        (["--top_p", "0", "--model", "quickstart"], "--top_p is 0.0: a number above 0 and at most 1"),
        (["--top_k", "-1"], "--top_k is -1: at least 0"),
        (["--top_k", "5", "--greedy"], "do nothing with greedy decoding alone"),
        (["--top_p", "0.9"], "--top_p, --top_k: this policy does not say that it heeds them"),
        (["--device", "tpu", "--model", "quickstart"], "--device tpu: "),
    ],
)
def test_mistakes_get_one_line(
    argv: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    defaults = [] if "--tasks" in argv else ["--tasks", TASKS]
    model = [] if "--model" in argv else ["--model", "noop"]
    code = main([*argv, *defaults, *model])
    captured = capsys.readouterr()
    if "no sandbox" in captured.err:
        pytest.skip("no sandbox works here")
    assert code == 2
    assert message in captured.err and "Traceback" not in captured.err
    assert not (tmp_path / "runs").exists()


def test_draws_among_the_likeliest_ids_are_measured_and_named(tmp_path: Path) -> None:
    """Of one id the draw is the argmax; the decode settings tell both apart in every table and comparison."""
    folders = [tmp_path / name for name in ("one", "nucleus")]
    tasks = ["--tasks", "generated:quickstart?n=4&seed=3", "--model", "quickstart", "--max_tokens", "24"]
    for folder, cut in zip(folders, (["--top_k", "1", "--greedy"], ["--top_p", "0.9", "--top_k", "3"]), strict=True):
        assert main([*tasks, "--temperature", "1", *cut, "--output_dir", str(folder)]) == 0
    arms = json.loads((folders[0] / "evaluation.json").read_text())["arms"]
    assert (
        arms["sampled"]["sampling"] == "T=1, top_k=1, max_tokens=24"
        and arms["greedy"]["passed"] == arms["sampled"]["passed"]
    )
    replies = [[t.ids for e in read_jsonl(folders[0] / f"episodes_{arm}.jsonl") for t in e.turns] for arm in arms]
    assert replies[0] == replies[1]
    arms = json.loads((folders[1] / "evaluation.json").read_text())["arms"]
    assert arms["sampled"]["sampling"] == "T=1, top_p=0.9, top_k=3, max_tokens=24"


def test_an_interruption_keeps_what_was_finished(
    evaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Interrupted(OraclePolicy):
        calls = 0

        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            self.calls += 1
            if self.calls == 8:
                raise KeyboardInterrupt
            return super().complete(requests, sampling)

    way = replace(opening.POLICIES["oracle"], open=lambda named, given: opening.Actor(Interrupted()))
    monkeypatch.setitem(opening.POLICIES, "oracle", way)
    folder = tmp_path / "e"
    argv = ["--model", "oracle", "--tasks", TASKS, "--slots", "2", "--output_dir", str(folder)]
    assert main(argv) == 130
    assert "finished episodes (and 0 without a grade) are in" in capsys.readouterr().err
    whole = {e.task_id: e for e in read_jsonl(evaluated / "oracle" / "episodes_sampled.jsonl")}
    kept = list(read_jsonl(folder / "episodes_sampled.partial.jsonl"))
    assert 0 < len(kept) < 6 and all(e.passed and e.task_id in whole for e in kept)
    assert not (folder / "episodes_sampled.jsonl").exists()
    assert not list(evaluated.glob("*/*.partial.jsonl"))


def test_attempts_that_are_equal_are_said(evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--model", "oracle", "--tasks", TASKS, "--samples", "2", "--output_dir", str(tmp_path / "e")]
    assert main(argv) == 0
    assert "12 of 12 episodes are equal to another attempt at their task" in capsys.readouterr().out


def test_both_sides_of_a_split_are_compared(
    evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lock = tmp_path / "my.lock"
    write_lock(split_tasks(load_tasks(TASKS), held_out_fraction=0.5), lock)
    argv = ["--model", "oracle", "--tasks", TASKS, "--split", str(lock), "--output_dir", str(tmp_path / "e")]
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert "pool: 100.0 % of 3 tasks\nheld_out: 100.0 % of 3 tasks\n" in out and "warning" not in out
    assert main([*argv, "--limit", "2"]) == 2
    assert "--limit would cut a side" in capsys.readouterr().err


def test_judges_that_load_the_agents_code_are_played_and_not_counted(
    evaluated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, check in (("safe", "{kind: file_exists, path: a.sh}"), ("loads", "{kind: command, command: . ./a.sh}")):
        oracle = 'oracle: {commands: ["echo true > a.sh"]}'
        (tmp_path / "t").mkdir(exist_ok=True)
        (tmp_path / f"t/{name}.yaml").write_text(f"id: {name}\nintent: make {name}\nassertions: [{check}]\n{oracle}\n")
    for name, judged_in in (("talks", "{sandbox: shared}"), ("loads_x", "{sandbox: fresh, network: pip}")):
        script = f"{{kind: script, command: echo 1, judged_in: {judged_in}}}"
        (tmp_path / f"t/{name}.yaml").write_text(
            f"schema_version: 2\nid: {name}\nintent: make {name}\nassertions: [{script}]\n"
        )
    argv = ["--model", "oracle", "--tasks", str(tmp_path / "t"), "--samples", "2", "--output_dir"]
    assert main([*argv, str(tmp_path / "apart")]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "1 task with a judge that runs the agent's code in its own process" in out
    assert "passed 2/2 = 100.0 %" in out and "in-process judges 2 of 2 passed, not counted" in out
    record = json.loads((tmp_path / "apart" / "evaluation.json").read_text())
    arm = record["arms"]["sampled"]
    assert (arm["n"], arm["passed"], arm["in_process"], set(arm["outcomes"])) == (2, 2, [2, 2], {"safe"})
    assert "left out: 1 task judged beside processes of the agent (judge_isolation: shared) (talks)." in out
    assert "left out: 1 task with a verifier that needs a network (loads_x: pip)." in out
    assert record["left_out"] == ["loads_x", "talks"]
    assert record["in_process_judges"] == ["loads"] and set(record["tasks"]) == {"safe", "loads"}
    assert main([*argv, str(tmp_path / "all"), "--allow_in_process_judges"]) == 0
    record = json.loads((tmp_path / "all" / "evaluation.json").read_text())
    assert (record["arms"]["sampled"]["passed"], record["in_process_judges"]) == (4, [])
    assert "in-process" not in capsys.readouterr().out
