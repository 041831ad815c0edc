from __future__ import annotations

import threading

import pytest
from pydantic import ValidationError

from tasks.answers.math import MathMode, Pool, Reason, Reply, Status, judge, judge_many, refusal
from tasks.assertions import Verdict
from tasks.assertions.base import Outcome
from tests.tasks.assertions.build import build
from tests.tasks.assertions.hostile import answers


def test_boxed_takes_the_box_alone() -> None:
    assert judge("5", "The answer is 5.", MathMode.BOXED).reason is Reason.NO_ANSWER
    assert judge("5", r"The answer is 6. \boxed{5.0}", MathMode.BOXED).verdict is Verdict.PASS
    assert judge("5", r"\boxed{5", MathMode.BOXED).verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("gold", "reply", "right"),
    [
        ("3,5,7", r"Thus the values are $\boxed{3}$, $\boxed{5}$ and $\boxed{7}$.", True),
        ("3,5,7", r"\(\boxed{7}\), \(\boxed{5}\), and \(\boxed{3}\)", True),
        (r"\{3,5\}", r"\boxed 3 or \boxed 5", True),
        ("x=1,x=2", r"$\boxed{x=1}$ and $\boxed{x=2}$", True),
        ("3,5,7", r"$\boxed{3}$, $\boxed{5}$ and $\boxed{8}$", False),
        ("3,5", r"$\boxed{2}$, $\boxed{3}$ and $\boxed{5}$", False),
        ("(3,5)", r"$\boxed{3}$, $\boxed{5}$", False),
        ("3,5", r"\boxed{3}. No, wait: \boxed{5}", False),
        ("3,5", r"\boxed{3} and therefore, \boxed{5}", False),
        ("7", r"\boxed{3}, \boxed{7}", True),  # no list is asked for, so the last stands
        ("5", r"\boxed{\text{The value is $5$}}", True),
        ("7", r"It is $\boxed{7}$, not $\boxed{8}$.", True),
        ("8", r"It is $\boxed{7}$, not $\boxed{8}$.", False),
        ("8", r"It was not $\boxed{7}$. It is $\boxed{8}$.", True),
    ],
)
def test_a_list_may_be_given_one_box_each(gold: str, reply: str, right: bool) -> None:
    for mode in (MathMode.FIXED, MathMode.BOXED):
        assert judge(gold, reply, mode).verdict is (Verdict.PASS if right else Verdict.FAIL)


def test_minerva_takes_the_sentence_and_its_own_spelling() -> None:
    text = "Final Answer: The final answer is $x=5\\text{ cm}$. I hope it is correct."
    assert judge("5", text, MathMode.MINERVA).verdict is Verdict.PASS
    assert judge("x+1", r"\boxed{1+x}", MathMode.MINERVA).verdict is Verdict.PASS
    assert judge("6", text, MathMode.MINERVA).verdict is Verdict.FAIL
    assert judge("5", "5", MathMode.MINERVA).reason is Reason.NO_ANSWER


def test_hangs_are_broken_fails_and_the_others_right() -> None:
    hang = r"\boxed{9^{9^{9^{9}}}}"
    rows = [("5", hang), ("5", hang), *((f"x+{number}", rf"\boxed{{{number}+x}}") for number in range(6))]
    with Pool(size=2, seconds=1) as pool:
        found = judge_many(rows, pool=pool)
    assert [one.verdict for one in found] == [Verdict.FAIL] * 2 + [Verdict.PASS] * 6
    assert [one.broke for one in found] == [True] * 2 + [False] * 6
    assert found[0].reason is Status.LATE and "took more than 1 s of processor time" in found[0].detail


GOLDS = (
    "12", r"\sqrt2", "(1,2)", "[3,5)", r"(-\infty,3)", r"\{1,2\}", "x<3", "x=5", "y=2x+3", r"\text{even}", "1,2,3",
    "506_7", "6:30", r"\mathbb{R}", "x^2+1", r"x \ne 3", r"50\%", r"\begin{pmatrix}1\\2\end{pmatrix}", "3+4i",
)  # fmt: skip
UNORDERED = (
    "x > i", "x<i", "i<x<2", "(i,2)", "[i,3]", r"\{x: x>i\}", r"x \ge \frac{1}{0}", r"x \le \lfloor i \rfloor",
    r"x > \sqrt{-1} \text{ or } x < 0",
)  # fmt: skip


@pytest.mark.parametrize("answer", UNORDERED)
def test_a_condition_without_an_order_is_an_ordinary_fail(answer: str) -> None:
    """Each was an error for most golds: an answer for those who would rather have no reward than a bad one."""
    found = [judge(gold, rf"\boxed{{{answer}}}") for gold in GOLDS]
    assert {(one.verdict, one.broke) for one in found} == {(Verdict.FAIL, False)}


def test_what_raises_while_it_is_compared_is_a_broken_fail() -> None:
    found = judge("x^2+1", r"\boxed{\lim_{x\to0} \frac{\sin x}{x}}")
    assert (found.verdict, found.broke, found.reason) == (Verdict.FAIL, True, Status.FAILED)
    assert "TypeError" in found.detail
    result = build("math_equivalent", gold="x^2+1").check(outcome(r"\boxed{\lim_{x\to0} \frac{\sin x}{x}}"))
    assert (result.verdict, result.score, result.broke) == (Verdict.FAIL, 0.0, True)


def test_an_unreadable_side_of_an_equation_is_the_answers_doing() -> None:
    found = judge("5", r"\boxed{\frac{4}{ = 5}")
    assert found.verdict is Verdict.FAIL
    found = judge("5", "The final answer is $\\frac{4}{}2 = 5$")
    assert (found.verdict, found.reason) == (Verdict.FAIL, Status.UNREADABLE)


@pytest.mark.parametrize(
    ("status", "of_gold", "verdict", "broke"),
    [
        (Status.FAILED, Status.SAME, Verdict.FAIL, True),
        (Status.DIED, Status.SAME, Verdict.FAIL, True),
        (Status.MEMORY, Status.SAME, Verdict.FAIL, True),
        (Status.LATE, Status.LATE, Verdict.ERROR, False),
        (Status.FAILED, Status.FAILED, Verdict.ERROR, False),
        (Status.FAILED, Status.LATE, Verdict.FAIL, True),
        (Status.LATE, Status.UNAVAILABLE, Verdict.ERROR, False),
        (Status.UNAVAILABLE, Status.SAME, Verdict.ERROR, False),
    ],
)
def test_only_what_the_gold_answer_does_by_itself_is_an_error(
    monkeypatch: pytest.MonkeyPatch, status: Status, of_gold: Status, verdict: Verdict, broke: bool
) -> None:
    def compare(self: Pool, gold: str, answer: str, how: str = "fixed") -> Reply:
        return Reply(of_gold if how == "gold" else status)

    monkeypatch.setattr(Pool, "compare", compare)
    found = judge("x+1", r"\boxed{1+x}", pool=Pool(size=1))
    assert (found.verdict, found.broke) == (verdict, broke)


@pytest.mark.parametrize(("count", "seed"), [(200, 0), pytest.param(2000, 1, marks=pytest.mark.whole, id="whole")])
def test_no_answer_errs_against_a_valid_gold_answer(count: int, seed: int) -> None:
    with Pool(size=2, seconds=2) as pool:
        rows = [(GOLDS[at % len(GOLDS)], rf"\boxed{{{answer}}}") for at, answer in enumerate(answers(count, seed))]
        found = judge_many(rows, pool=pool)
    assert [(*row, one.detail) for row, one in zip(rows, found, strict=True) if one.verdict is Verdict.ERROR] == []


def test_the_gold_answer_and_a_wrong_one_are_tried() -> None:
    for gold in GOLDS:
        assert build("math_equivalent", gold=gold).self_test() == []  # type: ignore[attr-defined]
    (problem,) = build("math_equivalent", gold=r"\frac{}{}+?").self_test()  # type: ignore[attr-defined]
    assert "cannot be computed with" in problem


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (r"\frac{1}{1+" * 40 + "1" + "}" * 40, Verdict.FAIL),
        ("[" * 20_000, Verdict.FAIL),
        (r"\dfrac{5^{5^{5^{5^{5}}}}}{16}", Verdict.FAIL),
        ("(" * 64 + "5" + ")" * 64, Verdict.PASS),
    ],
)
def test_absurd_answers_get_a_right_verdict(answer: str, verdict: Verdict) -> None:
    assert judge("5", rf"\boxed{{{answer}}}").verdict is verdict


COSTLY = [
    "1000000!", "1{,}000{,}000!", "(10^9)!", "9^{9^9}", "9^{9^{9}}", r"\binom{10^9}{5\cdot10^8}", "x^{1000000}",
    r"\sum_{i=1}^{10^9} i^i", r"\sum_{i=1}^{5000} i^i", "100000!!", "(100!)!",
]  # fmt: skip


@pytest.mark.parametrize("answer", COSTLY)
def test_costly_answers_are_refused(answer: str) -> None:
    assert judge("5", rf"\boxed{{{answer}}}").reason is Reason.REFUSED
    assert judge(answer, rf"\boxed{{{answer}}}").verdict is Verdict.PASS


@pytest.mark.parametrize(
    "answer", ["1000!", "2^{2019}", r"\binom{100}{50}", "9^{9^{9^{9}}}", r"\frac{100!}{98!}", "(5!)!"]
)
def test_other_answers_are_not_refused(answer: str) -> None:
    assert refusal("5", answer) is None


def test_an_unreadable_answer_fails_and_an_unreadable_gold_answer_is_an_error() -> None:
    assert judge("5", r"\boxed{\frac{4}{}2}").verdict is Verdict.FAIL
    broken = judge(r"\frac{}{}+?", r"\boxed{5}")
    assert (broken.verdict, broken.reason) == (Verdict.ERROR, Status.GOLD_UNREADABLE)
    assert judge(r"\frac{}{}+?", r"\boxed{\frac{}{}+?}").verdict is Verdict.PASS


def test_the_same_verdict_from_a_thread() -> None:
    found: list[Verdict] = []
    thread = threading.Thread(target=lambda: found.append(judge("x^2-1", r"\boxed{(x-1)(x+1)}").verdict))
    thread.start()
    thread.join()
    assert found == [Verdict.PASS]


def outcome(message: str | None) -> Outcome:
    return Outcome({}, {}, final_message=message)


def test_the_kinds() -> None:
    equal, form = build("math_equivalent", gold=r"\frac{1}{2}"), build("math_format")
    assert equal.check(outcome(r"\boxed{0.5}")).verdict is Verdict.PASS
    assert form.check(outcome(r"\boxed{7}")).verdict is Verdict.PASS
    assert form.check(outcome("The answer is 0.5.")).verdict is Verdict.FAIL
    assert equal.check(outcome("The answer is 0.5.")).verdict is Verdict.PASS
    wrong = equal.check(outcome(r"\boxed{7}"))
    assert (wrong.verdict, wrong.score, wrong.detail) == (Verdict.FAIL, 0.0, r"the answer is 7, not \frac{1}{2}")
    for nothing in (None, "", "  \n"):
        for kind in (equal, form):
            assert (kind.check(outcome(nothing)).verdict, kind.check(outcome(nothing)).detail) == (
                Verdict.FAIL,
                "no answer was given",
            )
    assert equal.on_answer and not equal.on_files
    assert equal.canonical() == {"kind": "math_equivalent", "gold": r"\frac{1}{2}"}
    assert build("math_equivalent", gold="5", mode="boxed").check(outcome("The answer is 5.")).verdict is Verdict.FAIL


@pytest.mark.parametrize("gold", ["", " "])
def test_a_blank_gold_answer_is_refused(gold: str) -> None:
    with pytest.raises(ValidationError):
        build("math_equivalent", gold=gold)


def test_an_error_of_the_comparison_is_an_error_of_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool(size=1, memory=60 << 20) as pool:
        monkeypatch.setattr("tasks.answers.math.default_pool", lambda: pool)
        found = build("math_equivalent", gold="x+1").check(outcome(r"\boxed{1+x}"))
    assert (found.verdict, found.score) == (Verdict.ERROR, None)
    assert "math worker" in found.detail
