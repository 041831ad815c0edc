"""T2PO switches of a run: from flags to the wrapper's configuration, with messages that name the flag."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from agents.signals import OFFICIAL_SKIP, Signal
from agents.t2po import T2PO, T2POConfig, ThinkStop
from agents.uncertainty import Aggregate
from trainers.config import T2POArguments
from trainers.errors import ConfigError

FLAGS = {
    "think_budget": "think_budget",
    "answer_reserve": "think_answer_reserve",
    "think_stop": "think_stop",
    "stop_patience": "think_stop_patience",
    "stop_eps": "think_stop_eps",
    "stop_window": "think_stop_window",
    "stop_window_eps": "think_stop_window_eps",
    "stop_min_tokens": "think_stop_min_tokens",
    "think_open": "think_open",
    "think_close": "think_close",
    "evaluate_think": "think_evaluate",
    "turn_resample": "turn_resample",
    "eta": "turn_resample_eta",
    "target_rate": "turn_resample_rate",
    "warmup_turns": "turn_resample_warmup",
    "max_try": "turn_resample_max_try",
    "draw_together": "turn_resample_together",
    "keep": "turn_resample_keep",
    "signal": "turn_resample_signal",
    "how": "turn_resample_aggregate",
    "min_tokens": "turn_resample_min_tokens",
    "evaluate_resample": "turn_resample_evaluate",
}
"""Flag of each field of `T2POConfig`; `max_turn_tokens` is the sampler's own cap."""
TURNS_MEASURED = FLAGS["evaluate_resample"]
_PAPER = ("think_stop_window", "think_stop_window_eps", "think_stop_min_tokens")


def make_t2po(args: T2POArguments) -> T2POConfig | None:
    """The T2PO switches; `None` when all are off (the turn cap is the sampler's own).

    Raises:
        ConfigError: A value makes no sense; the message names its flag.
    """
    if args.max_turn_tokens < 0:
        raise ConfigError(f"max_turn_tokens is {args.max_turn_tokens}: a number of tokens, or 0 for the task's budget")
    values = {field: getattr(args, flag) for field, flag in FLAGS.items()}
    for field in ("think_budget", "eta"):
        values[field] = values[field] or None  # 0 is their flag's "off"
    try:
        config = T2POConfig(**values)
    except ValueError as error:
        raise ConfigError(_with_flags(str(error))) from error
    if config.turn_resample and config.evaluate_resample and config.eta is None:
        raise ConfigError(
            "turn_resample_evaluate needs turn_resample_eta: a calibrated eta is not known at the first measurements, "
            "so measurements without and with resampling would be compared. Give turn_resample_eta (for example the "
            "one that an earlier run calibrated), or leave turn_resample_evaluate out."
        )
    return config if config.thinks or config.turn_resample else None


def check_t2po(config: T2POConfig | None, tokenizer: Any) -> None:
    """Refuse switches that the model's tokenizer has no tokens for, before the run folder is made.

    Raises:
        ConfigError: With the reason.
    """
    if config is None:
        return
    try:
        T2PO(SimpleNamespace(tokenizer=tokenizer), config)
    except ValueError as error:
        raise ConfigError(_with_flags(str(error))) from error


def check_room(config: T2POConfig | None, cap: int) -> None:
    """Refuse think limits that leave a reply of `cap` tokens no room to think.

    Raises:
        ConfigError: With the reason.
    """
    if config is not None and config.thinks and cap <= config.answer_reserve + 1:
        raise ConfigError(
            f"think_answer_reserve={config.answer_reserve}: replies have at most {cap} tokens (max_turn_tokens, or the "
            "tasks' own budget), so every think block would be closed at once. Lower it, or raise max_turn_tokens."
        )


def idle_settings(
    args: T2POArguments, cap: int, *, greedy_arm: bool, held_out: bool = True, turns: int | None = None
) -> list[str]:
    """Settings that were given and do nothing, one sentence each.

    Args:
        args: The flags.
        cap: Tokens of one reply at most, by the flag and by the tasks' budgets.
        greedy_arm: Held-out tasks are also measured greedily.
        held_out: There are held-out tasks.
        turns: Most turns of an episode, where that is known.
    """
    return list(_idle(args, cap, greedy_arm, held_out, turns))


def _idle(args: T2POArguments, cap: int, greedy_arm: bool, held_out: bool, turns: int | None) -> Iterator[str]:
    if args.max_turn_tokens > cap:
        yield f"max_turn_tokens={args.max_turn_tokens} does nothing: no task allows more than {cap} tokens a turn"
    if args.turn_resample and turns == 1:
        yield "turn_resample does nothing: an episode is one reply here, and only later turns are resampled"
    if not held_out:
        for switch, flag in ((args.think_evaluate, "think_evaluate"), (args.turn_resample_evaluate, TURNS_MEASURED)):
            if switch:
                yield f"{flag} does nothing without held-out tasks"
    thinks = args.think_budget > 0 or args.think_stop != ThinkStop.NONE
    for f in dataclasses.fields(T2POArguments):
        value = getattr(args, f.name)
        if value == f.default:
            continue
        if f.name.startswith("turn_resample_") and not args.turn_resample:
            yield f"{f.name}={value} does nothing without turn_resample"
        elif f.name in ("turn_resample_rate", "turn_resample_warmup") and args.turn_resample_eta:
            yield f"{f.name}={value} does nothing: turn_resample_eta is given, so nothing is calibrated"
        elif f.name in ("think_stop_patience", "think_stop_eps") and args.think_stop != ThinkStop.OFFICIAL:
            yield f"{f.name}={value} does nothing without think_stop=official"
        elif f.name in _PAPER and args.think_stop not in (ThinkStop.PAPER, ThinkStop.PUBLISHED):
            yield f"{f.name}={value} does nothing without think_stop=paper or published"
        elif f.name.startswith("think_") and not thinks:
            yield f"{f.name}={value} does nothing without think_budget or think_stop"
    if args.turn_resample:
        yield from _idle_signal(args, cap)
    if args.think_budget and args.think_budget >= cap - args.think_answer_reserve - 1:
        yield (
            f"think_budget={args.think_budget} never acts: of at most {cap} tokens of a reply, "
            f"think_answer_reserve={args.think_answer_reserve} are kept, which closes a block sooner"
        )
    if args.turn_resample and args.turn_resample_evaluate and greedy_arm:
        yield (
            "turn_resample_evaluate does nothing in the greedy held-out arm: turn_resample with greedy sampling would "
            "draw the same reply again"
        )


def _idle_signal(args: T2POArguments, cap: int) -> Iterator[str]:
    if args.turn_resample_signal == Signal.PUBLISHED and args.turn_resample_aggregate != Aggregate.ARITHMETIC:
        yield (
            f"turn_resample_aggregate={args.turn_resample_aggregate} does nothing with turn_resample_signal=published: "
            "its mean is the geometric one"
        )
    if args.turn_resample_signal == Signal.OFFICIAL and cap <= OFFICIAL_SKIP:
        yield (
            f"turn_resample does nothing: turn_resample_signal=official leaves out the first {OFFICIAL_SKIP} tokens of "
            f"a reply, and replies have at most {cap}"
        )


def _with_flags(message: str) -> str:
    return re.sub(r"T2POConfig\.(\w+)", lambda match: FLAGS.get(match[1], match[1]), message)
