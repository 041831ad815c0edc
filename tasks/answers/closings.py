"""How a reply without a marker closes: which of its last numbers is the answer, and where that answer ends.

The last number of a reply need not be its answer: `366 downloads over the 3 months`, `20 laps (40 lengths)`, `63 m^2`,
`so it is $16. If she sold all, it would be $18`. It is found in this order:

1. to 4. `remarks`: what stands behind it in sentences of its own is left out.
5. `number_words.spelled`: a last sentence with its number in words is read with digits.
6. `CLAUSES`: inside the last sentence, what only explains an earlier number is cut. The first rule that applies cuts;
   then all are tried again. The rules go by words (`clauses`), or by the values of the numbers (`restated`).

Where no rule applies with certainty nothing is cut, and the last number stands. Most replies end so plainly that no
rule is tried: `usual_endings`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from tasks.answers.clauses import (
    Closing,
    adjunct,
    aside,
    attribute,
    behind_result,
    clock,
    excepted,
    given,
    known,
    named,
    power,
    reason,
    said_of_result,
    tested,
)
from tasks.answers.number_words import proof, proves_another
from tasks.answers.numbers import SENTENCE, before, numbers_in
from tasks.answers.remarks import MOST_CUTS, WINDOW
from tasks.answers.restated import (
    again,
    compared,
    from_to,
    in_brackets,
    left_over,
    other_terms,
    supplement,
    worked_out,
)


class _Clause(NamedTuple):
    """A kind of words inside a sentence that are cut behind an answer."""

    name: str
    example: str
    cut: Callable[[Closing], int | None]


CLAUSES = (
    _Clause("a test", "So it is 12| (3 + 9 = 12, as required).", tested),
    _Clause("what it is", "22| is the largest; the smallest is 11.", named),
    _Clause("an aside", "So they need 4 vans|; 3 would only carry 18.", aside),
    _Clause("an exception", "She earns $484|... although after taxes it is $411.", excepted),
    _Clause(
        "what may be said of a result", "4 + 26 = 30. She runs 30 km|, and on Saturday she'd run 9.", said_of_result
    ),
    _Clause("a time of day", "It ends 140| minutes after 18:30, that's at 20:50.", clock),
    _Clause("a reason", "She needs 33| because there is 1 in each of the 33 bags.", reason),
    _Clause("an attribute", "It takes 20 minutes to fill the |300-liter tank.", attribute),
    _Clause("what it is worked out from", "720| = 180 * 4", worked_out),
    _Clause("in other terms", "It is $4| per child, or 5 * 4 = $20 for the class.", other_terms),
    _Clause("the same again", "So they need 55| chairs: 5 rows of 11.", again),
    _Clause("what comes of it", "9 + 12 = 21. So each pays $21|, making $63 altogether.", supplement),
    _Clause("a comparison", "Ben has 80 stamps|, 40 more than Anna.", compared),
    _Clause("what is left over", "So he can buy 33| pens and has $1 left over.", left_over),
    _Clause("a power of a unit", "The garden has 63 |m^2.", power),
    _Clause("brackets", "The swimmer needs 20 laps |(40 lengths).", in_brackets),
    _Clause("from and to", "So gold rose by $300|, from $1,500 to $1,800.", from_to),
    _Clause("what went into it", "3 * 24 = 72. So Omar has 72| coins and Lily has 24 coins.", given),
    _Clause("what is said of a result", "40 - 14 = 26| kids did not get 2 hotdogs.", behind_result),
    _Clause("where, when, for whom", "So it had 366| downloads over the 3 months.", adjunct),
    _Clause("what is known", "After 5 weeks he has the full $|120.", known),
)
"""What is cut behind an answer, in the order in which it is tried; a bar in an example shows where that begins."""
_LAST = re.compile(
    r"= ?-?\$?-?[0-9](?:,?[0-9])*(?:\.[0-9]+)?(?:>>-?\$?[0-9](?:,?[0-9])*(?:\.[0-9]+)?)?"
    r"(?:[ *.]|[a-z]{1,20}(?=[ *.])|[a-z]{1,20}\Z)*\Z"
)
"""What stands behind the last sign of equality is the answer, but in a reason: the most usual ending."""
_LAST_LENGTH = 80
SAYS_AGAIN = re.compile(r"(?:, or|, which is)\b|\b(?:must|needs?|should)\b[^.:\n0-9]{0,15}[0-9][^.:\n]{0,20}: ")
"""What may stand before an equation that does not end with the answer."""


def answer_end(text: str) -> int:
    """Return where the answer of a reply ends at the latest: the length of the text where nothing is to be left out."""
    end = len(text)
    for _ in range(MOST_CUTS):
        edge = max(0, end - WINDOW)
        usual = _LAST.search(text, max(0, end - _LAST_LENGTH), end) and not SAYS_AGAIN.search(text, edge, end)
        shown = proof(text, edge, end) if usual else None
        if usual and not (shown and proves_another(text, sentence_start(text, end) or edge, end)):
            break
        cut = _cut(text, end)
        if cut is None:
            break
        end = cut
    return end


def _cut(text: str, end: int) -> int | None:
    """One cut: a place after an earlier number and before the last one; None where the last one may be the answer."""
    start = sentence_start(text, end)
    if start is None:
        return None
    found = [core for core in numbers_in(text, start, end) if not _is_glued(text, core.start())]
    if len(found) < 2:
        return None
    closing = Closing(text, start, end, found)
    for rule in CLAUSES:
        at = rule.cut(closing)
        if at is not None:
            return at if at < end else None
    return None


def _is_glued(text: str, start: int) -> bool:
    """Whether a number is a part of a word, such as the 4 of `A4`; asks at length only where that is possible."""
    return start > 0 and text[start - 1] not in " =(<>\n+-*/,:" and before(text, start).glued


def sentence_start(text: str, end: int) -> int | None:
    """Where the last sentence with a digit begins; None where that is too far away."""
    edge = max(0, end - WINDOW)
    digit = next((at for at in range(end - 1, edge - 1, -1) if text[at].isdigit()), None)
    if digit is None:
        return None
    line = text.rfind("\n", edge, digit) + 1 or edge
    starts = [found.end() for found in SENTENCE.finditer(text, line, digit + 1) if found.end() <= digit]
    return starts[-1] if starts else (line if line > edge or edge == 0 else None)
