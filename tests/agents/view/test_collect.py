from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

import pytest

from agents.commands import UsageError
from agents.credited import advantages_file, key_of, write_advantages
from agents.records import RecordFile
from agents.trajectory import RecordError
from agents.view import collect
from agents.view.collect import Collection, Part, origin
from agents.view.pack import Tokenizers
from agents.view.wanted import Wanted
from tests.agents.view.made import episode, failed, run_folder, turn, write


def collection(*sources: Path, **settings: Any) -> Collection:
    return Collection(sources, Tokenizers(), Wanted(), **settings)


def tasks(parts: list[Part]) -> list[str]:
    return [row[0] for part in parts for row in part.rows]


@pytest.mark.parametrize(
    ("name", "step", "arm"),
    [
        ("step_000012.jsonl", 12, "training"),
        ("step_000040_sampled.jsonl", 40, "held-out sampled"),
        ("confirm_best_greedy.jsonl", None, "confirmed best greedy"),
        ("episodes_sampled.jsonl", None, "sampled"),
        ("episodes_sampled.partial.jsonl", None, "sampled"),
        ("mine.jsonl", None, ""),
    ],
)
def test_a_name_says_where_episodes_come_from(name: str, step: int | None, arm: str) -> None:
    assert origin(Path(name)) == (step, arm)


def test_a_run_tells_its_story_in_order(tmp_path: Path) -> None:
    found = collection(run_folder(tmp_path))
    parts = list(found.refresh())
    assert [(part.file, part.step, part.arm, len(part.rows)) for part in parts] == [
        ("trajectories/step_000001.jsonl", 1, "training", 3),
        ("held_out/step_000002_greedy.jsonl", 2, "held-out greedy", 1),
        ("trajectories/step_000002.jsonl", 2, "training", 2),
    ]
    assert found.intents == {"merge": "Merge the two lists."}
    assert {part.run for part in parts} == {""}
    assert list(found.refresh()) == []


def test_copies_and_what_was_taken_back_are_left_out(tmp_path: Path) -> None:
    run_folder(tmp_path)
    for name in ("superseded", "checkpoint-2", ".hidden"):
        write(tmp_path / name / "step_000009.jsonl", [episode("old")])
    assert "old" not in tasks(list(collection(tmp_path).refresh()))


def test_several_runs_are_told_apart(tmp_path: Path) -> None:
    runs = [run_folder(tmp_path / name) for name in ("a", "b")]
    below, named = collection(tmp_path), collection(*runs)
    assert {part.run for part in below.refresh()} == {"a", "b"}
    assert {part.run for part in named.refresh()} == {str(run) for run in runs}
    for found in (below, named):
        keys = [(part.file, part.first) for part in found.parts]
        assert len(set(keys)) == len(keys)


def test_parts_are_small_and_count_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "PART_BYTES", 2000)
    path = write(tmp_path / "mine.jsonl", [failed(f"t{n}") for n in range(5)])
    parts = list(collection(path).refresh())
    assert len(parts) > 1 and tasks(parts) == [f"t{n}" for n in range(5)]
    assert [part.first for part in parts] == [sum(len(p.rows) for p in parts[:n]) for n in range(len(parts))]
    assert all(len(json.loads(zlib.decompress(part.packed))) == len(part.rows) for part in parts)


def test_what_is_written_later_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path / "episodes_greedy.partial.jsonl", [episode("t0")])
    found = collection(tmp_path, growing=True)
    assert tasks(list(found.refresh())) == ["t0"]
    whole = (tmp_path / "x.jsonl", [episode("t1")])
    line = write(*whole).read_bytes()
    whole[0].unlink()
    with open(path, "ab") as file:
        file.write(line[:100])
        file.flush()
        assert list(found.refresh()) == []  # a line without its end is not read yet
        file.write(line[100:])
    (part,) = found.refresh()
    assert (part.first, tasks([part])) == (1, ["t1"])
    os.replace(write(tmp_path / "new", [episode("u0"), episode("u1")]), tmp_path / "episodes_greedy.jsonl")
    path.unlink()
    assert tasks(list(found.refresh())) == tasks(found.parts) == ["u0", "u1"]  # those of the partial file are gone


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    path = write(tmp_path / "step_000001.jsonl", [episode("a"), episode("b")])
    found = collection(path, growing=True)
    first = [part.id for part in found.refresh()]
    os.replace(write(tmp_path / "new", [episode("c")]), path)
    again = list(found.refresh())
    assert tasks(again) == tasks(found.parts) == ["c"] and again[0].id > max(first)


def test_advantages_that_come_later_are_put_to_their_turns(tmp_path: Path) -> None:
    run_folder(tmp_path)
    found = collection(tmp_path, growing=True)

    def noted(part: Part) -> list[float | None]:
        return [one.get("notes", {}).get("advantage") for one in json.loads(zlib.decompress(part.packed))[0]["turns"]]

    first, *_ = found.refresh()
    assert set(noted(first)) == {None}
    played = next(RecordFile(tmp_path / first.file).read())
    wanted = [0.25 * (place + 1) for place, _ in enumerate(played.turns)]
    path = advantages_file(tmp_path, tmp_path / first.file)
    path.parent.mkdir()
    write_advantages(path, {key_of(played): wanted})
    (again,) = found.refresh()
    assert (again.file, tasks([again]), noted(again)) == (first.file, tasks([first]), wanted)
    assert list(found.refresh()) == []


def test_what_is_no_episode_is_an_error_where_it_was_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not there"):
        collection(tmp_path / "nothing")
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n')
    assert list(collection(tmp_path).refresh()) == []
    with pytest.raises(RecordError, match=r"metrics.jsonl:1: .*known format"):
        list(collection(tmp_path / "metrics.jsonl").refresh())
    cut = write(tmp_path / "cut.jsonl", [episode("a"), episode("b")])
    cut.write_bytes(cut.read_bytes()[:-50])
    with pytest.raises(RecordError, match="the last line is cut"):
        list(collection(cut).refresh())
    assert tasks(list(collection(cut, allow_cut=True).refresh())) == ["a"]


def test_foreign_formats_are_shown_too(tmp_path: Path) -> None:
    path = tmp_path / "generations.jsonl"
    path.write_text('{"step": 7, "prompt": "2+2", "completion": "4", "reward": 1.0}\n')
    (part,) = collection(path).refresh()
    assert part.rows[0][-1] == 7 and part.rows[0][0].startswith("retrain:")


def test_who_only_looks_reads_no_log_probabilities(tmp_path: Path) -> None:
    odd = episode(turns=[turn(0, 'say "logprobs": [1, 2] and \\"max_logprobs": [3]')])
    odd.turns[0].max_logprobs = [-0.25] * len(odd.turns[0].ids)
    odd.notes = {"logprobs": 1}
    path = write(tmp_path / "e.jsonl", [odd])
    (whole,), (looked,) = RecordFile(path).read(), RecordFile(path, logprobs=False).read()
    assert whole.turns[0].logprobs and whole.turns[0].max_logprobs
    for one in whole.turns:
        one.logprobs = one.max_logprobs = None
    assert looked == whole
    path.write_text(json.dumps(odd.to_json()) + "\n", encoding="utf-8")  # with spaces, as releases before wrote it
    assert list(RecordFile(path, logprobs=False).read()) == [whole]
