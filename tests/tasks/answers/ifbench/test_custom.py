from __future__ import annotations

import string

import pytest

from tasks.answers.ifbench.base import AFRICA, CAPITALS, OPTIONAL_AFRICA, plain
from tests.tasks.answers.ifbench.readings import BOTH, NEITHER, ONLY_FIXED, ONLY_PUBLISHED, readings

COUNTRIES = sorted(
    set(AFRICA.values()) - OPTIONAL_AFRICA - {"Côte d'Ivoire"} | {"Ivory Coast"}, key=plain, reverse=True
)
# Longer than one letter: "A." would be an initial to the splitter.
STORY = " ".join(f"{letter}xy went on." for letter in string.ascii_uppercase)
QUESTIONS = [
    f"Question {number}. Wh{'o' * number} was it?\n" + "\n".join(f"{label}) x" for label in "ABCDE")
    for number in range(1, 5)
]


@pytest.mark.parametrize(
    ("id", "text", "expected"),
    [
        ("custom:multiples", "14, 21, 28, 35, 42, 49", BOTH),
        ("custom:multiples", "14,21,28,35,42,49", BOTH),
        ("custom:multiples", "7, 14, 21, 28, 35, 42, 49", NEITHER),
        ("custom:multiples", "Up to 50: 14, 21, 28, 35, 42, 49", NEITHER),
        ("custom:character_reverse", ".elgae dlab eht si tI", BOTH),
        ("custom:character_reverse", "The answer is elgae dlab", ONLY_PUBLISHED),
        ("custom:character_reverse", "elgae\ndlab", ONLY_FIXED),
        ("custom:character_reverse", "The bald eagle.", NEITHER),
        ("custom:word_reverse", "eagle bald the is It", BOTH),
        ("custom:word_reverse", "eagle bald is the national symbol", ONLY_PUBLISHED),
        ("custom:word_reverse", "It is the bald eagle", NEITHER),
        ("custom:word_reverse", "deagle bald", NEITHER),
        ("custom:sentence_alphabet", STORY, BOTH),
        ("custom:sentence_alphabet", f"# Title\n\n{STORY}", ONLY_FIXED),
        ("custom:sentence_alphabet", STORY.replace("Bxy went on.", '"Bxy went on."'), ONLY_FIXED),
        ("custom:sentence_alphabet", STORY.replace("Bxy", "Cxy"), NEITHER),
        ("custom:sentence_alphabet", STORY.removesuffix(" Zxy went on."), NEITHER),
        ("custom:european_capitals_sort", ", ".join(CAPITALS), ONLY_FIXED),
        ("custom:european_capitals_sort", ", ".join(CAPITALS).replace("Kyiv", "Kiev") + ".", ONLY_FIXED),
        ("custom:european_capitals_sort", ", ".join(CAPITALS).replace("Kyiv, ", ""), ONLY_PUBLISHED),
        ("custom:european_capitals_sort", ", ".join(CAPITALS[::-1]), NEITHER),
        ("custom:date_format_list", "1805-12-02, 1806-10-14", BOTH),
        ("custom:date_format_list", "1805-12-02", ONLY_PUBLISHED),
        ("custom:date_format_list", "1805-12-02, 1805-00-14", ONLY_PUBLISHED),
        ("custom:date_format_list", "1805-12-02, 1805-02-29", ONLY_PUBLISHED),
        ("custom:date_format_list", "1805-12-02, 1805-04-31", NEITHER),
        ("custom:date_format_list", "1805-12-02, 1905-04-30", NEITHER),
        ("custom:date_format_list", "1805-12-02, 30.4.1806", NEITHER),
        ("custom:date_format_list", "1805-12-02,", NEITHER),
        ("custom:mcq_count_length", "\n\n".join(QUESTIONS), BOTH),
        ("custom:mcq_count_length", "\n\n".join(QUESTIONS[:3]), NEITHER),
        ("custom:mcq_count_length", "\n\n".join(QUESTIONS[::-1]), NEITHER),
        ("custom:mcq_count_length", "Here you are:\n" + "\n".join(QUESTIONS), NEITHER),
        ("custom:mcq_count_length", "\n\n".join(QUESTIONS).replace("E) x", "A) x"), ONLY_PUBLISHED),
        ("custom:mcq_count_length", "\n\n".join(QUESTIONS).replace("E) x\n", ""), NEITHER),
        ("custom:mcq_count_length", "\n".join(q.replace("Question", "**Question**:") for q in QUESTIONS), ONLY_FIXED),
        ("custom:mcq_count_length", "x", NEITHER),
        ("custom:reverse_newline", "\n".join(COUNTRIES), BOTH),
        ("custom:reverse_newline", "Here:\n" + "\n".join(f"- {name}" for name in COUNTRIES), BOTH),
        ("custom:reverse_newline", "\n".join(COUNTRIES[:1] + ["A"] * 60), ONLY_PUBLISHED),
        ("custom:reverse_newline", "\n".join(COUNTRIES[:-1]), ONLY_PUBLISHED),
        ("custom:reverse_newline", "\n".join(COUNTRIES[::-1]), NEITHER),
        ("custom:reverse_newline", "\n".join(f"{n}. {c}" for n, c in enumerate(COUNTRIES, 1)), ONLY_FIXED),
        ("custom:reverse_newline", "\n".join(COUNTRIES).replace("Zambia", "Western Sahara\nZambia"), NEITHER),
        ("custom:reverse_newline", "\n".join(COUNTRIES).replace("Uganda", "Western Sahara\nUganda"), BOTH),
        ("custom:reverse_newline", "nothing", NEITHER),
    ],
    ids=lambda value: str(value)[:40],
)
def test_readings(id: str, text: str, expected: tuple[bool, bool]) -> None:
    assert readings(id, text) == expected


def test_every_name_of_a_country_is_known() -> None:
    assert len(set(AFRICA.values()) - OPTIONAL_AFRICA) == 54
    assert AFRICA["drcongo"] == AFRICA["congokinshasa"] == "Democratic Republic of the Congo"
    assert AFRICA["cotedivoire"] == AFRICA["ivorycoast"]


@pytest.mark.parametrize("spelling", ["São Tomé and Príncipe", "Sao Tome and Principe", "São Tomé & Príncipe"])
def test_accents_do_not_matter(spelling: str) -> None:
    listed = [spelling if name.startswith("São") else name for name in COUNTRIES]
    assert readings("custom:reverse_newline", "\n".join(listed))[1]
