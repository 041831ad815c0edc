"""The manual's page of options says what the settings declare.

`python -m tests.trainers.settings.test_options_page` writes it anew.
"""

from __future__ import annotations

import re

import pytest

from tests.shared_data import REPOSITORY
from trainers.settings.help import options_page

PAGE = REPOSITORY / "docs/options.md"


def test_the_page_is_that_of_the_settings() -> None:
    assert PAGE.read_text(encoding="utf-8") == options_page()


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ("think_budget", "num_think_tokens"),
        ("turn_resample", "TDS"),
        ("turn_resample_eta", "eta_threshold"),
        ("turn_resample_max_try", "max_try"),
        ("adaptive_successes", "k_success"),
        ("adaptive_failures", "k_failure"),
        ("num_generations", "group_size"),
        ("beta", "kl_beta"),
        ("token_operators", "transform_mode"),
        ("token_signal", "uncertainty_kind"),
        ("episode_operator", "advantage_mode"),
        ("sepa_delay", "sepa_delay_steps"),
        ("sepa_gate", "sepa_correct_rate_gate"),
        ("entropy_mask_share", "entropy_mask_rho"),
        ("alpha_episode", "gigpo_traj_w"),
        ("beta_turn", "gigpo_step_w"),
        ("advantage_cap", "adv_clip_max"),
    ],
)
def test_the_name_that_published_code_has_for_an_option_stands_in_its_help(option: str, name: str) -> None:
    (row,) = (line for line in options_page().splitlines() if line.startswith(f"| `{option}` |"))
    assert re.search(rf"\({name}|, {name}\)|{name}\)", row)


if __name__ == "__main__":
    PAGE.write_text(options_page(), encoding="utf-8")
