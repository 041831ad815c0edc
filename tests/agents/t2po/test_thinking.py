from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.policy import PlannedControl, PolicyError
from agents.t2po.think import Cause, OfficialStop, PaperStop, PublishedStop, ThinkControl, starts_inside, tag_id
from agents.uncertainty import published_uncertainty
from tests.agents.toys import tokenizer

OPEN, CLOSE, EOS = 5, 6, 7


def control(**changes: Any) -> ThinkControl:
    return ThinkControl(**{"open_id": OPEN, "close_id": CLOSE, "inside": False, "max_tokens": 1000, **changes})


def test_budget_counts_the_whole_reply() -> None:
    rule = control(think_budget=3)
    ids: list[int] = []
    script = iter([OPEN, 1, 2, CLOSE, 3, OPEN, 4])
    forced_at = []
    for position in range(10):
        forced = rule.force(ids, 1.0, -1.0)
        if forced is not None:
            forced_at.append(position)
        ids.append(next(script, 0) if forced is None else forced)
    # Two ids in the first block, one in the second: then the tag, and never again.
    assert forced_at == [7]
    assert rule.causes == [Cause.BUDGET] and rule.thought == 3


def test_the_answer_keeps_its_reserve() -> None:
    rule = control(inside=True, think_budget=100, max_tokens=10, think_answer_reserve=4)
    ids: list[int] = []
    while True:
        forced = rule.force(ids, 1.0, -1.0)
        if forced is not None:
            break
        ids.append(0)
    assert 10 - len(ids) - 1 == 4
    assert rule.causes == [Cause.RESERVE]


def test_another_control_goes_first() -> None:
    class Always:
        def force(self, ids: object, entropy: float, max_logprob: float) -> int | None:
            return 3

    assert control(inside=True, think_budget=0, before=Always()).force([], 1.0, -1.0) == 3


def paper(values: list[float], **changes: Any) -> int | None:
    """Position at which the paper's form fires, for uncertainties given as entropies of a two-way choice."""
    stop = PaperStop(vocabulary=2, weight=0.0, **{"window": 4, "eps": 0.02, "min_tokens": 6, **changes})
    for at, value in enumerate(values):
        if stop.fires(value * math.log(2), 0.0, True):
            return at
    return None


def test_paper_form_fires_behind_the_hump_once_it_is_flat() -> None:
    hump = [0.2, 0.5, 0.9, 0.6, 0.4, 0.3, 0.3, 0.3, 0.3, 0.3, 0.3]
    assert paper(hump) == 9
    assert paper(hump, min_tokens=11) == 10
    assert paper(hump, min_tokens=20) is None


def test_paper_form_waits_for_a_peak_and_for_stillness() -> None:
    assert paper([0.5] * 40) is None
    assert paper([0.1 + 0.01 * i for i in range(40)]) is None
    assert paper([0.9] + [0.2, 0.4] * 20) is None


def test_paper_form_fires_once() -> None:
    stop = PaperStop(vocabulary=2, weight=0.0, window=2, eps=0.1, min_tokens=3)
    values = [0.6, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert [stop.fires(value, 0.0, True) for value in values[:5]] == [False] * 3 + [True] * 2
    stop.closed()
    assert not any(stop.fires(value, 0.0, True) for value in values[5:])
    assert not PaperStop(vocabulary=2, window=1, min_tokens=1, eps=9).fires(0.1, -0.1, False)


@pytest.mark.parametrize(
    ("prompt", "inside"),
    [
        ([1, OPEN, 2], True),
        ([1, OPEN, 2, CLOSE], False),
        ([OPEN, 2, EOS, 3], False),
        ([OPEN, CLOSE, EOS, 3, OPEN], True),
        ([], False),
    ],
)
def test_starts_inside(prompt: list[int], inside: bool) -> None:
    assert starts_inside(prompt, OPEN, CLOSE, frozenset([EOS])) is inside


def test_tag_id() -> None:
    assert tag_id(tokenizer(), "<think>") == tokenizer().convert_tokens_to_ids("<think>")
    assert tag_id(tokenizer(think=False), "<think>") is None


# -- horizon: how far a reply may run before force is asked again ----------------------------------------------------

SETTINGS = st.fixed_dictionaries(
    {
        "inside": st.booleans(),
        "max_tokens": st.integers(1, 9),
        "think_budget": st.none() | st.integers(0, 6),
        "think_answer_reserve": st.integers(0, 9),
    }
)
IDS = st.lists(st.sampled_from([OPEN, CLOSE, 0, 1]), min_size=9, max_size=9)


def soonest_cut(rule: ThinkControl, ids: list[int], cap: int) -> int | None:
    """Over all replies that go on from `ids`: after how many more ids something is forced first; by trying them."""
    states = [(rule, ids)]
    for count in range(cap - len(ids)):
        following: dict[tuple[bool, int], tuple[ThinkControl, list[int]]] = {}
        for state, so_far in states:
            if copy.deepcopy(state).force(so_far, 1.0, -1.0) is not None:
                return count
            for token in (OPEN, CLOSE, 0):
                after = copy.deepcopy(state)
                after.read([*so_far, token])
                following[after.inside, after.thought] = (after, [*so_far, token])
        states = list(following.values())
    return None


def played(rule: ThinkControl, wanted: list[int], cap: int) -> list[int]:
    """The reply of a model that wants these ids, under a control asked at every position."""
    ids: list[int] = []
    for token in wanted[:cap]:
        forced = rule.force(ids, 1.0, -1.0)
        ids.append(token if forced is None else forced)
    return ids


@given(SETTINGS, IDS, st.integers(0, 8))
def test_horizon_is_exact(settings: dict[str, Any], wanted: list[int], length: int) -> None:
    rule = control(**settings)
    ids = played(rule, wanted, min(length, settings["max_tokens"]))
    assert rule.horizon(ids) == soonest_cut(rule, ids, settings["max_tokens"])


@given(SETTINGS, IDS)
def test_an_engine_that_asks_at_horizons_only_gives_the_same_reply(settings: dict[str, Any], wanted: list[int]) -> None:
    cap = settings["max_tokens"]
    near, far = control(**settings), control(**settings)
    expected = played(near, wanted, cap)
    ids: list[int] = []
    while len(ids) < cap:
        free = far.horizon(ids)
        ids += wanted[len(ids) : cap if free is None else min(cap, len(ids) + free)]
        if len(ids) < cap:
            forced = far.force(ids, 1.0, -1.0)
            ids.append(wanted[len(ids)] if forced is None else forced)
    near.read(ids), far.read(ids)
    assert ids == expected and far.causes == near.causes and far.thought == near.thought


@given(SETTINGS, IDS, st.integers(0, 8))
def test_horizon_of_a_stop_rule_is_never_too_far(settings: dict[str, Any], wanted: list[int], length: int) -> None:
    cap = settings["max_tokens"]
    rule = control(**settings, stop=OfficialStop(8, patience=1, eps=9.0))
    ids = played(rule, wanted, min(length, cap))
    free, soonest = rule.horizon(ids), soonest_cut(rule, ids, cap)
    assert soonest is None or (free is not None and free <= soonest)


class Once:
    """A planned control that forces an id at one position."""

    reads_distribution = False

    def __init__(self, at: int) -> None:
        self.at = at

    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        return 3 if len(ids) == self.at else None

    def horizon(self, ids: Sequence[int]) -> int | None:
        return self.at - len(ids) if len(ids) <= self.at else None


class Unplanned:
    def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
        return None


def test_another_control_shortens_the_horizon() -> None:
    assert isinstance(control(), PlannedControl)
    rule = control(think_budget=5, before=Once(2))
    assert rule.horizon([]) == 2 and rule.force([], 1.0, -1.0) is None
    assert rule.horizon([1, 1, 3]) == 6  # an opening tag and five ids
    assert control(inside=True, think_budget=1, before=Once(4)).horizon([]) == 1
    assert control(think_budget=5, before=Unplanned()).horizon([]) == 0
    assert control(max_tokens=1, before=Once(9)).horizon([1]) == 8


def published(facts: Sequence[tuple[float, float]], **changes: Any) -> int | None:
    """The position at which the published rule fires, for entropies and confidences of a thought."""
    stop = PublishedStop(**{"window": 2, "eps": 0.05, "min_tokens": 4, **changes})
    for at, (entropy, conf) in enumerate(facts):
        if stop.fires(entropy, -0.5, True, -conf):
            return at
    return None


def test_published_form_fires_behind_the_peak_of_its_own_score() -> None:
    """M by hand, alpha 0.4, scaled over all of it: 0, 1, 0.5 four times; three of them are the window."""
    hump = [(0.0, 4.0), (2.0, 2.0), (1.0, 3.0), (1.0, 3.0), (1.0, 3.0), (1.0, 3.0)]
    assert published_uncertainty(*zip(*hump, strict=True)) == pytest.approx([0.0, 1.0, 0.5, 0.5, 0.5, 0.5])
    assert published(hump) == 4
    assert published(hump, min_tokens=6) == 5 and published(hump, window=3) == 5
    assert published([(h * 100, c * 7 + 3) for h, c in hump]) == 4  # scaled within the trajectory: any unit will do
    assert published([(1.0, 3.0)] * 9) is None  # no peak to be behind
    assert published([(0.1 * i, 4.0 - 0.1 * i) for i in range(9)], eps=9.0) is None
    # Confidence alone moves: 1 - C sees the hump, an entropy that stays does not hide it.
    assert published([(1.0, c) for _, c in hump]) == 4


def test_published_form_is_not_the_paper_form_on_our_score() -> None:
    """Changes of 0.01 nats: still on the scale of log V, wide awake on that of the thought."""
    small = [(0.02, 1.0)] + [(0.01 * (i % 2), 1.01 + 0.01 * (i % 2)) for i in range(20)]
    ours = PaperStop(vocabulary=100, window=2, eps=0.05, min_tokens=4)
    assert any(ours.fires(entropy, -0.5, True) for entropy, _ in small) and published(small) is None


def test_published_form_fires_once_and_needs_the_likeliest_ids() -> None:
    rule = control(inside=True, stop=PublishedStop(window=2, eps=0.05, min_tokens=4))
    ids: list[int] = []
    closed = []
    for at in range(30):
        rule.watch(-(4.0, 2.0, 3.0)[min(at, 2)])
        forced = rule.force(ids, (0.0, 2.0, 1.0)[min(at, 2)], -0.5)
        ids.append(OPEN if at == 12 else 1 if forced is None else forced)
        closed += [at] * (forced == CLOSE)
    assert closed == [4] and rule.causes == [Cause.STOP]
    with pytest.raises(PolicyError, match=r"think_stop=published reads the likeliest ids .* Use think_stop=paper"):
        PublishedStop().fires(1.0, -0.5, True)


def test_only_a_stop_rule_or_an_unknown_control_reads_the_distribution() -> None:
    assert not control(think_budget=5).reads_distribution
    assert control(stop=OfficialStop(8)).reads_distribution
    assert not control(before=Once(2)).reads_distribution
    assert control(before=Unplanned()).reads_distribution
    assert control(before=control(stop=OfficialStop(8))).reads_distribution


def test_no_block_that_could_be_cut_any_more_leaves_all_ids() -> None:
    assert control(max_tokens=10, think_budget=99).horizon([0] * 9) is None  # an opening tag would be the last id
    assert control(max_tokens=10, think_budget=99).horizon([0] * 8) == 1
    assert control(max_tokens=10, think_budget=3).horizon([0] * 6) == 3  # a reserve of 0 still closes the block


def test_a_stop_that_another_control_overruled_comes_at_the_next_position() -> None:
    class Once:
        def __init__(self, at: int) -> None:
            self.at = at

        def force(self, ids: Sequence[int], entropy: float, max_logprob: float) -> int | None:
            return 9 if len(ids) == self.at else None

    def closed(before: Any) -> int | None:
        stop = PaperStop(vocabulary=100, window=2, eps=0.02, min_tokens=3)
        control = ThinkControl(open_id=OPEN, close_id=CLOSE, inside=True, max_tokens=100, stop=stop, before=before)
        ids: list[int] = []
        for at, entropy in enumerate([2.0, 2.0] + [1.0] * 20):
            forced = control.force(ids, entropy, -0.5)
            ids.append(1 if forced is None else forced)
            if forced == CLOSE:
                return at
        return None

    at = closed(None)
    assert at is not None and closed(Once(at)) == at + 1
