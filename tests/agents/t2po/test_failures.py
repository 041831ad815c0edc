"""T2PO where the policy fails some requests: in the first sample of a turn, and in the further ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from agents.policy import Completion, PolicyError, Request, Sampling, SomeFailed
from agents.rollout import Job, RolloutEngine
from agents.t2po import T2PO, T2POConfig
from tests.agents.fakes import FakeEnv, task
from tests.agents.scripted import SAMPLING, Script, turns


class Fails(Script):
    """Like its script, but fails the requests whose entropy is `FAILS`."""

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        self.calls.append(list(requests))
        answers: list[Completion | PolicyError] = []
        for request in requests:
            value = self.entropies[request.conversation.partition("\0")[0]].pop(0)
            answers.append(PolicyError("lost") if value == FAILS else self._completion(value))
        completions = [answer for answer in answers if isinstance(answer, Completion)]
        if not completions:
            raise PolicyError("all lost")
        if len(completions) < len(answers):
            raise SomeFailed(answers)
        return completions


FAILS = -1.0


def wrapped(entropies: dict[str, list[float]], **changes: object) -> tuple[T2PO, Fails]:
    policy = Fails(dict(entropies))
    return T2PO(
        policy, T2POConfig(**{"turn_resample": True, "turn_resample_eta": 0.3, "turn_resample_max_try": 2, **changes})
    ), policy


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize(
    ("further", "kept", "drawn"), [([FAILS, 0.9], 0.9, 1), ([0.9, FAILS], 0.9, 1), ([FAILS, FAILS], 0.25, 0)]
)
def test_a_further_sample_that_fails_is_none(together: bool, further: list[float], kept: float, drawn: int) -> None:
    wrapper, policy = wrapped({"a": [0.2, 0.25, *further]}, turn_resample_together=together)
    turn = turns(wrapper, "a", 2)[1]
    assert turn.signal == pytest.approx(kept) and len(turn.candidates) == drawn
    assert wrapper.meter.extra == drawn and wrapper.meter.exhausted == (kept == 0.25)
    assert policy.forgotten == (["a\0try2"] if together else [])


def test_a_failed_request_is_passed_on_and_the_others_are_measured_and_resampled() -> None:
    wrapper, policy = wrapped({"a": [0.2, FAILS], "b": [0.2, 0.25, 0.9, 0.8]})
    for turn in range(2):
        requests = [Request(name, [1, 2], seed=turn, first_turn=turn == 0) for name in "ab"]
        if turn == 0:
            wrapper.complete(requests, SAMPLING)
            continue
        with pytest.raises(SomeFailed) as failed:
            wrapper.complete(requests, SAMPLING)
    lost, got = failed.value.answers
    assert isinstance(lost, PolicyError) and isinstance(got, Completion)
    assert got.signal == pytest.approx(0.9) and len(got.candidates) == 2


def test_made_up_conversations_are_forgotten_also_after_a_defect() -> None:
    wrapper, policy = wrapped({"a": [0.2, 0.25]})
    with pytest.raises(IndexError):
        turns(wrapper, "a", 2)  # the script has no further entropies
    assert policy.forgotten == ["a\0try2"]


def test_the_other_episodes_of_a_rollout_go_on() -> None:
    names = {f"{at}:{name}:0": [0.2, FAILS] if name == "a" else [0.2] * 9 for at, name in enumerate("ab")}
    wrapper, _ = wrapped(names)
    with RolloutEngine(wrapper, FakeEnv, slots=2, workers=1) as engine:
        a, b = engine.run([Job(task(id=name, budget={"max_turns": 2}), 0, 0) for name in "ab"], SAMPLING).trajectories
    assert (a.stop_reason, b.stop_reason) == ("infrastructure", "max_turns")
    assert [turn.uncertainty for turn in b.turns] == pytest.approx([0.2, 0.2])
