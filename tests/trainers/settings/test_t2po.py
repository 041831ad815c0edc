from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from agents.t2po import T2POConfig
from tests.agents.toys import tokenizer
from trainers.errors import ConfigError
from trainers.settings.checks import check_t2po, idle_settings, make_t2po
from trainers.settings.parsing import parse

OTHER: dict[str, Any] = {
    "think_budget": 100,
    "think_answer_reserve": 32,
    "think_stop": "paper",
    "think_stop_patience": 7,
    "think_stop_eps": 0.001,
    "think_stop_window": 5,
    "think_stop_window_eps": 0.5,
    "think_stop_min_tokens": 3,
    "think_open": "[",
    "think_close": "]",
    "think_evaluate": True,
    "turn_resample": True,
    "turn_resample_eta": 0.25,
    "turn_resample_rate": 0.2,
    "turn_resample_warmup": 9,
    "turn_resample_max_try": 1,
    "turn_resample_episode_budget": 3,
    "turn_resample_run_budget": 50,
    "turn_resample_together": False,
    "turn_resample_keep": "first",
    "turn_resample_signal": "top1",
    "turn_resample_aggregate": "geometric",
    "turn_resample_min_tokens": 4,
    "turn_resample_evaluate": True,
}
"""A value of each flag that is not its default."""


def test_every_flag_reaches_the_wrapper_under_its_own_name() -> None:
    assert set(OTHER) | {"max_turn_tokens"} == {f.name for f in dataclasses.fields(T2POConfig)}
    flags = [word for name, value in OTHER.items() for word in (f"--{name}", str(value))]
    made = make_t2po(parse(["--use_cpu", "true", *flags]).t2po)
    assert made is not None and made.max_turn_tokens is None  # the sampler's own cap
    assert {name: getattr(made, name) for name in OTHER} == OTHER


def test_all_off_is_no_wrapper() -> None:
    assert make_t2po(T2POConfig()) is None
    assert make_t2po(T2POConfig(max_turn_tokens=30)) is None  # the sampler's own cap
    for switch in ({"think_budget": 5}, {"think_stop": "official"}, {"turn_resample": True}):
        assert make_t2po(T2POConfig(**switch)) is not None


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--turn_resample_keep", "best"], "turn_resample_keep='best': one of last, first, max_change"),
        (
            ["--think_budget", "-3", "--turn_resample_rate", "15"],
            "think_budget=-3: above 0, or 0 to leave it out.\nturn_resample_rate=15.0",
        ),
    ],
)
def test_errors_name_the_flag(flags: list[str], message: str) -> None:
    assert re.match(message, "\n".join(parse(["--use_cpu", "true", *flags]).t2po.problems()))


def test_models_without_tags_are_refused_and_other_tags_can_be_named() -> None:
    with pytest.raises(ConfigError, match="need <think> and </think> as single tokens"):
        check_t2po(make_t2po(T2POConfig(think_budget=5)), tokenizer(think=False))
    check_t2po(make_t2po(T2POConfig(think_budget=5)), tokenizer())
    check_t2po(make_t2po(T2POConfig(think_budget=5, think_open="[", think_close="]")), tokenizer(think=False))
    check_t2po(None, tokenizer(think=False))


def test_a_reply_must_leave_room_to_think() -> None:
    config = T2POConfig(think_budget=5)
    assert not list(config.room_problems(66))
    (said,) = config.room_problems(65)
    assert said.startswith("think_answer_reserve=64: replies have at most 65 tokens")
    assert not list(T2POConfig(turn_resample=True).room_problems(5))


def idle(cap: int = 400, greedy_arm: bool = True, **settings: Any) -> list[str]:
    return list(idle_settings(T2POConfig(**settings), cap, greedy_arm=greedy_arm))


def test_measurements_with_a_calibrated_eta_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"turn_resample_evaluate needs turn_resample_eta"):
        make_t2po(T2POConfig(turn_resample=True, turn_resample_evaluate=True))
    make_t2po(T2POConfig(turn_resample=True, turn_resample_evaluate=True, turn_resample_eta=0.1))


def test_switches_that_this_run_cannot_use_say_so() -> None:
    def said(**settings: Any) -> list[str]:
        rest = {name: settings.pop(name) for name in ("held_out", "turns") if name in settings}
        return list(idle_settings(T2POConfig(**settings), 400, greedy_arm=False, **rest))

    assert said(max_turn_tokens=5000) == [
        "max_turn_tokens=5000 does nothing: no task allows more than 400 tokens a turn"
    ]
    assert said(max_turn_tokens=400) == []
    official = {"turn_resample": True, "turn_resample_signal": "official"}
    short = idle(32, greedy_arm=False, **official)
    assert short == [
        "turn_resample does nothing: turn_resample_signal=official leaves out the first 32 tokens of a reply, and "
        "replies have at most 32"
    ]
    assert idle(33, greedy_arm=False, **official) == []
    assert "an episode is one reply here" in said(turn_resample=True, turns=1)[0]
    assert said(turn_resample=True, turns=2) == []
    measured = {"think_budget": 9, "think_evaluate": True, "turn_resample": True, "turn_resample_evaluate": True}
    assert said(**measured, held_out=False) == [
        "think_evaluate does nothing without held-out tasks",
        "turn_resample_evaluate does nothing without held-out tasks",
    ]
    assert said(**measured) == []


def test_settings_that_act_are_not_mentioned() -> None:
    assert idle() == []
    assert idle(think_budget=100, think_answer_reserve=32, think_evaluate=True) == []
    assert idle(think_stop="official", think_stop_patience=3) == []
    assert idle(think_stop="paper", think_stop_window=3) == []
    assert idle(think_stop="published", think_stop_window=3) == []
    assert idle(turn_resample=True, turn_resample_signal="official") == []
    assert idle(turn_resample=True, turn_resample_rate=0.2, turn_resample_evaluate=True, greedy_arm=False) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"turn_resample_eta": 0.3}, "turn_resample_eta=0.3 does nothing without turn_resample"),
        ({"think_answer_reserve": 9}, "think_answer_reserve=9 does nothing without think_budget or think_stop"),
        ({"think_stop": "paper", "think_stop_eps": 0.1}, "think_stop_eps=0.1 does nothing without think_stop=official"),
        ({"think_budget": 9, "think_stop_window": 2}, "think_stop_window=2 does nothing without think_stop=paper"),
        (
            {"turn_resample": True, "turn_resample_signal": "published", "turn_resample_aggregate": "geometric"},
            "turn_resample_aggregate=geometric does nothing with turn_resample_signal=published",
        ),
        ({"think_budget": 450}, "think_budget=450 never acts: of at most 400 tokens"),
        (
            {"turn_resample": True, "turn_resample_eta": 0.1, "turn_resample_warmup": 9},
            "turn_resample_warmup=9 does nothing: turn_resample_eta is given",
        ),
        (
            {"turn_resample": True, "turn_resample_evaluate": True},
            "turn_resample with greedy sampling would draw the same reply again",
        ),
    ],
)
def test_settings_that_do_nothing_say_so(settings: dict[str, Any], message: str) -> None:
    said = idle(**settings)
    assert len(said) == 1 and message in said[0]
