"""The rollout goes on where a policy fails some requests of a call only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agents.policies.scripted import ByteTokenizer, certain
from agents.policy import Completion, FinishReason, PolicyError, PromptTooLong, Request, Sampling, SomeFailed
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory
from tests.agents.fakes import FakeEnv, task


class Failing:
    """Says `one`, then submits; what `faults` holds for (task, turn) fails instead."""

    def __init__(self, faults: dict[tuple[str, int], PolicyError]) -> None:
        self.tokenizer: Any = ByteTokenizer()
        self.eos_ids = frozenset([self.tokenizer.eos_token_id])
        self._faults = faults
        self._turns: dict[str, int] = {}

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        answers = [self._answer(request) for request in requests]
        completions = [answer for answer in answers if isinstance(answer, Completion)]
        if len(completions) < len(answers):
            raise SomeFailed(answers)
        return completions

    def _answer(self, request: Request) -> Completion | PolicyError:
        turn = self._turns.get(request.conversation, 0)
        self._turns[request.conversation] = turn + 1
        fault = self._faults.get((request.conversation.split(":")[1], turn))
        if fault is not None:
            return fault
        text = "```bash\necho two\n```" if turn == 0 else "TASK_COMPLETE"
        return certain([*text.encode(), self.tokenizer.eos_token_id], FinishReason.STOP)

    def forget(self, conversations: Sequence[str]) -> None:
        for conversation in conversations:
            self._turns.pop(conversation, None)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_failed_episodes_end_and_the_others_go_on(slots: int) -> None:
    faults = {("b", 1): PolicyError("filtered"), ("c", 1): PromptTooLong("too long"), ("d", 0): PolicyError("down")}
    jobs = [Job(task(id=name), 0, 0) for name in "abcde"]
    heard: list[Trajectory] = []
    with RolloutEngine(Failing(faults), FakeEnv, slots=slots, workers=2) as engine:
        result = engine.run(jobs, Sampling(0.0, 64), on_episode=heard.append)
    a, b, c, d, e = result.trajectories
    assert [(t.stop_reason, t.reward is None, t.passed, len(t.turns)) for t in (a, b, c, d, e)] == [
        ("submitted", False, True, 2),
        ("infrastructure", True, None, 1),
        ("max_tokens", False, True, 1),  # graded as it stands
        ("infrastructure", True, None, 0),
        ("submitted", False, True, 2),
    ]
    assert (b.error, d.error) == ("PolicyError: filtered", "PolicyError: down")
    assert sorted(t.task_id for t in heard) == ["a", "b", "c", "d", "e"]
    assert result.timing.turns == 6 and result.retries == 0
