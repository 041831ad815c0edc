"""Questions for tests of the environments: made here, so that no set and no package beyond the core is needed."""

from __future__ import annotations

from typing import Any

from tasks.task import Task

QUESTION = {
    "id": "eggs",
    "family": "gsm8k",
    "intent": "A crate holds 12 boxes of 6 eggs. How many eggs is that?",
    "budget": {"max_turns": 4},
    "assertions": [{"kind": "number_equals", "gold": "72"}],
    "oracle": {"answer": "12 * 6 = 72\n#### 72"},
}


def question(**changes: Any) -> Task:
    return Task.model_validate({**QUESTION, **changes})


def questions(n: int) -> list[Task]:
    return [
        question(
            id=f"q{i}",
            intent=f"What is {i} + 100?",
            assertions=[{"kind": "number_equals", "gold": str(i + 100)}],
            oracle={"answer": f"#### {i + 100}"},
        )
        for i in range(n)
    ]
