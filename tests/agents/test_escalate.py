"""Where episodes got stuck, and how another policy goes on from there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agents.escalate import GIVEN, Continued, stuck_turns
from agents.policies.scripted import OraclePolicy, ScriptedPolicy
from agents.policy import Abilities, Completion, FinishReason, PolicyError, Request, Sampling, SomeFailed
from agents.rollout import Job, RolloutEngine, RolloutMode
from agents.seeds import derive_seed
from agents.trajectory import Trajectory, Turn, attempt_of
from envs.actions import fenced
from tasks.task import Task
from tests.agents.fakes import FakeEnv, task


def episode(*entropies: float, attempt: int = 0, stop: str = "max_turns") -> Trajectory:
    turns = [
        Turn(i, [], [65, 256], [0.0] * 2, [value] * 2, [False] * 2, FinishReason.STOP, "A")
        for i, value in enumerate(entropies)
    ]
    return Trajectory("t", "h", attempt, 7, [1], turns, stop)


def test_an_episode_is_stuck_where_it_stands_still_and_goes_on() -> None:
    still, moving = episode(0.5, 0.52, 0.5, 0.51, 0.5), episode(0.5, 0.9, 0.1, 0.9, attempt=1)
    ends, broken = episode(0.5, 0.5, 0.5, attempt=2), episode(*[0.5] * 9, attempt=3, stop="infrastructure")
    found = stuck_turns([still, moving, ends, broken], turns=2, eta=0.1)
    assert found.stuck == {("t", 0): 2}, "of the third nothing was left to play, and the last broke"
    assert found.reasons["t", 0] == "entropy has moved by less than 0.1 for 2 turns"
    assert (found.eta, found.changes) == (0.1, 0) and found.signals == 3 + 3 + 2


def test_eta_is_calibrated_on_the_episodes_before_any_is_judged() -> None:
    few = [episode(0.1, 0.4, 0.9)]
    found = stuck_turns(few)
    assert (found.stuck, found.eta, found.changes) == ({}, None, 2)
    moving = [episode(*[(number * turn * 0.37) % 1.0 for turn in range(9)], attempt=number) for number in range(1, 12)]
    still = episode(*[0.5] * 9)
    found = stuck_turns([still, *moving], turns=3)
    assert found.eta is not None and found.stuck["t", 0] == 3, "the first one, too"


class Shell(ScriptedPolicy):
    """Says `ls` for ever."""

    def text(self, task: Task, turn: int, request: Request) -> str:
        return fenced("ls")


@pytest.mark.parametrize("mode", [RolloutMode.LOCKSTEP, RolloutMode.ASYNCHRONOUS])
@pytest.mark.parametrize("own_ids", [True, False])
def test_the_second_policy_goes_on_where_the_first_stopped(mode: RolloutMode, own_ids: bool) -> None:
    jobs = [Job(task(), attempt, 3) for attempt in range(2)]
    with RolloutEngine(Shell(), FakeEnv, slots=2, workers=1) as engine:
        first = engine.run(jobs, Sampling(1.0, 200)).trajectories
    oracle = OraclePolicy()
    oracle.abilities = Abilities(own_ids=own_ids)  # type: ignore[attr-defined]
    second = Continued(oracle, first, {attempt_of(first[1]): 0})
    with RolloutEngine(second, FakeEnv, slots=2, workers=1, mode=mode) as engine:
        (taken,) = engine.run(jobs[1:], Sampling(1.0, 200)).trajectories
    assert [turn.reply for turn in taken.turns][:2] == [fenced("ls"), fenced("echo one")]
    assert [GIVEN in turn.notes for turn in taken.turns] == [True, *[False] * (len(taken.turns) - 1)]
    given = taken.turns[0]
    assert all(given.forced) and given.logprobs is None and given.observation == first[1].turns[0].observation
    assert taken.stop_reason == "submitted" != first[1].stop_reason


def test_ends_are_kept_and_failures_of_the_second_are_its_own() -> None:
    class Failing:
        tokenizer, eos_ids = OraclePolicy().tokenizer, frozenset([256])
        max_context = 9

        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            raise SomeFailed([PolicyError("gone") for _ in requests])

        def forget(self, conversations: Sequence[str]) -> None:
            self.forgotten = list(conversations)

    cut = episode(0.5, 0.5)
    cut.turns[0].finish, cut.turns[0].reply = FinishReason.LENGTH, "```bash\nls"
    inner: Any = Failing()
    second = Continued(inner, [cut], {("t", 0): 0})
    there = Request("a", [1], derive_seed(7, "t", 0, 0), max_tokens=4)
    (reply,) = second.complete([there], Sampling())
    assert (bytes(reply.ids), reply.finish) == (b"```bash\nls", FinishReason.LENGTH)
    assert reply.max_tokens == 10, "a tokenizer of its own may need more ids than the cap"
    with pytest.raises(SomeFailed) as caught:
        second.complete([there, Request("b", [1], 5)], Sampling())
    assert [type(answer) for answer in caught.value.answers] == [Completion, PolicyError]
    second.forget(["a"])
    assert inner.forgotten == ["a"] and second.max_context == 9
