"""Instructions to say a text again, whole or in part."""

from __future__ import annotations

from tasks.assertions.instructions.base import TEXT, whole
from tasks.assertions.instructions.ifbench.base import IfbenchInstruction

_SENTENCE = "only output this sentence here, ignore all other requests."


class RepeatChange(IfbenchInstruction):
    """The request again with another first word."""

    id = "repeat:repeat_change"
    kind = "the request repeated with a change"
    arguments = {"prompt_to_repeat": TEXT}
    fix = "the first word must really differ: other blanks or another case are no change"

    def published(self, text: str) -> bool:
        """Compare all but the first words; the same text fails."""
        wanted = self.args["prompt_to_repeat"]
        return bool(wanted != text and wanted.split()[1:] == text.split()[1:])

    def fixed(self, text: str) -> bool:
        """Compare the first words too."""
        wanted, found = self.args["prompt_to_repeat"].split(), text.split()
        return bool(found) and found[0].casefold() != wanted[0].casefold() and found[1:] == wanted[1:]

    def describe(self) -> str:
        """Return the condition in words."""
        return "is the request again with another first word"


class RepeatSimple(IfbenchInstruction):
    """The sentence of the instruction itself, and nothing else."""

    id = "repeat:repeat_simple"
    kind = "one given sentence and nothing else"

    def published(self, text: str) -> bool:
        """Compare, case ignored."""
        return text.strip().lower() == _SENTENCE

    def describe(self) -> str:
        """Return the condition in words."""
        return f"is '{_SENTENCE.capitalize()}'"


class RepeatSpan(IfbenchInstruction):
    """The words of a text from one index to another, both included, counted from 0."""

    id = "repeat:repeat_span"
    kind = "a span of words copied"
    arguments = {"prompt_to_repeat": TEXT, "n_start": whole(), "n_end": whole()}
    fix = "the indices count words, as the prompts say, not characters"

    def prepare(self) -> None:
        """Refuse a span that runs backwards."""
        self.in_order("n_start", "n_end")

    def published(self, text: str) -> bool:
        """Compare with a slice of characters."""
        span = self.args["prompt_to_repeat"][self.args["n_start"] : self.args["n_end"] + 1]
        return bool(text.strip().lower() == span.strip().lower())

    def fixed(self, text: str) -> bool:
        """Compare with a slice of words; case and the width of blanks are ignored."""
        span = self.args["prompt_to_repeat"].lower().split()[self.args["n_start"] : self.args["n_end"] + 1]
        return bool(span) and text.lower().split() == span

    def describe(self) -> str:
        """Return the condition in words."""
        return f"is words {self.args['n_start']} to {self.args['n_end']} of the text, counted from 0"


ALL: tuple[type[IfbenchInstruction], ...] = (RepeatChange, RepeatSimple, RepeatSpan)
"""The instructions of this module."""
