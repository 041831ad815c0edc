"""An environment without a sandbox: it repeats what it was told, and fails on request."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

from envs.actions import ActionKind, Command, Submit
from envs.conversation import ConversationEnv, Exchange
from envs.protocol import protocol as named_protocol
from sandboxes.sandbox import EntryKind, FileEntry, SandboxError
from tasks.assertions.base import Outcome
from tasks.task import Task

FIRST: dict[str, Any] = {
    "id": "first",
    "intent": "Say one and two.",
    "budget": {"max_turns": 6},
    "assertions": [{"kind": "file_contains", "path": "said", "contains": "two"}],
    "oracle": {"commands": ["echo one", "echo two"]},
    "family": "saying",
}


def task(**changes: Any) -> Task:
    return Task.model_validate({**FIRST, **changes})


class FakeEnv(ConversationEnv):
    """Keeps what replies say in the file `said`; no process is started.

    Args:
        word: Begins every observation.
        seconds: How long a step takes, by its thread's luck.
        protocol: How replies say what to do.
        failures: Calls that raise SandboxError, once each per count: `{"step": 1}`.
    """

    alive = 0
    lock = threading.Lock()

    def __init__(
        self,
        word: str = "ok",
        seconds: float = 0.0,
        failures: Counter[str] | None = None,
        protocol: str = "text",
        **settings: Any,
    ) -> None:
        self.protocol = named_protocol(protocol)
        super().__init__((), **{"prompt_style": "compact", **settings})
        self._word, self._seconds = word, seconds
        self._failures: Counter[str] = failures if failures is not None else Counter()
        self._said = ""

    def _break(self, call: str) -> None:
        with FakeEnv.lock:
            broken = self._failures[call] > 0
            self._failures[call] -= broken
        if broken:
            raise SandboxError(f"broken at {call}")

    def _lay(self, task: Task) -> str:
        self._break("reset")
        self._said = ""
        return task.intent

    def _exchange(self, reply: str) -> Exchange:
        self._break("step")
        time.sleep(self._seconds * (hash(reply) % 7) / 7)
        match self.protocol.parse(reply):
            case Submit(text):
                return Exchange("", ActionKind.SUBMIT, final_message=text)
            case Command(text, then_submit, message):
                self._said += text
                final = message if then_submit else None
                return Exchange(f"{self._word} {text}", ActionKind.COMMAND, final, text, 0, signal=0.5)
            case _:
                return Exchange(f"error: {len(reply)}", ActionKind.MALFORMED, signal=0.0)

    def _outcome(self) -> Outcome:
        self._break("grade")
        return Outcome({"said": FileEntry(EntryKind.FILE, self._said.encode())}, {}, self._final)

    def _anchor(self) -> str:
        return str(len(self._said))

    def _release(self) -> None:
        pass
