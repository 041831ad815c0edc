from __future__ import annotations

from pathlib import Path

import pytest

from agents.credited import EpisodeKey, advantages_file, key_of, put_in, read_advantages, write_advantages
from agents.trajectory import RecordError
from tests.agents.view.made import episode, turn


def test_advantages_come_back_with_four_digits_and_whole_seeds(tmp_path: Path) -> None:
    path = tmp_path / "step_000001.json"
    key = EpisodeKey("a", 1, 2**62 + 1)
    write_advantages(path, {key: [0.123456, None, -2.0], EpisodeKey("\ud800", 0, None): []})
    assert read_advantages(path) == {key: [0.1235, None, -2.0], EpisodeKey("\ud800", 0, None): []}
    assert read_advantages(tmp_path / "none.json") == {}
    assert advantages_file(tmp_path, Path("trajectories/step_000001.jsonl")) == tmp_path / "advantages/step_000001.json"


@pytest.mark.parametrize("text", ["[", "{}x", '[["a", 0]]', '[["a", 0, 1, ["x"]]]', '[["a", 0, 1, 5]]', "[3]"])
def test_a_damaged_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "step.json").write_text(text)
    with pytest.raises(RecordError, match=r"step\.json: not a list of \[task, attempt, seed, advantages\]"):
        read_advantages(tmp_path / "step.json")


def test_a_turn_gets_its_own_and_an_episode_with_other_turns_none() -> None:
    one, other = episode("a", turns=[turn(0, "x"), turn(1, "y")]), episode("b", turns=[turn(0, "x")])
    put_in(one, {key_of(one): [0.5, None]})
    put_in(other, {key_of(other): [0.5, 0.5]})
    assert [t.notes.get("advantage") for t in (*one.turns, *other.turns)] == [0.5, None, None]
