"""From a reply to a verdict: the answer is found, refused where absurd, compared quickly, or else by a worker."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum

from tasks.assertions.base import Verdict
from tasks.assertions.math.extraction import find_answer, joined_boxes, last_box
from tasks.assertions.math.guards import refusal
from tasks.assertions.math.minerva import minerva_answer, minerva_form
from tasks.assertions.math.pool import Pool, Reply, Status, default_pool
from tasks.assertions.math.quick import list_length, quick_verdict


class MathMode(StrEnum):
    """Where the answer of a reply is looked for, and how it is compared."""

    FIXED = "fixed"
    """The last box, else a sentence that says so, else the maths at the end; compared by value."""
    BOXED = "boxed"
    r"""Only the last closed `\boxed{...}`; compared by value."""
    MINERVA = "minerva"
    """The final-answer sentence, else the last box; compared in the lossy spelling of the Minerva evaluation."""


class Reason(StrEnum):
    """Why a verdict is what it is, besides how a comparison ended (see `Status`)."""

    NO_ANSWER = "no_answer"
    """No answer was found in the reply."""
    REFUSED = "refused"
    """Nobody would answer that."""
    QUICK_SAME = "quick_same"
    """Equal as texts, or as plain arithmetic."""
    QUICK_DIFFERENT = "quick_different"
    """Different as plain arithmetic."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one reply.

    Attributes:
        verdict: Pass, fail or error.
        reason: Why: a `Reason`, or the `Status` of the comparison.
        answer: The answer found; None where there is none.
        detail: In one line, for people.
        broke: The answer kept the comparison from being carried out; a fail.
    """

    verdict: Verdict
    reason: Reason | Status
    answer: str | None
    detail: str = ""
    broke: bool = False


def judge(gold: str, reply: str, mode: MathMode = MathMode.FIXED, pool: Pool | None = None) -> Judgement:
    """Judge one reply against the gold answer (what stands in the box of the gold solution).

    From any thread of any process; `pool` is the one of the process where it is None. The verdict is error only where
    no worker can be started, or where comparing the gold answer with itself ends the same way.
    """
    answer = _find(reply, mode, gold)
    if answer is None:
        where = {MathMode.BOXED: r"no closed \boxed{...}", MathMode.MINERVA: "no final-answer sentence and no box"}
        return Judgement(Verdict.FAIL, Reason.NO_ANSWER, None, where.get(mode, "no answer was found in the reply"))
    if (refused := refusal(gold, answer)) is not None:
        return Judgement(Verdict.FAIL, Reason.REFUSED, answer, refused)
    quick = _quick(gold, answer, mode)
    if quick is not None:
        reason = Reason.QUICK_SAME if quick else Reason.QUICK_DIFFERENT
        return Judgement(*_decided(quick, gold, answer, reason))
    how = "minerva" if mode is MathMode.MINERVA else "fixed"
    workers = pool or default_pool()
    return _judged(workers.compare(gold, answer, how), gold, answer, workers)


def judge_many(
    pairs: Sequence[tuple[str, str]], mode: MathMode = MathMode.FIXED, pool: Pool | None = None
) -> list[Judgement]:
    """Judge pairs of gold answer and reply, as many at a time as the pool has workers; in the same order."""
    workers = pool or default_pool()
    if len(pairs) < 2 or workers.size == 1:
        return [judge(gold, reply, mode, workers) for gold, reply in pairs]
    with ThreadPoolExecutor(min(workers.size, len(pairs))) as threads:
        return list(threads.map(lambda pair: judge(pair[0], pair[1], mode, workers), pairs))


def _find(reply: str, mode: MathMode, gold: str) -> str | None:
    if mode is MathMode.MINERVA:
        return minerva_answer(reply)
    boxes = joined_boxes(reply)
    if len(boxes) > 1 and len(boxes) == list_length(gold):
        return ", ".join(boxes)
    found = last_box(reply) if mode is MathMode.BOXED else find_answer(reply)
    return found.text if found else None


def _decided(same: bool, gold: str, answer: str, reason: Reason | Status) -> tuple[Verdict, Reason | Status, str, str]:
    if same:
        return Verdict.PASS, reason, answer, ""
    return Verdict.FAIL, reason, answer, f"the answer is {_short(answer)}, not {_short(gold)}"


def _quick(gold: str, answer: str, mode: MathMode) -> bool | None:
    try:
        if mode is MathMode.MINERVA:
            return minerva_form(gold) == minerva_form(answer) or None
        return quick_verdict(gold, answer)
    except Exception:  # a worker meets it again, and it is told there whose doing it is
        return None


def _judged(reply: Reply, gold: str, answer: str, pool: Pool) -> Judgement:
    match reply.status:
        case Status.SAME | Status.DIFFERENT:
            return Judgement(*_decided(reply.status is Status.SAME, gold, answer, reply.status))
        case Status.UNREADABLE:
            detail = f"the answer cannot be read as maths: {_short(reply.detail)}"
            return Judgement(Verdict.FAIL, reply.status, answer, detail)
        case Status.GOLD_UNREADABLE:
            detail = f"the gold answer cannot be read as maths, and the answer differs from it: {_short(reply.detail)}"
        case _:
            detail = f"comparing {_short(answer)} with {_short(gold)}: {reply.detail or reply.status}"
    # What the gold answer does by itself is the task's fault; all else is the doing of whoever wrote the answer.
    if reply.status is Status.UNAVAILABLE or pool.gold_outcome(gold).status in (reply.status, Status.UNAVAILABLE):
        return Judgement(Verdict.ERROR, reply.status, answer, detail)
    return Judgement(Verdict.FAIL, reply.status, answer, detail, broke=True)


def _short(text: str, length: int = 80) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 3]}..."
