"""T2PO switches of a run: what they need of its policy and tasks, and which of them do nothing here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from agents.t2po import T2PO, T2POConfig
from agents.uncertainty import OFFICIAL_SKIP, Signal
from tasks.settings import idle
from trainers.errors import ConfigError


def make_t2po(config: T2POConfig) -> T2POConfig | None:
    """The switches that the policy is wrapped with; `None` when all are off (the turn cap is the sampler's own).

    Raises:
        ConfigError: Measurements without and with resampling would be compared.
    """
    if config.turn_resample and config.turn_resample_evaluate and config.turn_resample_eta is None:
        raise ConfigError(
            "turn_resample_evaluate needs turn_resample_eta: a calibrated eta is not known at the first measurements, "
            "so measurements without and with resampling would be compared. Give turn_resample_eta (for example the "
            "one that an earlier run calibrated), or leave turn_resample_evaluate out."
        )
    return replace(config, max_turn_tokens=None) if config.thinks or config.turn_resample else None


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
        raise ConfigError(str(error)) from error


def idle_settings(
    config: T2POConfig, cap: int, *, greedy_arm: bool, held_out: bool = True, turns: int | None = None
) -> Iterator[str]:
    """Settings that were given and do nothing in this run, one sentence each.

    Args:
        config: The settings.
        cap: Tokens of one reply at most, by the flag and by the tasks' budgets.
        greedy_arm: Held-out tasks are also measured greedily.
        held_out: There are held-out tasks.
        turns: Most turns of an episode, where that is known.
    """
    c = config
    if c.max_turn_tokens is not None and c.max_turn_tokens > cap:
        yield f"max_turn_tokens={c.max_turn_tokens} does nothing: no task allows more than {cap} tokens a turn"
    if c.turn_resample and turns == 1:
        yield "turn_resample does nothing: an episode is one reply here, and only later turns are resampled"
    if not held_out:
        for name in ("think_evaluate", "turn_resample_evaluate"):
            if getattr(c, name):
                yield f"{name} does nothing without held-out tasks"
    yield from idle(c)
    if c.turn_resample and c.turn_resample_signal is Signal.OFFICIAL and cap <= OFFICIAL_SKIP:
        yield (
            f"turn_resample does nothing: turn_resample_signal=official leaves out the first {OFFICIAL_SKIP} tokens of "
            f"a reply, and replies have at most {cap}"
        )
    if c.think_budget is not None and c.think_budget >= cap - c.think_answer_reserve - 1:
        yield (
            f"think_budget={c.think_budget} never acts: of at most {cap} tokens of a reply, "
            f"think_answer_reserve={c.think_answer_reserve} are kept, which closes a block sooner"
        )
    if c.turn_resample and c.turn_resample_evaluate and greedy_arm:
        yield (
            "turn_resample_evaluate does nothing in the greedy held-out arm: turn_resample with greedy sampling would "
            "draw the same reply again"
        )
