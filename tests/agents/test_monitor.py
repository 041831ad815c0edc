from __future__ import annotations

import json
from typing import Any

import pytest

from agents.monitor import Monitor, Verdict
from agents.policy import Completion, FinishReason
from agents.uncertainty import Aggregate, Signal


def watch(monitor: Monitor, values: list[float], name: str = "a") -> list[Verdict]:
    return [monitor.see_values(name, [value, value]) for value in values]


def stuck(verdicts: list[Verdict]) -> list[bool]:
    return [verdict.stuck for verdict in verdicts]


def test_stuck_after_some_turns_without_a_move() -> None:
    seen: list[Verdict] = []
    monitor = Monitor(eta=0.1, turns=3, on_stuck=seen.append)
    verdicts = watch(monitor, [0.5, 0.9, 0.95, 0.9, 0.92, 0.93, 0.2, 0.2, 0.2, 0.2])
    assert stuck(verdicts) == [False] * 4 + [True, True] + [False] * 3 + [True]
    assert [v.still for v in verdicts] == [0, 0, 1, 2, 3, 4, 0, 1, 2, 3]
    # Once each time it gets stuck, not once a turn.
    assert seen == [verdicts[4], verdicts[9]]
    assert verdicts[4].reason == "entropy has moved by less than 0.1 for 3 turns" and verdicts[4].conversation == "a"
    assert verdicts[4].signal == pytest.approx(0.92)


def test_high_and_flat_is_stuck_sooner() -> None:
    values = [1.5, 1.52, 1.49, 1.5]
    assert stuck(watch(Monitor(eta=0.1, turns=9), values)) == [False] * 4
    verdicts = watch(Monitor(eta=0.1, turns=9, high=1.2, high_turns=2), values)
    assert stuck(verdicts) == [False, False, True, True]
    assert verdicts[2].reason == "entropy is high (at least 1.2) and flat (within 0.1) for 2 turns"
    assert stuck(watch(Monitor(eta=0.1, turns=9, high=1.2), [0.5, 0.5, 0.5, 0.5])) == [False] * 4


def test_conversations_are_apart() -> None:
    monitor = Monitor(eta=0.1, turns=2)
    for value in (0.5, 0.5, 0.5):
        last = {name: watch(monitor, [level], name)[0] for name, level in (("a", value), ("b", value))}
    assert last["a"].stuck and last["b"].stuck
    monitor.forget("a")
    assert not watch(monitor, [0.5], "a")[0].stuck and watch(monitor, [0.5], "b")[0].stuck


def test_a_turn_without_a_signal_changes_nothing() -> None:
    monitor = Monitor(eta=0.1, turns=2)
    watch(monitor, [0.5, 0.5])
    verdict = monitor.see_values("a", [])
    assert not verdict.stuck and verdict.signal is None and verdict.still == 1 and "no signal" in verdict.reason
    assert watch(monitor, [0.5])[0].stuck
    assert monitor.see_values("a", []).stuck


def test_completions_of_any_engine() -> None:
    def reply(**changes: Any) -> Completion:
        made = Completion([1, 2], None, None, [-0.5, -0.5], [False] * 2, FinishReason.STOP)
        for key, value in changes.items():
            setattr(made, key, value)
        return made

    near = Monitor(eta=0.1, turns=1)
    assert [near.see("a", reply(entropies=[h] * 2)).stuck for h in (0.5, 0.55)] == [False, True]
    far = Monitor(eta=0.1, turns=1)
    seen = [far.see("a", reply(entropy_bounds=[b] * 2)).stuck for b in ((0.5, 0.52), (0.52, 0.55), (0.5, 0.9))]
    assert seen == [False, True, False]  # the last one cannot be told, so it is not called stuck
    top = Monitor(eta=0.1, turns=1, signal=Signal.TOP1)
    assert [top.see("a", reply()).stuck for _ in range(2)] == [False, True]
    score = Monitor(eta=0.1, turns=1, signal=Signal.CONFIDENCE, vocabulary=100)
    assert [score.see("a", reply(entropies=[h] * 2)).stuck for h in (0.5, 0.55)] == [False, True]
    assert Monitor(eta=0.1).see("a", reply()).reason.startswith("this turn has no signal")


def test_eta_is_calibrated_from_usual_turns() -> None:
    monitor = Monitor(turns=1, warmup=20, target_rate=0.2)
    usual = [0.0]
    for i in range(20):
        usual.append(usual[-1] + 0.05 * (i + 1))
    verdicts = watch(monitor, usual, "usual")
    assert not any(stuck(verdicts)) and verdicts[5].reason == "calibrating: 5 changes seen"
    assert monitor.eta == pytest.approx((0.2 + 0.25) / 2)
    assert stuck(watch(monitor, [1.0, 1.1], "b")) == [False, True]
    assert stuck(watch(monitor, [1.0, 1.3], "c")) == [False, False]


def test_state_survives_a_restart() -> None:
    values = [0.5, 0.52, 0.9, 0.91, 0.9, 0.9, 0.1]
    for cut in range(len(values)):
        whole, first, second = (Monitor(turns=2, warmup=2, target_rate=0.5, high=0.8) for _ in range(3))
        expected = watch(whole, values)
        got = watch(first, values[:cut])
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert got + watch(second, values[cut:]) == expected
    assert any(stuck(expected))


@pytest.mark.parametrize(
    "settings",
    [
        {"eta": 0.0},
        {"turns": 0},
        {"target_rate": 15.0},
        {"signal": Signal.CONFIDENCE},
        {"signal": Signal.CONFIDENCE, "vocabulary": 9, "high": 1.0},
        {"signal": Signal.CONFIDENCE, "vocabulary": 9, "how": Aggregate.GEOMETRIC},
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="Monitor: "):
        Monitor(**settings)


def test_an_agent_that_only_repeats_itself_is_stuck_also_while_usual_is_unknown() -> None:
    monitor = Monitor(warmup=10)
    verdicts = watch(monitor, [0.0] * 15)
    assert monitor.eta is not None and verdicts[-1].stuck


def test_repeats_are_counted_when_usual_turns_are_calibrated_upon() -> None:
    monitor = Monitor(warmup=20, turns=1)
    watch(monitor, [1.0, *[1.0 + 0.5 * (i // 2) for i in range(20)]], "usual")  # every second turn repeats the last
    assert stuck(watch(monitor, [1.0, 1.5, 1.5], "a")) == [False, False, True]


def test_names_as_text_are_checked_too() -> None:
    with pytest.raises(ValueError, match="needs vocabulary"):
        Monitor(signal="confidence")  # type: ignore[arg-type]
