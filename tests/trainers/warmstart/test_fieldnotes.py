"""What a policy is trained on of another program's episodes: the conversation that our environment would have had."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agents.fieldnotes import to_bundles, to_record
from agents.policies.scripted import OraclePolicy
from agents.policy import Sampling
from agents.records import read_trajectories
from agents.rollout import Job, RolloutEngine
from envs.clawgym import ClawGymEnv
from envs.prompts import STYLES, listing
from sandboxes.sandbox import CommandResult
from tasks.sources import load_tasks
from tasks.sources.fieldnotes import write as write_tasks
from tasks.task import Task
from tests.agents.fakes import FakeEnv
from tests.agents.fakes import task as fake_task
from trainers import sft
from trainers.warmstart.corpus import read_corpus
from trainers.warmstart.fieldnotes import Retold

TASK = Task.model_validate(
    {
        "id": "tidy-1",
        "intent": "copy notes.txt to readme.md",
        "workspace": {"files": {"notes.txt": "red"}},
        "assertions": [{"kind": "file_exists", "path": "readme.md"}],
    }
)
RUN = {"exit_code": 0, "stdout": "", "stderr": "", "timed_out": False}
RECORD: dict[str, Any] = {
    "task_id": "tidy-1",
    "stopped": "task_complete",
    "turns": [
        {
            "turn": 0,
            "agent_response": "I look.\n```bash\nls\n```",
            "action": {"kind": "shell", "cmd": "ls"},
            "observation": {**RUN, "stdout": "notes.txt\n"},
        },
        {"turn": 1, "agent_response": "hm", "action": None, "observation": None, "parse_error": "no block"},
        {
            "turn": 2,
            "agent_response": "```bash\ncp notes.txt readme.md\nrm notes.txt\n```",
            "action": {"kind": "shell", "cmd": "cp notes.txt readme.md"},
            "observation": RUN,
        },
        {"turn": 3, "agent_response": "TASK_COMPLETE", "action": {"kind": "done"}, "observation": None},
    ],
    "final_grade": {"passed": True, "n_passed": 1, "n_total": 1, "assertions": []},
}


def lines(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    return path


@pytest.mark.parametrize("style", sorted(STYLES))
def test_the_conversation_is_the_one_of_our_environment(style: str) -> None:
    ours = STYLES[style]
    said = Retold({"tidy-1": TASK}, style).messages(copy.deepcopy(RECORD))
    system = [{"role": "system", "content": ours.system(TASK)}] if style == "standard" else []
    wanted = [
        ("user", ours.first(TASK, listing(TASK.files()))),
        ("assistant", "I look.\n```bash\nls\n```"),
        ("user", ours.observation(CommandResult(0, b"notes.txt\n", b""))),
        ("assistant", "```bash\ncp notes.txt readme.md\n```"),  # what ran: their parser read one line
        ("user", ours.observation(CommandResult(0, b"", b""))),
        ("assistant", "TASK_COMPLETE"),
    ]
    assert said == [*system, *({"role": role, "content": text} for role, text in wanted)]


def test_sft_reads_them_beside_their_tasks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tasks = tmp_path / "tasks.jsonl"
    write_tasks([TASK], tasks)
    failed = {**copy.deepcopy(RECORD), "final_grade": {"passed": False, "n_passed": 0, "n_total": 1}}
    data = lines(tmp_path / "trajectories.jsonl", RECORD, failed, RECORD)
    command = ["--dry-run", "--model_name_or_path", "quickstart", "--data", str(data), "--device", "cpu"]
    assert sft.main([*command, "--tasks", f"fieldnotes:{tasks}"]) == 0
    assert "data: 2 conversations" in capsys.readouterr().out
    assert sft.main(command) == 2
    *_, line = capsys.readouterr().err.strip().splitlines()
    assert "trajectories.jsonl:1: task 'tidy-1' is not at hand" in line and "--tasks" in line
    assert sft.main([*command, "--tasks", f"fieldnotes:{tasks}", "--prompt_style", "base"]) == 2
    assert "prompt_style=base is none of standard, compact" in capsys.readouterr().err
    assert sft.main(["--dry-run", "--tasks", "library"]) == 2
    assert "tasks: does nothing without data" in capsys.readouterr().err


def test_records_that_we_wrote_train_the_ids_that_were_sampled(tmp_path: Path) -> None:
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=1, workers=1) as engine:
        episodes = engine.run([Job(fake_task(), 0, 0), Job(fake_task(), 1, 0)], Sampling(0.0, 100)).trajectories
    tokenizer = OraclePolicy().tokenizer
    plain = lines(tmp_path / "trajectories.jsonl", *map(to_record, episodes))
    bundle = lines(tmp_path / "trajectory_bundle.jsonl", *to_bundles(episodes))
    flat = episodes[0].flat()
    for path in (plain, bundle):
        corpus = read_corpus(path, tokenizer)
        assert len(corpus) == 2 and corpus.ids.tolist()[: corpus.lengths[0]] == [*episodes[0].prompt_ids, *flat.ids]
        assert len(list(read_trajectories(path))) == 2


def test_what_a_command_did_must_be_recorded() -> None:
    blind = copy.deepcopy(RECORD)
    blind["turns"][0]["observation"] = None
    with pytest.raises(ValueError, match="turn 0 of 'tidy-1' has no observation"):
        Retold({"tidy-1": TASK}, "compact").messages(blind)


def test_the_prompt_is_what_an_environment_lays_out() -> None:
    """The listing comes from the task and not from a sandbox: for tasks without set-up commands they are one."""
    (task, *_) = load_tasks("generated:quickstart?n=1&seed=3")
    env = ClawGymEnv([task], task=task.id, sandbox="auto", prompt_style="standard")
    try:
        first, _ = env.reset(seed=0)
    finally:
        env.close()
    said = Retold({task.id: task}, "standard").messages({**copy.deepcopy(RECORD), "task_id": task.id})
    assert [message["content"] for message in said[:2]] == [env.system_prompt, first]
