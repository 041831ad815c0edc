from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.math.extraction import Rule, find_answer, last_box

FOUND = [
    (r"\boxed{5}", "5", Rule.BOX),
    (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", Rule.BOX),
    (r"\fbox{7} it is", "7", Rule.BOX),
    (r"\boxed 5", "5", Rule.BOX),
    (r"so $\boxed 12$.", "12", Rule.BOX),
    (r"\boxed{35} was my first guess, in fact \boxed{4}", "4", Rule.BOX),
    (r"I must put it in \boxed notation: \boxed{7}.", "7", Rule.BOX),
    (r"\boxed{7}. It stands in \boxed{} now, in \boxed notation", "7", Rule.BOX),
    (r"\boxed{\boxed{4}}", r"\boxed{4}", Rule.BOX),
    (r"\boxed{\{1,2\}}", r"\{1,2\}", Rule.BOX),
    (r"} stray { \boxed{3} }", "3", Rule.BOX),
    ("\\boxed{\n  8\n}", "\n  8\n", Rule.BOX),
    (r"The answer is 5. \boxed{6}", "6", Rule.BOX),
    ("The answer is: $42$.", "42", Rule.PHRASE),
    ("Final Answer: The final answer is $-5$. I hope it is correct.", "-5", Rule.PHRASE),
    ("Final Answer: The final answer is 5. I hope it is correct.", "5", Rule.PHRASE),
    ("Thus it is **73**.\n---\nFinal Answer: **73**", "73", Rule.PHRASE),
    ("**Final Answer**\n$x+1$", "x+1", Rule.PHRASE),
    ("The answer is 18.\nQuestion: 1820 apples", "18", Rule.PHRASE),
    ("The answer is 3.5. Done.", "3.5", Rule.PHRASE),
    ("The answer is 1 1/4", "1 1/4", Rule.PHRASE),
    ("The answer is therefore $5$", "5", Rule.PHRASE),
    ("The answer is $5$ or $6$.", "5  or  6", Rule.PHRASE),
    ("The answer is 4. No: the answer is 5.", "5", Rule.PHRASE),
    ("The answer to the question is\n$$\\frac{1}\n{2}$$", "\\frac{1}\n{2}", Rule.PHRASE),
    (r"The solution is $m \in [2, 3)$", r"m \in [2, 3)", Rule.LAST_MATHS),
    (r"thus $x=7$ and $7$", "7", Rule.LAST_MATHS),
    (r"thus \[ x=7 \]", " x=7 ", Rule.LAST_MATHS),
    ("The answer is probably $6$, not $5$.", "6", Rule.PHRASE),
    ("The answer is $6$ rather than $5$.", "6", Rule.PHRASE),
    ("The answer is $5$, since $x=2$.", "5", Rule.PHRASE),
    ("Since $x=2$, the area is $5$.", "5", Rule.LAST_MATHS),
    (r"\sqrt{17}", r"\sqrt{17}", Rule.BARE_LATEX),
]
NOT_FOUND = [
    "", "42", "first 3 then 18", "So it is 18.\nQuestion: Tom has 1820 apples", r"\boxed{42", r"\boxed{}", r"\boxed{ }",
    r"\boxed{4} and so \boxed{5", r"The answer is 5 and \boxed{", "it costs $5 and then $6 more", "no number",
    "$x$ is what we look for", r"we know \frac12 is the half of it", "The answer is", "$$",
    "Final answer: not $5$", "the area is $6$ if $n=5$", "We reject $x=5$.", "It is not $3$ or $5$.", "It isn't $5$.",
    "The answer is not $5$.", "The answer is $5$ is wrong.",
]  # fmt: skip


@pytest.mark.parametrize(("reply", "answer", "rule"), FOUND)
def test_the_answer_is_found(reply: str, answer: str, rule: Rule) -> None:
    found = find_answer(reply)
    assert found is not None
    assert (found.text, found.rule) == (answer, rule)


@pytest.mark.parametrize("reply", NOT_FOUND)
def test_no_answer_is_found(reply: str) -> None:
    assert find_answer(reply) is None


@given(st.text(alphabet="{}\\ab $1", max_size=60))
def test_a_box_around_balanced_text_comes_back(text: str) -> None:
    box = last_box(rf"{text} \boxed{{q}}")
    if text.endswith("\\"):
        return  # escapes what follows
    assert box is not None and (box.text == "q" or "q" in box.text)


@given(st.text(max_size=80))
def test_what_is_found_stands_there(reply: str) -> None:
    found = find_answer(reply)
    if found is not None and found.rule is Rule.BOX:
        assert reply[found.start : found.end] == found.text


@pytest.mark.parametrize(
    "piece",
    ["[", r"\boxed{", r"\boxed ", "$", "$$", r"\[", r"\(", "answer is ", "final answer ", " ", "{", "}", "**",
     "I hope ", "answer to ", r"\boxed{}", r"\text{", "\n", "answer:", r"\boxed \x "],
)  # fmt: skip
def test_the_work_is_linear(piece: str) -> None:
    # Quadratic work on these takes minutes, and the test's own time limit ends it; no time is measured here.
    find_answer(piece * (1_000_000 // len(piece)))
