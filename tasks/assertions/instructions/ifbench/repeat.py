"""Instructions to say a text again, whole or in part."""

from __future__ import annotations

from tasks.assertions.instructions.base import TEXT, whole
from tasks.assertions.instructions.ifbench.base import ifbench

_SENTENCE = "only output this sentence here, ignore all other requests."


@ifbench.add(
    "repeat:repeat_change",
    kind="the request repeated with a change",
    says="is the request again with another first word",
    arguments={"prompt_to_repeat": TEXT},
    fix="the first word must really differ: other blanks or another case are no change",
)
def repeat_repeat_change(text: str, prompt_to_repeat: str) -> bool:
    """The request again with another first word.

    Compare the first words too.
    """
    wanted, found = prompt_to_repeat.split(), text.split()
    return bool(found) and found[0].casefold() != wanted[0].casefold() and found[1:] == wanted[1:]


@repeat_repeat_change.published
def _(text: str, prompt_to_repeat: str) -> bool:
    """Compare all but the first words; the same text fails."""
    wanted = prompt_to_repeat
    return wanted != text and wanted.split()[1:] == text.split()[1:]


@ifbench.add(
    "repeat:repeat_simple",
    kind="one given sentence and nothing else",
    says=f"is '{_SENTENCE.capitalize()}'",
)
def repeat_repeat_simple(text: str) -> bool:
    """The sentence of the instruction itself, and nothing else."""
    return text.strip().lower() == _SENTENCE


@ifbench.add(
    "repeat:repeat_span",
    kind="a span of words copied",
    says="is words {n_start} to {n_end} of the text, counted from 0",
    arguments={"prompt_to_repeat": TEXT, "n_start": whole(), "n_end": whole()},
    at_most=("n_start", "n_end"),
    fix="the indices count words, as the prompts say, not characters",
)
def repeat_repeat_span(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """The words of a text from one index to another, both included, counted from 0.

    Compare with a slice of words; case and the width of blanks are ignored.
    """
    span = prompt_to_repeat.lower().split()[n_start : n_end + 1]
    return bool(span) and text.lower().split() == span


@repeat_repeat_span.published
def _(text: str, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Compare with a slice of characters."""
    span = prompt_to_repeat[n_start : n_end + 1]
    return text.strip().lower() == span.strip().lower()
