from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.ifbench.formats import indents_after_removal


def removed_while_walking(lines: list[str]) -> list[int]:
    """What the evaluator does, in its own quadratic way."""
    left = list(lines)
    for line in left:
        if not line.strip():
            left.remove(line)  # the defect that is to be reproduced
    return [len(line) - len(line.lstrip(" ")) for line in left]


@given(st.lists(st.sampled_from(["", " ", "  ", "\t", "a", " a", "  b", "   c"]), max_size=16))
def test_is_what_removing_while_walking_leaves(lines: list[str]) -> None:
    assert indents_after_removal(lines) == removed_while_walking(lines)


def test_blank_lines_in_a_row_are_not_all_removed() -> None:
    assert indents_after_removal(["a", "", "", " b"]) == [0, 0, 1]
