"""Answers and texts that an agent might write to break a check: made from pieces, the same ones each time."""

from __future__ import annotations

import random
from collections.abc import Iterator

ATOMS = (
    "0", "1", "-7", "12", "3.5", "1{,}000", "i", "e", "x", "y", "n", r"\pi", r"\infty", "-i", "zoo", "nan", "True",
    r"\text{even}", r"\text{5 million}", r"\mathbb{R}", r"\emptyset", "506_7", "6:30", "50\\%", "()", "{}", "[]", "",
    "\ud800", "\u200b", "\0", "\u0661", "\u221a", "\u2212", "9^{9^{9}}", "10^{9999}", "999!", "\\", "&", "\u202e",
    r"\begin{pmatrix}1&2\\3\end{pmatrix}", r"\frac{1}{0}", r"\frac{}{}", r"\sqrt{-1}", r"\ln(0)", r"0.\overline{3}",
)  # fmt: skip
ONE = (
    r"\frac{%s}{0}", r"\frac{1}{%s}", r"\sqrt{%s}", r"\sqrt[0]{%s}", "(%s)", "[%s]", r"\{%s\}", "|%s|", "%s!", "-%s",
    r"\lfloor %s\rfloor", r"\ln %s", r"\log_{%s} 2", r"\tan %s", r"\int_0^1 %s dx", r"\lim_{x\to %s} x", "%s^\\circ",
    r"\text{%s}", r"\overline{%s}", r"\sum_{k=1}^{%s} k", r"\binom{%s}{2}", r"%s\text{ cm}", r"\{x : x > %s\}", "f(%s)",
    r"\max(%s, 2)", r"\mathbb{R}\setminus\{%s\}", r"\begin{vmatrix}%s\end{vmatrix}", r"x \in %s", r"\arcsin %s", "%s'",
    r"\frac{d}{dx} %s", r"\gcd(%s, 6)", r"\pm %s", "%s_%s", "{%s", "%s}", r"\boxed{%s}", r"\left(%s\right]", "$%s$",
)  # fmt: skip
TWO = (
    "%s + %s", "%s %s", "%s / %s", "%s^{%s}", "%s = %s", "%s > %s", r"%s \le %s", r"%s \ne %s", "%s < x < %s",
    "(%s, %s]", "%s, %s",
    r"%s \cup %s", r"%s \text{ or } %s", r"%s \equiv %s \pmod{0}", r"\{%s, %s\}", "%s : %s", r"%s \cdot %s",
    r"%s \cap %s", r"%s \approx %s", "[%s, %s)", r"x > %s \text{ and } x < %s", r"%s, \ldots, %s", "%s % %s", "%s_{%s}",
    r"%s \setminus %s", r"%s \in %s", "%s | %s", "%s ; %s", "(x, y) = (%s, %s)", r"%s \\ %s", r"\frac{%s}{%s}",
)  # fmt: skip


def answers(count: int, seed: int = 0) -> Iterator[str]:
    """Yield answers as they would stand in a box."""
    chance = random.Random(seed)

    def piece(depth: int) -> str:
        kind = chance.random()
        if depth == 0 or kind < 0.2:
            return chance.choice(ATOMS)
        form = chance.choice(ONE) if kind < 0.6 else chance.choice(TWO)
        while "%s" in form:
            form = form.replace("%s", piece(depth - 1).replace("%s", "%"), 1)
        return form

    for number in range(count):
        answer = piece(1 + number % 3)
        if number % 25 == 24:
            answer = chance.choice((answer * 30, "(" * 70 + answer, answer + "}" * 40, rf"\frac{{{answer}" * 30))
        yield answer


def texts(count: int, seed: int = 0) -> Iterator[str]:
    """Yield whole replies: such answers between marks, words, line ends and characters that are no text."""
    chance = random.Random(seed)
    marks = (
        "#### ", r"\boxed{", "The answer is ", "<answer>", "</answer>", "\n", "\n\n", "* ", "***", "[", "]", "<<", ">>",
        '"',
        "```json\n", "P.S. ", "A: ", "\u2028", "\ud83d", "\r", "\x00", "\u0130", "word ", "\U0001f600", "1,", ". ", "?",
    )  # fmt: skip
    for answer in answers(count, seed):
        yield "".join(chance.choice((*marks, answer)) for _ in range(chance.randint(1, 12))) * chance.choice(
            (1, 1, 1, 40)
        )
