from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from agents.chat import ChatTemplate
from agents.policies.scripted import OraclePolicy
from agents.policy import Candidate, FinishReason, Sampling
from agents.rollout import Job, RolloutEngine
from agents.seeds import derive_seed
from agents.trajectory import RecordError, Trajectory, Turn, groups, read_jsonl, write_jsonl
from tasks.model import LONE_SURROGATES
from tests.agents.fakes import FakeEnv, task


def turn(index: int, context: list[int], ids: list[int], forced: list[bool]) -> Turn:
    return Turn(index, context, ids, [-0.1 * i for i in ids], [0.5] * len(ids), forced, FinishReason.STOP, "text")


def test_flat_masks_what_was_not_sampled() -> None:
    trajectory = Trajectory("a", "h", 0, 0, [1, 2])
    trajectory.turns = [turn(0, [], [3, 4, 5], [False, True, False]), turn(1, [6, 7], [8], [False])]
    flat = trajectory.flat()
    assert flat.ids == [3, 4, 5, 6, 7, 8]
    assert flat.mask == [1, 0, 1, 0, 0, 1]
    assert flat.turn_ids == [0, -1, 0, -1, -1, 1]
    assert flat.logprobs == pytest.approx([-0.3, 0, -0.5, 0, 0, -0.8])
    assert flat.entropies == [0.5, 0.0, 0.5, 0.0, 0.0, 0.5]


def test_jsonl_gives_the_same_trajectory_back(tmp_path: Path) -> None:
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=2, workers=2) as engine:
        played = engine.run([Job(task(), i, i) for i in range(3)], Sampling(0.0, 100)).trajectories
    played[0].turns[0].candidates = [Candidate((1, 2), None), Candidate((3,), 0.5)]
    played[1].error = "naïve \ud83d\ude00 \u2028 text".encode("utf-16", "surrogatepass").decode("utf-16")
    path = tmp_path / "t.jsonl"
    with open(path, "w", encoding="utf-8") as file:
        write_jsonl(played, file)
    assert list(read_jsonl(path)) == played
    assert list(groups(played)) == ["first"]


def test_lone_surrogates_come_back(tmp_path: Path) -> None:
    episode = Trajectory("a", "h", 0, 0, [1], [turn(0, [], [3], [False])])
    episode.turns[0].reply = "x\ud83d \\ud83d"
    with open(tmp_path / "t.jsonl", "w", encoding="utf-8", errors=LONE_SURROGATES) as file:
        write_jsonl([episode], file)
    assert list(read_jsonl(tmp_path / "t.jsonl")) == [episode]


def test_numbers_that_are_none_come_back_from_readable_json(tmp_path: Path) -> None:
    episode = Trajectory("a", "h", 0, 0, [1], [turn(0, [], [3], [False])])
    episode.turns[0].logprobs = [float("-inf")]
    with open(tmp_path / "t.jsonl", "w", encoding="utf-8") as file:
        write_jsonl([episode], file)
    assert '"logprobs":[-Infinity]' in (tmp_path / "t.jsonl").read_text(encoding="utf-8")
    assert list(read_jsonl(tmp_path / "t.jsonl")) == [episode]


def stored(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def line(**changes: Any) -> str:
    """A record with one turn."""
    trajectory = Trajectory("a", "h", 0, 0, [1, 2], [turn(0, [], [3, 4], [False, False])])
    return json.dumps({**trajectory.to_json(), **changes})


def changed(**changes: Any) -> str:
    """The same with changes in its turn."""
    record = json.loads(line())
    record["turns"][0] |= changes
    return json.dumps(record)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ('{"task_id": 1}', "not a trajectory"),
        ("[]", "must be a JSON object, is list"),
        ('{"task_id"', "is no JSON"),
        (line(rewrd=1.0), r"rewrd: unknown key 'rewrd': did you mean 'reward'\?"),
        (changed(logprob=[]), r"turns\[0\]\.logprob: unknown key 'logprob': did you mean 'logprobs'\?"),
        (changed(candidates=[{"ids": [1], "signal": None, "idz": 1}]), r"candidates\[0\]\.idz: unknown key"),
        (changed(logprobs=[-0.1, "x"]), r"turns\[0\]\.logprobs\[1\]: input should be a valid number"),
        (changed(logprobs=[-0.1]), r"turns\[0\]\.logprobs: has 1 entries for 2 ids"),
        (changed(finish="stopp"), r"turns\[0\]\.finish: input should be 'stop'"),
        (line(reward="0.5"), "reward: input should be a valid number"),
        (line(reward=float("nan")), "reward: input should be a finite number"),
        (line(rate=float("inf")), "rate: input should be a finite number"),
        (line(passed="yes"), "passed: input should be a valid boolean"),
        (line(attempt="1"), "attempt: input should be a valid integer"),
        (line(prompt_ids=[1, 2.0]), r"prompt_ids\[1\]: input should be a valid integer"),
        (changed(forced=["no", "yes"]), r"turns\[0\]\.forced\[0\]: input should be a valid boolean"),
        (
            changed(candidates=[{"ids": ["1"], "signal": None}]),
            r"candidates\[0\]\.ids\[0\]: input should be a valid int",
        ),
        (changed(index=1), r"turns\[0\]\.index: is 1, must be 0"),
        (line(turns=json.loads(line())["turns"] * 2), r"turns\[1\]\.index: is 0, must be 1"),
        (line(stop_reason="tired"), "stop_reason: 'tired' is unknown; known are submitted, max_turns"),
        (line(schema=99), "schema: 99 is unknown here"),
        (json.dumps({k: v for k, v in json.loads(line()).items() if k != "attempt"}), "attempt: is missing"),
    ],
)
def test_a_bad_line_is_named_with_its_key(tmp_path: Path, bad: str, message: str) -> None:
    path = stored(tmp_path / "t.jsonl", line(), "", bad, line())
    episodes = read_jsonl(path)
    assert next(episodes).task_id == "a"  # what stands before it was read
    with pytest.raises(RecordError, match=rf"t\.jsonl:3: .*{message}"):
        next(episodes)


def test_a_record_of_the_first_release_is_read(tmp_path: Path) -> None:
    record = json.loads(line())
    for key in ("schema", "tokenizer"):
        del record[key]
    for key in ("max_logprobs", "entropy_bounds", "seed", "max_tokens", "timed_out"):
        del record["turns"][0][key]
    (episode,) = read_jsonl(stored(tmp_path / "t.jsonl", json.dumps(record)))
    assert episode.turns[0].ids == [3, 4] and episode.turns[0].seed is None and episode.notes == {}
    assert episode.flat().ids == [3, 4]


def test_intervals_come_back_and_files_from_before_them_are_readable(tmp_path: Path) -> None:
    trajectory = Trajectory("a", "h", 0, 0, [1, 2], turns=[turn(0, [], [3], [False])])
    trajectory.turns[0].uncertainty_bounds = (0.25, 0.5)
    trajectory.turns[0].candidates = [Candidate((4,), None, (0.1, 0.2))]
    record = json.loads(json.dumps(trajectory.to_json()))
    assert Trajectory.from_json(record) == trajectory
    del record["turns"][0]["uncertainty_bounds"], record["turns"][0]["candidates"][0]["signal_bounds"]
    old = Trajectory.from_json(record)
    assert old.turns[0].uncertainty_bounds is None and old.turns[0].candidates == [Candidate((4,), None)]


def test_a_last_line_that_was_never_finished(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{line()}\n{line(task_id='b')}\n{line()[:100]}")
    with pytest.raises(RecordError, match=r"t\.jsonl:3: the last line is cut.*allow_cut"):
        list(read_jsonl(path))
    assert [episode.task_id for episode in read_jsonl(path, allow_cut=True)] == ["a", "b"]
    assert "t.jsonl:3: left out the last line, which is cut" in caplog.text
    path.write_text(f"{line()[:100]}\n{line()}\n")  # a broken line elsewhere is no cut
    with pytest.raises(RecordError, match=r"t\.jsonl:1: is no JSON"):
        list(read_jsonl(path, allow_cut=True))


def test_whole_numbers_stand_for_numbers(tmp_path: Path) -> None:
    (episode,) = read_jsonl(stored(tmp_path / "t.jsonl", changed(logprobs=[-1, 0], entropy_bounds=[[0, 1], [0, 2]])))
    assert episode.turns[0].logprobs == [-1.0, 0.0] and episode.turns[0].entropy_bounds == [(0.0, 1.0), (0.0, 2.0)]
    assert Trajectory.from_json(json.loads(line(reward=1))).reward == 1.0


def test_a_last_line_that_was_cut_in_the_middle_of_a_character(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.jsonl"
    whole, cut = f"{line()}\n".encode(), '{"task_id": "日'.encode()[:-1]
    path.write_bytes(whole + cut)
    with pytest.raises(RecordError, match=r"t\.jsonl:2: the last line is cut"):
        list(read_jsonl(path))
    assert [episode.task_id for episode in read_jsonl(path, allow_cut=True)] == ["a"]
    assert "t.jsonl:2: left out the last line" in caplog.text
    path.write_bytes(whole + cut + b"\n" + whole)
    with pytest.raises(RecordError, match=r"t\.jsonl:2: is no UTF-8 text"):
        list(read_jsonl(path, allow_cut=True))


def test_reading_is_lazy(tmp_path: Path) -> None:
    path = stored(tmp_path / "t.jsonl", *[line()] * 3, "broken")
    assert len(list(islice(read_jsonl(path), 3))) == 3


def test_what_an_audit_needs_is_recorded() -> None:
    policy = OraclePolicy()
    with RolloutEngine(policy, FakeEnv, slots=1, workers=1) as engine:
        (episode,) = engine.run([Job(task(), 1, 0)], Sampling(0.0, 100)).trajectories
    assert [one.seed for one in episode.turns] == [derive_seed(0, "first", 1, index) for index in range(3)]
    assert [one.max_tokens for one in episode.turns] == [100] * 3
    assert [one.timed_out for one in episode.turns] == [False] * 3
    assert episode.tokenizer == ChatTemplate(policy.tokenizer).fingerprint
    assert episode.environment["prompt_style"] == "compact" and episode.environment["max_turns"] == 6
    assert episode.sampling == "greedy, max_tokens=100"


def test_text_is_not_trained_on() -> None:
    text = Turn(0, [], [], None, None, [], None, "ls")
    episode = Trajectory("a", "", 0, None, [], [text], source="fieldnotes")
    assert episode.text_only
    with pytest.raises(ValueError, match="task 'a', attempt 0, turn 0: a record of text without ids"):
        episode.flat()
    episode.turns = [turn(0, [], [3], [False])]
    with pytest.raises(ValueError, match="the ids before its first reply are unknown"):
        episode.flat()
    episode.prompt_ids = [1]
    assert episode.flat().ids == [3]
    episode.turns[0].logprobs = None
    with pytest.raises(ValueError, match="no log-probabilities were recorded"):
        episode.flat()
