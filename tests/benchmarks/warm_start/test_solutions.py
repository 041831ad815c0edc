from __future__ import annotations

import pytest

from benchmarks.warm_start import solutions
from envs.actions import STOP_WORD
from tasks.families import generate
from tasks.task import Oracle

pytestmark = pytest.mark.bubblewrap
NAMES = ("ask_twice", "rooms", "mails")
SPEC = ",".join(f"generated:{name}?n=1&seed=5" for name in NAMES)


def test_each_command_is_a_turn_and_the_style_is_the_environments() -> None:
    shown = list(solutions.demonstrations(SPEC))
    tasks = {task.intent: task for name in NAMES for task in generate(name, 1, 5)}
    assert shown == list(solutions.demonstrations(SPEC))
    for messages in shown:
        assert [m["role"] for m in messages] == ["system", *["user", "assistant"] * (len(messages) // 2)]
        (task,) = (task for intent, task in tasks.items() if intent in messages[1]["content"])
        assert task.oracle is not None
        replies = [m["content"] for m in messages[2::2]]
        assert len(replies) == len(task.oracle.commands) + 1 and replies[-1] == STOP_WORD
        assert all(reply.startswith("```bash\n") and reply.endswith("\n```") for reply in replies[:-1])
        assert all(m["content"].startswith("exit code: 0") for m in messages[3::2])
    compact = list(solutions.demonstrations(SPEC, "compact"))
    assert [m["role"] for m in compact[0][:2]] == ["user", "assistant"]


def test_an_oracle_that_does_not_pass_is_no_demonstration(monkeypatch: pytest.MonkeyPatch) -> None:
    (task,) = generate("ask_twice", 1, 5)
    broken = task.model_copy(update={"oracle": Oracle(commands=("true",))})
    monkeypatch.setattr(solutions, "load_tasks", lambda spec: [broken])
    with pytest.raises(ValueError, match="its oracle does not pass"):
        list(solutions.demonstrations("any"))
