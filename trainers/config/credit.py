"""Credit settings that cannot work together, and those that were given and do nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tasks.settings import default_of
from trainers.credit import EpisodeOperator, EpisodeScale, Planning, TurnGrouping, advantage_bound
from trainers.credit.episode import episode_operator
from trainers.credit.settings import CreditSettings
from trainers.credit.token import OPERATORS, DelightMode, SepaSchedule, operator_names
from trainers.credit.token.settings import follows_schedule

_SCALED_BY_ITSELF = {
    EpisodeOperator.DR_GRPO: "Dr. GRPO divides by nothing",
    EpisodeOperator.MAXRL: "MaxRL divides by the group's mean",
    EpisodeOperator.REINFORCE_PP: "REINFORCE++ normalises over the step itself",
    EpisodeOperator.DISCOVER: "its size is set by its own divergence",
}


def credit_problems(c: CreditSettings) -> Iterator[str]:
    """One line per setting that cannot work with the others; `tasks.settings.problems` judges each by itself."""
    scaled = ""
    try:
        operator = episode_operator(c.episode_operator)
        own = not isinstance(operator, EpisodeOperator)
        scaled = "one of your own divides by itself" if own else _SCALED_BY_ITSELF.get(EpisodeOperator(operator), "")
    except ValueError as error:
        yield f"episode_operator={c.episode_operator!r}: {error}."
    if scaled and c.scale_rewards != EpisodeScale.NONE:
        yield (
            f"scale_rewards={c.scale_rewards} with episode_operator={c.episode_operator}: {scaled}. Use "
            "scale_rewards=none, or episode_operator=grpo."
        )
    if c.alpha_episode == 0 and not _has_turn_term(c):
        yield "alpha_episode=0 without a turn term: every advantage would be 0 and nothing could be learned."
    try:
        operator_names(c.token_operators)
    except ValueError as error:
        yield f"token_operators={c.token_operators!r}: {error}."
    if c.delight_eta_min > c.delight_eta_max:
        yield f"delight_eta_min={c.delight_eta_min} is above delight_eta_max={c.delight_eta_max}."
    try:
        _ = Planning(c.planning, c.planning_window).detector
    except ValueError as error:
        yield f"planning={c.planning!r}: {error}."


def _has_turn_term(c: CreditSettings) -> bool:
    return c.beta_turn != 0 and c.turn_grouping != TurnGrouping.NONE


def idle_credit(c: CreditSettings) -> Iterator[str]:
    """What was given and does nothing, one sentence each, beyond the needs that fields declare."""
    operators = operator_names(c.token_operators)
    yield from _idle_readers(c, operators)
    if c.episode_operator == EpisodeOperator.DR_GRPO and getattr(c, "loss_type", "dr_grpo") != "dr_grpo":
        yield (
            "episode_operator=dr_grpo is what grpo with scale_rewards=none does; the other half of Dr. GRPO is "
            "loss_type=dr_grpo"
        )
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
    annealed = "delight" in operators and follows_schedule(c)
    steps = _last_generation(c)
    ramp = c.sepa_schedule == SepaSchedule.LINEAR and ("sepa" in operators or annealed)
    if ramp and (not c.sepa_steps or 0 < steps <= c.sepa_delay + 1):
        ends = f"{getattr(c, 'max_steps', 0)} steps end before sepa_delay={c.sepa_delay}"
        why = "sepa_steps=0 has no ramp" if not c.sepa_steps else ends
        yield f"sepa_schedule=linear does nothing: {why}, and lambda stays 0"
    if c.advantage_cap and not operators and not _has_turn_term(c):
        bound = advantage_bound(c.episode_operator, c.scale_rewards, getattr(c, "num_generations", 0) or 0)
        if bound and c.alpha_episode * bound <= c.advantage_cap:
            yield (
                f"advantage_cap={c.advantage_cap:g} does nothing for rewards between 0 and 1: no advantage exceeds "
                f"{c.alpha_episode * bound:.3g} here"
            )


def _idle_readers(c: CreditSettings, operators: tuple[str, ...]) -> Iterator[str]:
    """What is read by whichever operator says that it does: ours, and those of others."""
    known = {**OPERATORS, **{name: OPERATORS.find(name) for name in operators}}
    planning = [name for name, operator in known.items() if operator.planning]
    signal = [name for name, operator in known.items() if operator.signal]
    for name, readers in (("token_signal", signal), ("planning", planning), ("planning_window", planning)):
        default = default_of(CreditSettings.__dataclass_fields__[name])
        if getattr(c, name) != default and not set(readers) & set(operators):
            yield f"{name}={getattr(c, name)} does nothing without token_operators={' or '.join(readers)}"


def _last_generation(c: CreditSettings) -> int:
    """Optimizer steps up to the last generation, it included: lambda moves when episodes are played."""
    steps: int = getattr(c, "max_steps", 0)
    passes = (getattr(c, "steps_per_generation", None) or 1) * getattr(c, "num_iterations", 1)
    every = passes // max(1, getattr(c, "gradient_accumulation_steps", 1))  # steps that one generation lasts
    return steps if every < 2 or not steps else (steps - 1) // every * every + 1
