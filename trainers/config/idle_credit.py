"""Credit settings that were given and do nothing, for the notes of a run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from trainers.config.credit import CreditFields
from trainers.credit import EpisodeOperator, EpisodeScale, TurnGrouping, advantage_bound
from trainers.credit.token import OPERATORS, DelightMode, SepaSchedule, operator_names

_OWNERS = {
    "gtpo_": ("gtpo",),
    "hicra_": ("hicra",),
    "sepa_": ("sepa", "delight"),
    "entropy_mask_": ("entropy_mask",),
    "delight_": ("delight",),
}
"""Prefix of a setting, and the operators that read it; `_owners` has those that any operator may read."""
_ADAPTIVE = ("delight_neutral", "delight_eta_min", "delight_eta_max", "delight_eta_decay")
_AUTO = ("sepa_decay", "sepa_variance", "sepa_warmup")


def idle_credit(fields: CreditFields) -> list[str]:
    """Settings that were given and do nothing, one sentence each."""
    try:
        operators = operator_names(fields.token_operators)
    except ValueError:
        return []  # refused elsewhere, with the reason
    return [*_idle_turns(fields), *_idle_tokens(fields, operators), *_idle_operators(fields, operators)]


def _given(fields: CreditFields) -> Iterator[str]:
    for f in dataclasses.fields(CreditFields):
        if getattr(fields, f.name) != f.default:
            yield f.name


def _idle_turns(c: CreditFields) -> Iterator[str]:
    given = set(_given(c))
    if c.turn_grouping == TurnGrouping.NONE or c.beta_turn == 0:
        off = "turn_grouping=none" if c.turn_grouping == TurnGrouping.NONE else "beta_turn=0"
        for name in ("turn_gamma", "turn_std", "turn_signal", "turn_revisits", "invalid_action_penalty"):
            if name in given:
                yield f"{name}={getattr(c, name)} does nothing with {off}"
    if "turn_similarity" in given and c.turn_grouping != TurnGrouping.SIMILARITY:
        yield f"turn_similarity={c.turn_similarity} does nothing without turn_grouping=similarity"
    if c.episode_operator == EpisodeOperator.DR_GRPO and getattr(c, "loss_type", "dr_grpo") != "dr_grpo":
        yield (
            "episode_operator=dr_grpo is what grpo with scale_rewards=none does; the other half of Dr. GRPO is "
            "loss_type=dr_grpo"
        )


def _owners(setting: str, operators: tuple[str, ...]) -> tuple[str, ...] | None:
    """The operators that read a setting: of ours, and of those that were asked for; `None` for none of theirs."""
    known = {**OPERATORS, **{name: OPERATORS.find(name) for name in operators}}
    if setting.startswith("planning"):
        return tuple(name for name, operator in known.items() if operator.planning)
    if setting == "token_signal":
        return tuple(name for name, operator in known.items() if operator.signal)
    return next((names for prefix, names in _OWNERS.items() if setting.startswith(prefix)), None)


def _idle_tokens(c: CreditFields, operators: tuple[str, ...]) -> Iterator[str]:
    for name in _given(c):
        owners = _owners(name, operators)
        if owners is None:
            continue
        if not set(owners) & set(operators):
            yield f"{name}={getattr(c, name)} does nothing without token_operators={' or '.join(owners)}"
        elif name.startswith("sepa_") and "sepa" not in operators and not _follows_schedule(c):
            yield f"{name}={getattr(c, name)} does nothing: delight_mode={c.delight_mode} follows no schedule here"
        elif name in _AUTO and c.sepa_schedule != SepaSchedule.AUTO:
            yield f"{name}={getattr(c, name)} does nothing without sepa_schedule=auto"
        elif name in _ADAPTIVE and not c.delight_adaptive:
            yield f"{name}={getattr(c, name)} does nothing without delight_adaptive"
        elif name == "delight_keep" and c.delight_mode != DelightMode.HARD:
            yield f"delight_keep={c.delight_keep} does nothing without delight_mode=hard"
        elif name == "delight_lambda" and c.delight_mode == DelightMode.SOFT:
            yield f"delight_lambda={c.delight_lambda} does nothing with delight_mode=soft"
        elif name in ("delight_norm", "delight_eta", "delight_adaptive") and c.delight_mode == DelightMode.HARD:
            yield f"{name}={getattr(c, name)} does nothing with delight_mode=hard: it only ranks tokens"
        elif name == "sepa_mode" and "sepa" not in operators:
            yield f"sepa_mode={c.sepa_mode} does nothing without token_operators=sepa"


def _follows_schedule(c: CreditFields) -> bool:
    return c.delight_mode == DelightMode.ANNEALED and c.delight_lambda is None


def _idle_operators(c: CreditFields, operators: tuple[str, ...]) -> Iterator[str]:
    if operators and c.alpha_episode == 0:
        yield f"token_operators={c.token_operators} does nothing with alpha_episode=0: they weigh the episode term"
    if "sepa" in operators and "gtpo" not in operators:
        yield "token_operators=sepa does nothing without gtpo, which turns its signal into weights"
    if "gtpo" in operators and c.gtpo_beta == 0:
        yield "gtpo_beta=0 does nothing: every weight is 1"
    if "hicra" in operators and c.hicra_alpha == 0:
        yield "hicra_alpha=0 does nothing: every weight is 1"
    if "entropy_mask" in operators and c.entropy_mask_share == 1:
        yield "entropy_mask_share=1 does nothing: every token is kept"
    if "delight" in operators and c.delight_mode != DelightMode.SOFT and c.delight_lambda == 0:
        yield "delight_lambda=0 does nothing: every weight is 1"
    steps = _last_generation(c)
    ramp = c.sepa_schedule == SepaSchedule.LINEAR and ("sepa" in operators or _annealed(c, operators))
    if ramp and (not c.sepa_steps or 0 < steps <= c.sepa_delay + 1):
        ends = f"{getattr(c, 'max_steps', 0)} steps end before sepa_delay={c.sepa_delay}"
        why = "sepa_steps=0 has no ramp" if not c.sepa_steps else ends
        yield f"sepa_schedule=linear does nothing: {why}, and lambda stays 0"
    if c.advantage_cap and not operators and (c.beta_turn == 0 or c.turn_grouping == TurnGrouping.NONE):
        yield from _idle_cap(c)


def _last_generation(c: CreditFields) -> int:
    """Optimizer steps up to the last generation, it included: lambda moves when episodes are played."""
    steps: int = getattr(c, "max_steps", 0)
    passes = (getattr(c, "steps_per_generation", None) or 1) * getattr(c, "num_iterations", 1)
    every = passes // max(1, getattr(c, "gradient_accumulation_steps", 1))  # steps that one generation lasts
    return steps if every < 2 or not steps else (steps - 1) // every * every + 1


def _annealed(c: CreditFields, operators: tuple[str, ...]) -> bool:
    return "delight" in operators and _follows_schedule(c)


def _idle_cap(c: CreditFields) -> Iterator[str]:
    try:
        scale = EpisodeScale(getattr(c, "scale_rewards", EpisodeScale.NONE))
        bound = advantage_bound(c.episode_operator, scale, getattr(c, "num_generations", 0) or 0)
    except ValueError:
        return  # refused elsewhere
    if bound is not None and bound > 0 and abs(c.alpha_episode) * bound <= c.advantage_cap:
        yield (
            f"advantage_cap={c.advantage_cap:g} does nothing for rewards between 0 and 1: no advantage exceeds "
            f"{abs(c.alpha_episode) * bound:.3g} here"
        )
