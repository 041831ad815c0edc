"""One set of arguments for each official id, to build it with."""

from __future__ import annotations

from typing import Any

from tasks.answers.instructions import IFEVAL, Instruction, InstructionType, make

ARGUMENTS: dict[str, Any] = {
    "keywords": ["sea", "rock"],
    "keyword": "sea",
    "forbidden_words": ["sea"],
    "letter": "#",
    "language": "de",
    "postscript_marker": "P.S.",
    "section_spliter": "Section",
    "first_word": "sea",
    "prompt_to_repeat": "sea",
    "end_phrase": "sea",
}
RELATIONS = ("at least", "less than")


def example(known: InstructionType, relation: str = "at least") -> Instruction:
    def value(name: str) -> Any:
        return relation if name.endswith("relation") else ARGUMENTS.get(name, 2)

    return make(known.id, {name: value(name) for name in known.arguments})


EXAMPLES = tuple(example(known, relation) for known in IFEVAL for relation in RELATIONS)
