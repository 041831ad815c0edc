"""Junk of a length at which a check that takes more than linear time would not end before the deadline."""

from __future__ import annotations

import pytest

from tasks.answers.instructions import Semantics, follows
from tests.tasks.answers.ifeval.examples import EXAMPLES

LENGTH = 200_000
JUNK = {
    "brackets": "[",
    "closing brackets": "]",
    "newlines": "\n",
    "opening angles": "<<",
    "angles": "<< >",
    "shifts": "a<<b>>c",
    "open shifts": " <<b>>c",
    "underscores": "_",
    "underscored": "_sea_",
    "lone marks": "? ",
    "blanks": " ",
    "wide blanks": ".\u2003",
    "stars": "*",
    "lone stars": "* \n",
    "starred": "*a",
    "dashes": "-",
    "marks": "!",
    "dots": ".",
    "dots and blanks": ". ",
    "quotes": "\"'",
    "capitals": "I'M A.B. ",
    "letters": "a",
    "mail": "a@",
    "address": "http://a.",
    "postscript": "p. p. ",
    "sections": "Section ",
    "digits": "Section 1" + "1" * 99,
    "word": "sea ",
    "braces": '{"a":',
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("semantics", Semantics)
@pytest.mark.parametrize("name", JUNK)
def test_junk_costs_its_length(name: str, semantics: Semantics) -> None:
    unit = JUNK[name]
    text = "x" + unit * (LENGTH // len(unit)) + "x"
    for found in EXAMPLES[::2]:  # one of each id
        assert follows(found, text, semantics) in (True, False)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", ["brackets", "newlines", "opening angles", "blanks", "lone stars", "dots and blanks"])
def test_loosely_too(name: str) -> None:
    text = "first\n" + JUNK[name] * (LENGTH // len(JUNK[name])) + "x*\nlast"
    for found in EXAMPLES[::2]:
        assert follows(found, text, loose=True) in (True, False)
