from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from agents.policies.scripted import NoOpPolicy, OraclePolicy, ReplayPolicy
from agents.policy import FinishReason, Policy, PolicyError, Request, Sampling, TaskAware
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory, Turn, read_jsonl, write_jsonl
from envs.actions import Command, Submit, fenced, parse
from tests.agents.fakes import FakeEnv, task

SAMPLING = Sampling(0.0, 200)


@pytest.mark.parametrize(
    "command", ["ls", "cat > a <<'X'\n```\ncode\n```\nX", "echo '````'", "printf 'a\\n' > b\nls", "echo ``"]
)
def test_a_fenced_command_parses_to_itself(command: str) -> None:
    action = parse(fenced(command))
    assert isinstance(action, Command) and action.text == command


def test_oracle_plays_the_commands_then_submits() -> None:
    policy = OraclePolicy()
    assert isinstance(policy, Policy) and isinstance(policy, TaskAware)
    policy.begin("a", task())
    replies = []
    for _ in range(3):
        completion = policy.complete([Request("a", [1], seed=0)], SAMPLING)[0]
        assert completion.finish is FinishReason.STOP and completion.ids[-1] in policy.eos_ids
        replies.append(policy.tokenizer.decode(completion.ids[:-1]))
    assert replies == ["```bash\necho one\n```", "```bash\necho two\n```", "TASK_COMPLETE"]
    policy.begin("a", task())
    again = policy.complete([Request("a", [1], seed=0)], SAMPLING)[0]
    assert policy.tokenizer.decode(again.ids[:-1]) == replies[0]


def test_oracle_says_its_answer_with_the_stop_word() -> None:
    policy = OraclePolicy()
    policy.begin("a", task(oracle={"commands": ["echo one"], "answer": "It is 42."}))
    replies = [policy.complete([Request("a", [1], seed=0)], SAMPLING)[0] for _ in range(2)]
    said = policy.tokenizer.decode(replies[1].ids[:-1])
    assert said == "It is 42.\nTASK_COMPLETE"
    action = parse(said)
    assert isinstance(action, Submit) and action.text == said


def test_the_oracle_reads_what_was_shown_since_its_command() -> None:
    policy = OraclePolicy()
    steps = [{"run": "cat log", "reads": {"file": r"refused (\S+)"}}, "mv {{file}} away"]
    policy.begin("a", task(schema_version=2, oracle={"commands": steps, "answer": "Moved {{file}}."}))

    def reply(shown: str) -> str:
        prompt = policy.tokenizer.encode(f"<|im_start|>user\n{shown}<|im_end|>\n<|im_start|>assistant\n")
        return str(policy.tokenizer.decode(policy.complete([Request("a", prompt, seed=0)], SAMPLING)[0].ids[:-1]))

    first = reply("Which was refused x.csv?")
    before = f"refused x.csv<|im_end|>\n<|im_start|>assistant\n{first}<|im_end|>\n<|im_start|>user\n"
    assert reply(before + "exit code: 0\nstdout:\nrefused b.csv") == "```bash\nmv b.csv away\n```"
    assert reply(before + "ok") == "Moved b.csv.\nTASK_COMPLETE"
    policy.begin("a", policy._tasks["a"])
    assert reply("start") == first
    with pytest.raises(
        PolicyError, match="oracle command 1 printed nothing that the pattern 'refused .*of 'file' finds"
    ):
        reply(before + "nothing")


def test_cap_cuts_a_scripted_reply() -> None:
    policy = OraclePolicy()
    policy.begin("a", task())
    completion = policy.complete([Request("a", [1], seed=0, max_tokens=4)], SAMPLING)[0]
    assert len(completion.ids) == 4 and completion.finish is FinishReason.LENGTH


def test_a_stop_text_ends_a_scripted_reply() -> None:
    policy = OraclePolicy()
    policy.begin("a", task())
    completion = policy.complete([Request("a", [1], seed=0, stops=("zzz", "one", "bash\ne"))], SAMPLING)[0]
    assert policy.tokenizer.decode(completion.ids) == "```bash\ne"
    assert completion.finish is FinishReason.STOP_TEXT


def test_a_record_of_text_is_not_replayed_id_for_id() -> None:
    text = Turn(0, [], [], None, None, [], None, "ls", command="ls")
    policy = ReplayPolicy(Trajectory("first", "", 0, None, [], [text], source="fieldnotes"))
    with pytest.raises(PolicyError, match="text without ids; agents.replay plays its commands"):
        policy.begin("a", task())


def test_refusals() -> None:
    policy = OraclePolicy()
    with pytest.raises(PolicyError, match=r"needs begin\(\)"):
        policy.complete([Request("a", [1], seed=0)], SAMPLING)
    policy.begin("a", task(oracle=None))
    with pytest.raises(PolicyError, match="has no oracle"):
        policy.complete([Request("a", [1], seed=0)], SAMPLING)


def test_no_op_submits() -> None:
    with RolloutEngine(NoOpPolicy(), FakeEnv, slots=1, workers=1) as engine:
        (trajectory,) = engine.run([Job(task(), 0, 0)], SAMPLING).trajectories
    assert trajectory.stop_reason == "submitted" and len(trajectory.turns) == 1


def test_replay_gives_the_recorded_ids_and_notices_a_changed_world(tmp_path: Path) -> None:
    jobs = [Job(task(id="a"), 0, 1), Job(task(id="b"), 0, 2), Job(task(id="a"), 1, 3)]
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=2, workers=2) as engine:
        recorded = engine.run(jobs, SAMPLING).trajectories
    with open(tmp_path / "t.jsonl", "w") as file:
        write_jsonl(recorded, file)
    with RolloutEngine(ReplayPolicy(read_jsonl(tmp_path / "t.jsonl")), FakeEnv, slots=1, workers=1) as engine:
        replayed = engine.run(jobs, SAMPLING).trajectories
    assert [t.flat() for t in replayed] == [t.flat() for t in recorded]
    with (
        RolloutEngine(ReplayPolicy(recorded[0]), lambda: FakeEnv(word="other"), slots=1, workers=1) as engine,
        pytest.raises(PolicyError, match=r"(?s)shows something else.*recorded: .*ok echo one.*now: .*other echo one"),
    ):
        engine.run(jobs[:1], SAMPLING)
    with (
        RolloutEngine(ReplayPolicy(recorded[0]), FakeEnv, slots=1, workers=1) as engine,
        pytest.raises(PolicyError, match="no recorded trajectory of task 'b'"),
    ):
        engine.run(jobs[1:2], SAMPLING)


@pytest.mark.parametrize("broken", ["step", "grade"])
def test_a_replay_survives_the_engines_second_try(broken: str) -> None:
    jobs = [Job(task(), 0, 1), Job(task(), 1, 2)]
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=1, workers=1) as engine:
        recorded = engine.run(jobs, SAMPLING).trajectories
    recorded[0].turns[0].uncertainty, recorded[1].turns[0].uncertainty = 0.25, 0.75
    failures = Counter({broken: 1})
    with RolloutEngine(ReplayPolicy(recorded), lambda: FakeEnv(failures=failures), slots=1, workers=1) as engine:
        result = engine.run(jobs, SAMPLING)
    assert result.retries == 1
    assert [one.flat() for one in result.trajectories] == [one.flat() for one in recorded]
    assert [one.turns[0].uncertainty for one in result.trajectories] == [0.25, 0.75]


def test_a_cap_that_leaves_room_for_nothing_is_refused() -> None:
    policy = NoOpPolicy()
    policy.begin("a", task())
    with pytest.raises(PolicyError, match="conversation a: a reply needs room for 1 id at least, not 0"):
        policy.complete([Request("a", [1], seed=0, max_tokens=0)], SAMPLING)
