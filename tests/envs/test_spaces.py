from __future__ import annotations

import copy
import multiprocessing
import pickle

import numpy as np
import pytest
from gymnasium.spaces.utils import flatten, flatten_space
from gymnasium.vector.utils import batch_space
from gymnasium.vector.utils.shared_memory import (
    create_shared_memory,
    read_from_shared_memory,
    write_to_shared_memory,
)

from envs.spaces import UnicodeText

TEXTS = [
    "",
    "a b\n\tc",
    "donne\u0301es/rapport e\u0301te\u0301 2024.csv",
    "\ufffd\ufffe",
    "\U0001f600" * 3,
    "\0\x1b[0m",
    "\ud800",
]


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_is_inside(text: str) -> None:
    assert text in UnicodeText(100)


def test_length_and_type_decide() -> None:
    space = UnicodeText(3, min_length=1)
    assert "abc" in space and np.str_("ab") in space
    assert "" not in space and "abcd" not in space
    assert b"abc" not in space and 3 not in space and None not in space


def test_samples_are_inside_short_and_seeded() -> None:
    space = UnicodeText(1_000_000, seed=0)
    drawn = [space.sample() for _ in range(50)]
    assert all(text in space and len(text) <= 64 for text in drawn)
    assert len(set(drawn)) > 10
    space.seed(0)
    assert [space.sample() for _ in range(50)] == drawn
    assert len(UnicodeText(200, min_length=100).sample()) == 100
    assert len(space.sample(mask=(7, None))) == 7


def test_spaces_with_equal_bounds_are_equal() -> None:
    space = UnicodeText(5)
    assert space == UnicodeText(5) and space != UnicodeText(6) and space != UnicodeText(5, min_length=1)
    for twin in (pickle.loads(pickle.dumps(space)), copy.deepcopy(space)):
        assert twin == space and twin.sample() in space
    assert repr(space) == "UnicodeText(5, min_length=0)"


def test_it_batches() -> None:
    batch = batch_space(UnicodeText(9), 2)
    assert ("a", "\u00e9") in batch
    assert all(text in UnicodeText(9) for text in batch.sample())


def test_shared_memory_shows_what_was_written_last() -> None:
    space = UnicodeText(20)
    memory = create_shared_memory(space, n=3, ctx=multiprocessing.get_context())
    view = read_from_shared_memory(space, memory, n=3)
    assert tuple(view) == ("", "", "")
    for index, text in enumerate(["x" * 20, "\U0001f600" * 20, "e\u0301 \n"]):
        write_to_shared_memory(space, index, text, memory)
    taken = copy.deepcopy(view)
    assert taken == ("x" * 20, "\U0001f600" * 20, "e\u0301 \n")
    assert type(taken) is tuple
    write_to_shared_memory(space, 0, "new", memory)
    assert view[0] == "new" and taken[0] == "x" * 20
    assert len(view) == 3 and view[1:] == taken[1:]
    with pytest.raises(ValueError, match="is not in"):
        write_to_shared_memory(space, 0, "\U0001f600" * 21, memory)


def test_there_is_no_flat_form() -> None:
    space = UnicodeText(5)
    assert not space.is_np_flattenable
    with pytest.raises(NotImplementedError):
        flatten_space(space)
    with pytest.raises(NotImplementedError):
        flatten(space, "abc")
