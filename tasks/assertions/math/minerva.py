r"""Answers in the spelling of the Minerva evaluation (Lewkowycz et al. 2022, arXiv:2206.14858, appendix D.1).

Kept for comparison with published numbers. It is lossy: units go, and of an equation only the right side stays.
"""

from __future__ import annotations

import re

from tasks.assertions.math.extraction import last_box

# Data of that appendix.
_REPLACED = (
    ("an ", ""), ("a ", ""), (".$", "$"), (r"\$", ""), (r"\ ", ""), (" ", ""), ("mbox", "text"),
    (r",\text{and}", ","), (r"\text{and}", ","), (r"\text{m}", r"\text{}"),
)  # fmt: skip
_REMOVED = (
    "square", "ways", "integers", "dollars", "mph", "inches", "ft", "hours", "km", "units", r"\ldots", "sue", "points",
    "feet", "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students",
    "childrentickets", "multiples", r"\text{s}", r"\text{.}", "\\text{\ns}", r"\text{}^2", r"\text{}^3", "\\text{\n}",
    r"\text{}", r"\mathrm{th}", r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', r"\dots",
)  # fmt: skip
_SENTENCE = re.compile(r"Final Answer:\s*The final answer is\s*(.*?)\.?\s*I hope it is correct", re.DOTALL)
_MARK = "Final Answer:"


def minerva_answer(reply: str) -> str | None:
    """Return the answer of a reply: what its last final-answer sentence says, else its last box; None otherwise."""
    at = reply.rfind(_MARK)
    if at >= 0 and (match := _SENTENCE.match(reply, at)) and match.group(1).strip():
        return match.group(1).strip()
    box = last_box(reply)
    return box.text if box else None


def minerva_form(answer: str) -> str:
    """Return an answer in Minerva's spelling."""
    text = answer.split("=")[-1]
    for old, new in _REPLACED:
        text = text.replace(old, new)
    for gone in _REMOVED:
        text = text.replace(gone, "")
    start, end = text.find("$"), text.rfind("$")
    if 0 <= start < end:
        text = text[start + 1 : end]
    for command in ("text", "textbf", "overline"):
        text = re.sub(rf"\\{command}\{{([^{{}}]*)\}}", r"\1", text)
    box = last_box(text)
    text = box.text if box else text
    text = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", text)
    text = re.sub(r"sqrt([^{\[])", r"sqrt{\1}", text).replace("$", "")
    return text.replace(",", "") if text.replace(",", "").isdigit() else text
