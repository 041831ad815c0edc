from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from trainers.errors import RunFolderError
from trainers.jsonl import append_line, cut_lines, plain, read_lines, write_json


def test_torn_last_line_is_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    append_line(path, {"step": 1})
    append_line(path, {"step": 2})
    path.write_bytes(path.read_bytes()[:-4])
    lines, torn = read_lines(path)
    assert lines == [{"step": 1}]
    assert torn is not None and ":2:" in torn and "cut" in torn


def test_a_broken_line_in_the_middle_is_an_error_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\nnot json\n{"step": 2}\n')
    with pytest.raises(RunFolderError, match=r"m\.jsonl:2: is no JSON"):
        read_lines(path)


def test_cut_keeps_what_it_drops_and_the_next_append_is_whole(tmp_path: Path) -> None:
    path, aside = tmp_path / "m.jsonl", tmp_path / "superseded" / "m.jsonl"
    for step in range(5):
        append_line(path, {"step": step})
    with open(path, "a") as file:
        file.write('{"step": 5, "rew')
    cut_lines(path, lambda r: r["step"] <= 2, aside)
    append_line(path, {"step": 3, "again": True})
    assert [r["step"] for r in read_lines(path)[0]] == [0, 1, 2, 3]
    assert read_lines(path)[1] is None
    assert [r["step"] for r in read_lines(aside)[0]] == [3, 4]


def test_numbers_of_numpy_and_torch_and_not_finite() -> None:
    got = plain({"a": np.float32(0.5), "b": torch.tensor(2), "c": float("nan"), "d": [np.int64(3), float("inf")]})
    assert got == {"a": 0.5, "b": 2, "c": None, "d": [3, None]}
    assert plain({"p": Path("a/b"), "t": (True, None)}) == {"p": "a/b", "t": [True, None]}


def test_lone_surrogates_survive(tmp_path: Path) -> None:
    append_line(tmp_path / "m.jsonl", {"text": "a\ud800b"})
    assert read_lines(tmp_path / "m.jsonl")[0] == [{"text": "a\ud800b"}]


def test_write_json_leaves_no_temporary_file(tmp_path: Path) -> None:
    write_json(tmp_path / "s.json", {"a": 1})
    assert [p.name for p in tmp_path.iterdir()] == ["s.json"]
