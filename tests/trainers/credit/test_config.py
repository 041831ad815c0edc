"""Credit settings: what is refused, and what is said to do nothing."""

from __future__ import annotations

import dataclasses

import pytest

from tasks.settings import idle, problems
from trainers.credit import Credit, CreditSettings
from trainers.settings.checks import credit_problems, idle_credit


@dataclasses.dataclass
class Fields(CreditSettings):
    """As a run has them: with the fields of TRL that they look at."""

    loss_type: str = "dapo"
    num_generations: int = 4
    max_steps: int = 100
    num_iterations: int = 1


def refused(c: Fields) -> list[str]:
    return [*problems(c), *credit_problems(c)]


def said(c: Fields) -> list[str]:
    return [*idle(c), *idle_credit(c)]


def test_defaults_are_refused_nothing_and_say_nothing():
    assert refused(Fields()) == [] and said(Fields()) == []


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"token_operators": "gtop"}, "token_operators='gtop': unknown token operator 'gtop': did you mean 'gtpo'"),
        ({"episode_operator": "grop"}, "episode_operator='grop': unknown episode operator 'grop': did you mean 'grpo'"),
        ({"token_signal": "varentropy"}, "token_signal='varentropy': one of surprisal"),
        ({"hicra_alpha": 1.5}, "hicra_alpha=1.5: between 0 and 1"),
        ({"entropy_mask_share": 0.0}, "entropy_mask_share=0.0: above 0, at most 1"),
        ({"delight_eta_min": 9.0}, "delight_eta_min=9.0 is above delight_eta_max=5.0"),
        ({"sepa_steps": -1}, "sepa_steps=-1: 0 or more"),
        ({"planning": "no_such_module:f"}, "planning='no_such_module:f': planning no_such_module:f"),
        ({"turn_similarity": 0.0}, "turn_similarity=0.0: above 0"),
        ({"invalid_action_penalty": -0.1}, "invalid_action_penalty=-0.1: 0 or more"),
        ({"turn_revisits": "once"}, "turn_revisits='once': one of all, per_trajectory"),
        ({"episode_operator": "maxrl", "scale_rewards": "group"}, "MaxRL divides by the group's mean"),
        ({"episode_operator": "reinforce_pp", "scale_rewards": "batch"}, "REINFORCE++ normalises over the step"),
        ({"episode_operator": "dr_grpo", "scale_rewards": "group"}, "Dr. GRPO divides by nothing"),
        ({"advantage_cap": float("nan")}, "advantage_cap=nan: above 0"),
    ],
)
def test_refused(given, says):
    (problem,) = refused(Fields(**given))
    assert says in problem


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"gtpo_beta": 0.5}, "gtpo_beta=0.5 does nothing without token_operators=gtpo"),
        ({"planning": "let me"}, "planning=let me does nothing without token_operators=sepa or hicra"),
        ({"token_operators": "sepa", "sepa_delay": 0}, "token_operators=sepa does nothing without gtpo"),
        ({"token_operators": "gtpo", "gtpo_beta": 0.0}, "gtpo_beta=0 does nothing"),
        ({"token_operators": "sepa,gtpo", "sepa_decay": 0.9}, "sepa_decay=0.9 does nothing without sepa_schedule=auto"),
        ({"token_operators": "sepa,gtpo", "max_steps": 40}, "40 steps end before sepa_delay=50"),
        ({"token_operators": "sepa,gtpo", "max_steps": 52, "num_iterations": 2}, "52 steps end before sepa_delay=50"),
        ({"token_operators": "delight", "sepa_steps": 9}, "sepa_steps=9 does nothing: delight_mode=soft follows"),
        (
            {"token_operators": "delight", "delight_keep": 0.5},
            "delight_keep=0.5 does nothing without delight_mode=hard",
        ),
        ({"token_operators": "delight", "delight_neutral": 0.4}, "delight_neutral=0.4 does nothing without delight_ad"),
        ({"token_operators": "gtpo", "alpha_episode": 0.0}, "token_operators=gtpo does nothing with alpha_episode=0"),
        ({"turn_similarity": 0.8}, "turn_similarity=0.8 does nothing without turn_grouping=similarity"),
        ({"turn_grouping": "none", "turn_gamma": 0.5}, "turn_gamma=0.5 does nothing with turn_grouping=none"),
        ({"beta_turn": 0.0, "advantage_cap": 1.0}, "advantage_cap=1 does nothing for rewards between 0 and 1"),
        ({"episode_operator": "dr_grpo"}, "the other half of Dr. GRPO is loss_type=dr_grpo"),
        ({"token_operators": "entropy_mask", "entropy_mask_share": 1.0}, "entropy_mask_share=1 does nothing"),
        ({"token_operators": "delight"}, "token_operators=delight does next to nothing with delight_norm=none"),
    ],
)
def test_what_does_nothing_says_so(given, says):
    fields = Fields(**given)
    assert refused(fields) == []
    (note,) = [line for line in said(fields) if says in line]
    assert "nothing" in note or "loss_type" in note


@pytest.mark.parametrize(
    "given",
    [
        {"token_operators": "sepa,gtpo,hicra", "sepa_mode": "amp", "gtpo_beta": 0.5, "planning": "let me"},
        {"token_operators": "delight", "delight_mode": "annealed", "sepa_steps": 9, "delight_norm": "mad"},
        {"token_operators": "delight", "delight_adaptive": True},
        {"token_operators": "delight", "delight_eta": 0.1},
        {"token_operators": "delight", "delight_mode": "hard", "delight_lambda": 0.5},
        {"token_operators": "sepa,gtpo", "max_steps": 52},
        {"turn_grouping": "similarity", "turn_similarity": 0.8, "invalid_action_penalty": 0.1},
        {"scale_rewards": "group", "beta_turn": 0.0, "advantage_cap": 1.0},
        {"episode_operator": "dr_grpo", "loss_type": "dr_grpo"},
    ],
)
def test_what_acts_is_not_called_idle(given):
    fields = Fields(**given)
    assert refused(fields) == [] and said(fields) == []
    Credit(fields)
