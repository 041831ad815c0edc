from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pytest

from tasks.settings import Rules, Settings, idle, never, problems, setting, unless, without, written


class Kind(StrEnum):
    PLAIN = "plain"
    FANCY = "fancy"


@dataclass
class Made(Settings):
    kind: Kind = setting(Kind.PLAIN, "What it is.", choices=Kind)
    cap: int | None = setting(None, "Most of it; 0 = no cap.", off=0, above=0, why="it is a cap")
    share: float = setting(0.5, "Part of it.", low=0, below=1, needs=(without("kind", "fancy"),))
    rate: float = setting(
        1.0, "How often.", needs=(unless(lambda c: c.cap is None, " without a cap of {c.kind} things"),)
    )
    fixed: float = setting(1.0, "Never changed.", refused="it would break. Leave it at 1.")
    bound: int = setting(3, "Goes with a cap.", requires=(without("cap"),))
    token: str | None = setting(None, "A secret.", requires=(never("nothing is sent"),), secret=True)


def test_what_people_write_is_what_the_code_reads_and_back() -> None:
    made = Made(kind="fancy", cap=0)  # type: ignore[arg-type]
    assert made.kind is Kind.FANCY and made.cap is None
    assert written(made) == {
        "kind": "fancy", "cap": 0, "share": 0.5, "rate": 1.0, "fixed": 1.0, "bound": 3, "token": None,
    }  # fmt: skip
    assert written(Made(cap=7))["cap"] == 7


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"kind": "fancier"}, "kind='fancier': one of plain, fancy."),
        ({"cap": -1}, "cap=-1: above 0, or 0 to leave it out; it is a cap."),
        ({"share": 1.0, "kind": "fancy"}, "share=1.0: 0 or more, below 1."),
        ({"share": float("nan")}, "share=nan: 0 or more, below 1."),
        ({"rate": float("inf")}, "rate=inf: a finite number."),
        ({"fixed": 2.0}, "fixed=2.0: it would break. Leave it at 1."),
        ({"bound": 4}, "bound=4: does nothing without cap. Set that too, or leave it out."),
        ({"token": "abc"}, "token: does nothing: nothing is sent. Leave it out."),
    ],
    ids=str,
)
def test_a_value_that_is_not_taken_is_one_line(given: dict[str, Any], line: str) -> None:
    assert list(problems(Made(**given))) == [line]
    assert list(problems(Made(**given), only=("unknown",))) == []


def test_what_does_nothing_says_so_and_what_acts_does_not() -> None:
    assert list(problems(Made())) == [] and list(idle(Made())) == []
    assert list(idle(Made(share=0.1, rate=2.0))) == [
        "share=0.1 does nothing without kind=fancy",
        "rate=2.0 does nothing without a cap of plain things",
    ]
    assert list(idle(Made(kind=Kind.FANCY, share=0.1, rate=2.0, cap=1))) == []


def test_fields_of_others_have_their_rules_beside() -> None:
    @dataclass
    class Other:
        theirs: int = 1

    assert list(problems(Other(theirs=0), {"theirs": Rules(low=1)})) == ["theirs=0: 1 or more."]
