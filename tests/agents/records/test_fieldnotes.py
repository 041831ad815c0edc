from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from agents.fieldnotes import exchanges, from_bundle, from_record, to_bundles, to_record, to_records
from agents.policies.scripted import OraclePolicy
from agents.policy import Candidate, FinishReason, Sampling
from agents.records import format_of, read_trajectories
from agents.rollout import Job, RolloutEngine
from agents.trajectory import RecordError, Trajectory, Turn
from tests.agents.fakes import FakeEnv, task

CUT = "y" * 1984 + "\n... [truncated 1006 chars] ...\n" + "z" * 1984

RECORD: dict[str, Any] = {
    "task_id": "tidy-1",
    "model": "m",
    "n_turns": 4,
    "stopped": "task_complete",
    "wall_seconds": 3.5,
    "turns": [
        {
            "turn": 0,
            "agent_response": "I look.\n```bash\nls\nrm x\n```",
            "action": {"kind": "shell", "cmd": "ls"},
            "observation": {"exit_code": 0, "stdout": "a\n", "stderr": "", "timed_out": False},
            "parse_error": None,
        },
        {
            "turn": 1,
            "agent_response": CUT,
            "action": None,
            "observation": None,
            "parse_error": "no block",
        },
        {
            "turn": 2,
            "agent_response": "```bash\nsleep 99\n```",
            "action": {"kind": "shell", "cmd": "sleep 99"},
            "observation": {"exit_code": 124, "stdout": "", "stderr": "too long", "timed_out": True},
            "parse_error": None,
        },
        {
            "turn": 3,
            "agent_response": "TASK_COMPLETE",
            "action": {"kind": "done"},
            "observation": None,
            "parse_error": None,
        },
    ],
    "final_grade": {
        "task_id": "tidy-1",
        "passed": False,
        "n_passed": 1,
        "n_total": 2,
        "assertions": [
            {"kind": "file_exists", "path": "a", "passed": True, "detail": ""},
            {"kind": "file_contents_contain", "path": "b", "passed": False, "detail": "path missing"},
        ],
    },
}


def record(**changes: Any) -> dict[str, Any]:
    return {**copy.deepcopy(RECORD), **changes}


def failed() -> dict[str, Any]:
    """The engine failed at the second turn."""
    out = record(stopped="agent_error", n_turns=2)
    out["turns"] = [
        out["turns"][0],
        {"turn": 1, "agent_response": "", "action": None, "observation": None, "parse_error": "HTTP 500"},
    ]
    return out


def bundle(**changes: Any) -> dict[str, Any]:
    rollouts = [
        {"rollout_idx": 0, "reward": 0.4333, "advantage": 1.0, "tds_regen_attempts": 2, "trajectory": record()},
        {"rollout_idx": 1, "reward": 0.0, "advantage": -1.0, "tds_regen_attempts": 0, "trajectory": failed()},
    ]
    return {"task_id": "tidy-1", "k": 2, "temperature": 0.8, "reward_mode": "shaped", "rewards": [0.4333, 0.0],
            "advantages": [1.0, -1.0], "rollouts": rollouts, **changes}  # fmt: skip


def test_an_episode_is_read_with_its_meaning() -> None:
    episode = from_record(record())
    assert (episode.task_id, episode.stop_reason, episode.passed, episode.rate) == ("tidy-1", "submitted", False, 0.5)
    assert (episode.reward, episode.seed, episode.source) == (None, None, "fieldnotes")
    assert episode.notes == {"model": "m", "wall_seconds": 3.5}
    assert [turn.action for turn in episode.turns] == ["command", "malformed", "command", "submit"]
    assert [turn.command for turn in episode.turns] == ["ls", None, "sleep 99", None]
    assert [turn.exit_code for turn in episode.turns] == [0, None, 124, None]
    assert [turn.timed_out for turn in episode.turns] == [False, None, True, None]
    assert episode.turns[0].observation == "stdout:\na\n" and episode.turns[1].observation == "no block"
    assert [bool(turn.notes.get("text_cut")) for turn in episode.turns] == [False, True, False, False]
    assert [(item["name"], item["verdict"]) for item in episode.assertions] == [
        ("file_exists:a", "pass"),
        ("file_contains:b", "fail"),
    ]
    assert episode.text_only and all(turn.logprobs is None and turn.finish is None for turn in episode.turns)
    assert Trajectory.from_json(episode.to_json()) == episode


def test_a_failed_engine_is_no_reply_and_no_reward() -> None:
    episode = from_record(failed())
    assert episode.stop_reason == "infrastructure" and len(episode.turns) == 1
    assert episode.error == "agent_error: the engine of the recorded run failed at turn 1: HTTP 500"
    assert (episode.passed, episode.rate, episode.reward, episode.assertions) == (None, None, None, [])
    assert episode.notes["grade_of_a_broken_episode"]["n_passed"] == 1


def test_a_grade_with_nothing_to_check_is_no_pass() -> None:
    episode = from_record(record(final_grade={"passed": True, "n_passed": 0, "n_total": 0, "assertions": []}))
    assert episode.passed is False and episode.rate is None


def test_a_group_has_its_rewards() -> None:
    first, second = from_bundle(bundle())
    assert (first.attempt, first.reward, first.sampling) == (0, 0.4333, "T=0.8")
    assert (first.notes["advantage"], first.notes["tds_regen_attempts"]) == (1.0, 2)
    assert (second.attempt, second.stop_reason, second.reward) == (1, "infrastructure", None)
    assert second.notes["reward_of_a_broken_episode"] == 0.0


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (record(stopped="parse_error"), "stopped: 'parse_error' is unknown; known are task_complete"),
        (record(turns=[{"agent_response": "x"}]), r"turns\[0\]\.turn: field required"),
        (record(turns=[{**RECORD["turns"][0], "action": {"kind": "jump"}}]), r"turns\[0\]\.action\.kind: 'jump'"),
        (record(final_grade={"passed": True, "n_passed": 3, "n_total": 2}), "n_passed: is 3 of 2"),
    ],
)
def test_what_is_wrong_is_named(bad: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=message):
        from_record(bad)
    path = tmp_path / "trajectories.jsonl"
    path.write_text(json.dumps(record()) + "\n" + json.dumps(bad) + "\n")
    with pytest.raises(RecordError, match=rf"trajectories\.jsonl:2: .*fieldnotes: .*{message}"):
        list(read_trajectories(path))


def test_a_group_must_be_whole() -> None:
    with pytest.raises(RecordError, match="k: is 3, with 2 rollouts and 2 rewards"):
        from_bundle(bundle(k=3))
    broken = bundle()
    broken["rollouts"][1]["trajectory"]["stopped"] = "?"
    with pytest.raises(RecordError, match=r"rollouts\[1\]\.trajectory\.stopped"):
        from_bundle(broken)
    broken["rollouts"][1]["trajectory"] = record(task_id="other")
    with pytest.raises(RecordError, match=r"rollouts\[1\]\.trajectory\.task_id: is 'other' in 'tidy-1's group"):
        from_bundle(broken)


def test_formats_are_told_apart(tmp_path: Path) -> None:
    assert format_of(record()) == "fieldnotes" and format_of(bundle()) == "bundle"
    assert format_of(from_record(record()).to_json()) == "turngym"
    with pytest.raises(RecordError, match="no record of a known format: its keys are a"):
        format_of({"a": 1})
    path = tmp_path / "trajectory_bundle.jsonl"
    path.write_text(json.dumps(bundle()) + "\n" + json.dumps(bundle()) + "\n")
    assert [one.attempt for one in read_trajectories(path)] == [0, 1, 0, 1]


def test_our_episodes_go_out_and_come_back() -> None:
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=1, workers=1) as engine:
        (ours,) = engine.run([Job(task(), 0, 0)], Sampling(0.0, 100)).trajectories
    ours.turns[0].candidates = [Candidate((1,), 0.2)]
    ours.turns[1].forced[0] = True
    written = json.loads(json.dumps(to_record(ours)))
    assert format_of(written) == "fieldnotes"
    assert written["stopped"] == "task_complete" and written["n_turns"] == 3
    first, last = written["turns"][0], written["turns"][-1]
    assert first["action"] == {"kind": "shell", "cmd": "echo one"} and last["action"] == {"kind": "done", "cmd": None}
    assert first["observation"] == {"exit_code": 0, "stdout": "ok echo one", "stderr": "", "timed_out": False}
    assert first["token_ids"] == ours.turns[0].ids and first["attempts"] == 2 and first["truncated"] is False
    assert first["seed"] == ours.turns[0].seed
    assert written["final_grade"] == {
        "task_id": "first",
        "passed": True,
        "n_passed": 1,
        "n_total": 1,
        "assertions": [
            {
                "kind": "file_contents_contain",
                "path": "said",
                "passed": True,
                "detail": "",
                "name": "file_contains:said",
            }
        ],
    }
    back = from_record(written)
    assert back.flat() == ours.flat() and back.prompt_ids == ours.prompt_ids
    assert [one["name"] for one in back.assertions] == [one["name"] for one in ours.assertions]


def test_assertions_keep_the_names_that_they_were_given() -> None:
    checks = [
        {"name": name, "kind": "file_matches", "verdict": verdict, "score": 1.0, "detail": ""}
        for name, verdict in (("index", "pass"), ("title", "fail"), ("file_matches:a", "pass"))
    ]
    ours = Trajectory("a", "h", 0, 0, [1], stop_reason="submitted", passed=False, rate=2 / 3, assertions=checks)
    back = from_record(json.loads(json.dumps(to_record(ours))))
    assert [(one["name"], one["verdict"]) for one in back.assertions] == [
        ("index", "pass"), ("title", "fail"), ("file_matches:a", "pass"),
    ]  # fmt: skip


def test_a_turn_that_was_never_carried_out_comes_back_as_it_was() -> None:
    turn = Turn(0, [], [65, 257], [0.0, 0.0], None, [False, False], FinishReason.STOP, "A")
    ours = Trajectory(
        "a", "h", 0, 0, [1], [turn], stop_reason="infrastructure", error="SandboxError: gone", source="fieldnotes"
    )
    written = json.loads(json.dumps(to_record(ours)))
    assert written["turns"][0]["action"] is None and written["error"] == "SandboxError: gone"
    back = from_record(written)
    assert [one.action for one in back.turns] == [""] and back.turns[0].ids == [65, 257]
    assert back.error == "SandboxError: gone" and "error" not in back.notes


@pytest.mark.parametrize("key", ["logprobs", "entropy", "forced"])
def test_lists_beside_the_ids_have_their_length(key: str) -> None:
    turn = {**RECORD["turns"][0], "token_ids": [1, 2], "context_ids": [], key: [0]}
    with pytest.raises(RecordError, match=rf"turns\[0\]\.{key}: has 1 entries for 2 token_ids"):
        from_record(record(turns=[turn], prompt_ids=[1]))


def test_a_broken_episode_goes_out_without_a_grade() -> None:
    ours = Trajectory("a", "h", 0, 0, [1], stop_reason="infrastructure", error="SandboxError: gone")
    written = to_record(ours)
    assert written["stopped"] == "agent_error" and written["final_grade"] is None
    assert from_record(written).stop_reason == "infrastructure"
    with pytest.raises(RecordError, match=r"episode 0 \(task 'a'\) has no stop reason"):
        list(to_records([Trajectory("a", "h", 0, 0, [1])]))
    said = Turn(0, [], [1], [0.0], None, [False], FinishReason.STOP, "Which one?", "message")
    with pytest.raises(RecordError, match=r"episode 0 \(task 'a'\) has messages to a user"):
        list(to_records([Trajectory("a", "h", 0, 0, [1], [said], "submitted")]))


def test_groups_go_out_as_bundles_and_come_back(tmp_path: Path) -> None:
    def attempt(number: int, reward: float | None, **changes: Any) -> Trajectory:
        one = from_record(record(task_id=changes.pop("task_id", "tidy-1")))
        one.attempt, one.reward, one.sampling = number, reward, "T=0.8"
        one.environment = {"reward": "shaped"}
        return one

    gone = attempt(2, None)
    gone.stop_reason, gone.error, gone.passed = "infrastructure", "SandboxError: gone", None
    gone.turns[0].candidates = [Candidate((1,), 0.2)] * 2
    ours = [attempt(0, 1.0), attempt(1, 0.0), gone, attempt(0, 0.5), attempt(0, 0.5, task_id="b")]
    written = json.loads(json.dumps(list(to_bundles(ours))))
    assert [(one["task_id"], one["k"]) for one in written] == [("tidy-1", 3), ("tidy-1", 1), ("b", 1)]
    first = written[0]
    assert (first["temperature"], first["reward_mode"]) == (0.8, "shaped")
    assert (first["rewards"], first["advantages"]) == ([1.0, 0.0, None], [1.0, -1.0, None])
    assert first["rewards_stats"] == {"mean": 0.5, "stdev": 0.5, "min": 0.0, "max": 1.0, "spread": 1.0}
    assert (first["stops"], first["n_turns"]) == (["task_complete", "task_complete", "agent_error"], [4, 4, 4])
    assert first["rollouts"][2]["tds_regen_attempts"] == 2 and first["rollouts"][2]["passed"] is None
    path = tmp_path / "trajectory_bundle.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in written))
    back = list(read_trajectories(path))
    assert [(one.task_id, one.attempt, one.reward, one.sampling) for one in back] == [
        (one.task_id, one.attempt, one.reward, one.sampling) for one in ours
    ]
    assert [one.rate for one in back] == [0.5, 0.5, None, 0.5, 0.5]


def test_attempts_are_counted_and_samples_of_a_turn_noted(tmp_path: Path) -> None:
    told = record()
    told["turns"][0]["attempts"] = 3
    path = tmp_path / "trajectories.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in (told, record(task_id="b"), told)))
    read = list(read_trajectories(path))
    assert [(one.task_id, one.attempt) for one in read] == [("tidy-1", 0), ("b", 0), ("tidy-1", 1)]
    assert [turn.notes.get("attempts") for turn in read[0].turns] == [3.0, None, None, None]
    assert [turn["attempts"] for turn in to_record(read[0])["turns"]] == [3, 1, 1, 1]


def test_exchanges_are_the_turns_that_did_something() -> None:
    first, slow, done = exchanges(record())
    assert first.reply == RECORD["turns"][0]["agent_response"] and first.command == "ls"
    assert first.result is not None and first.result.stdout_text == "a\n" and first.shown is None
    assert slow.result is not None and slow.result.timed_out and slow.result.stderr_text == "too long"
    assert (done.command, done.result) == (None, None)
    cut = record()
    cut["turns"][0]["agent_response"] = CUT
    assert exchanges(cut)[0].reply is None and exchanges(cut)[0].command == "ls"
    written = json.loads(json.dumps(to_record(from_record(record()))))
    assert exchanges(written)[0].shown == "stdout:\na\n", "what we wrote is what the agent saw"
