from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from agents.policies.scripted import ByteTokenizer
from agents.policy import Completion, FinishReason, PolicyError
from agents.seeds import derive_seed
from tests.agents.policies.vllm.fake import BASE, EOS, GREEDY, PLAIN, Fake, ask, check, logits, make, prompt


class Budget:
    """Puts `close` in after every `budget` ids of its own."""

    reads_distribution = False

    def __init__(self, budget: int, close: int = 10) -> None:
        self.budget, self.close = budget, close
        self.asked: list[int] = []

    def _free(self, ids: Sequence[int]) -> int:
        free = self.budget
        for token in ids:
            free = self.budget if token == self.close else free - 1
        return free

    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        assert math.isnan(entropy) and math.isnan(max_logprob)
        self.asked.append(len(ids))
        return self.close if self._free(ids) <= 0 else None

    def horizon(self, ids: Sequence[int]) -> int | None:
        return max(0, self._free(ids))


class Never(Budget):
    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        return None

    def horizon(self, ids: Sequence[int]) -> int | None:
        return None


def in_process(ids: list[int], control: Budget, cap: int) -> tuple[list[int], list[bool]]:
    """The rule of an engine that asks at every position, greedy."""
    reply: list[int] = []
    forced: list[bool] = []
    while len(reply) < cap and EOS not in reply:
        wanted = control.force(reply, math.nan, math.nan)
        reply.append(int(logits(BASE, ids + reply).argmax()) if wanted is None else wanted)
        forced.append(wanted is not None)
    return reply, forced


@pytest.mark.parametrize("budget", [0, 1, 2, 3, 5, 11, 12, 40])
def test_a_planned_control_forces_what_it_would_in_this_process(fake: Fake, budget: int) -> None:
    control = Budget(budget)
    (completion,) = make(fake).complete([ask(3, control=control)], GREEDY)
    assert (completion.ids, completion.forced) == in_process(prompt(3), Budget(budget), 12)
    assert control.asked == list(range(len(completion.ids)))  # every position once, in order
    check(completion, ask(3), 0.0)
    assert completion.logprobs is not None
    assert [x == 0.0 for x in completion.logprobs] == completion.forced
    assert max(body["max_tokens"] for body in fake.sampled) <= budget + 1


def test_each_part_of_a_controlled_reply_has_its_own_seed(fake: Fake) -> None:
    def played() -> Completion:
        return make(fake).complete([ask(0, control=Budget(3))], PLAIN)[0]

    first = played()
    starts = [0, *(at + 1 for at, forced in enumerate(first.forced) if forced and at + 1 < len(first.ids))]
    assert [body["seed"] for body in fake.sampled] == [100, *(derive_seed(100, at) for at in starts[1:])]
    assert played() == first
    check(first, ask(0), 1.0)


def test_a_control_without_a_horizon_changes_nothing(fake: Fake) -> None:
    free, controlled = make(fake).complete([ask(0), ask(0, control=Never(1))], PLAIN)
    assert free == controlled
    assert len(fake.sampled) == 2


def test_a_forced_end_id_ends_the_turn(fake: Fake) -> None:
    (completion,) = make(fake).complete([ask(0, control=Budget(4, close=EOS))], PLAIN)
    assert completion.finish is FinishReason.STOP
    assert len(completion.ids) == 5 and completion.forced[-1]


def test_a_stop_that_spans_a_forced_id_is_seen(fake: Fake) -> None:
    control = Budget(3, close=ord("="))
    (long,) = make(fake).complete([ask(4, control=control)], PLAIN)
    assert long.ids[3] == ord("=") and long.forced[3]
    text = ByteTokenizer().decode(long.ids[2:5])
    (stopped,) = make(fake).complete([ask(4, control=Budget(3, close=ord("=")), stops=(text,))], PLAIN)
    assert stopped.finish is FinishReason.STOP_TEXT
    assert stopped.ids == long.ids[:5]


def test_other_controls_are_refused(fake: Fake) -> None:
    class Reads(Budget):
        reads_distribution = True

    class Unplanned:
        def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
            return None

    with pytest.raises(PolicyError, match="Reads reads the full distribution"):
        make(fake).complete([ask(0, control=Reads(1))], PLAIN)
    with pytest.raises(PolicyError, match="Unplanned must be asked at every position"):
        make(fake).complete([ask(0, control=Unplanned())], PLAIN)
    assert fake.sampled == []
