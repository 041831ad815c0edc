"""Judging one text by one instruction, strictly or loosely."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.assertions.instructions.base import Instruction, Semantics


def follows(
    instruction: Instruction, text: str, semantics: Semantics = Semantics.FIXED, *, loose: bool = False
) -> bool:
    """Return whether the text follows the instruction. A blank text follows none.

    Args:
        instruction: What is asked; with its arguments.
        text: The whole reply.
        semantics: Which reading decides.
        loose: Whether it is enough that one of `variants(text)` follows it. Never less than the strict verdict.

    Raises:
        InstructionError: the instruction cannot be judged.
    """
    tried = variants(text) if loose else iter((text,))
    return any(instruction.follows(variant, semantics) for variant in tried if variant.strip())


def variants(text: str) -> Iterator[str]:
    """Yield the text, and what is left of it without the first line, the last, or both, each with and without stars.

    Those with a line cut off are stripped. Each variant comes once.
    """
    lines = text.split("\n")
    cuts = ("\n".join(lines[1:]).strip(), "\n".join(lines[:-1]).strip(), "\n".join(lines[1:-1]).strip())
    seen: set[str] = set()
    for cut in (text, *cuts):
        for variant in (cut, cut.replace("*", "")):
            if variant not in seen:
                seen.add(variant)
                yield variant
