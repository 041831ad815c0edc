from __future__ import annotations

import pytest

from tasks.families.quickstart import ALL_WORDS, FILE_NAMES, FOLDERS, NUMBERS, WORDS


def test_words_are_distinct_lower_case_ascii() -> None:
    assert len(set(ALL_WORDS)) == len(ALL_WORDS)
    for word in ALL_WORDS:
        assert word.isascii() and word == word.lower() and " " not in word


def test_each_file_name_has_its_own_stem() -> None:
    stems = [name.partition(".")[0] for name in FILE_NAMES]
    assert len(set(stems)) == len(stems) >= 60
    assert {name.partition(".")[2] for name in FILE_NAMES} == {"txt", "md", "csv", "log"}


@pytest.mark.parametrize("group", [FILE_NAMES + FOLDERS, WORDS], ids=["names", "words"])
def test_no_word_begins_with_another(group: tuple[str, ...]) -> None:
    clashes = [(a, b) for a in group for b in group if a != b and b.startswith(a)]
    assert clashes == []


def test_no_content_word_is_part_of_another() -> None:
    assert [(a, b) for a in WORDS for b in WORDS if a != b and a in b] == []


def test_numbers_are_single_digits() -> None:
    assert all(number.isdigit() and len(number) == 1 for number in NUMBERS)
