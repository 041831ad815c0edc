"""The names of retrain's research guide for figures of a step, beside ours (`metric_names=retrain`).

One table says which of our figures each name stands for; a name whose figure a step does not have is left out. What
retrain names and nothing here measures has no row. Where the meaning differs, the row says how.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Figures = Mapping[str, Any]


class MetricNames(StrEnum):
    """Which names figures of a training step have in metrics.jsonl and trackers."""

    OURS = "ours"
    RETRAIN = "retrain"
    """Ours, and beside them those of retrain's guide."""


@dataclass(frozen=True, slots=True)
class Name:
    """A name of retrain's.

    Attributes:
        needs: Our figures that it stands for.
        of: Makes its value of theirs; default: the one figure as it is.
        note: Where it is not quite the same.
    """

    needs: tuple[str, ...]
    of: Callable[..., float] | None = None
    note: str = ""


_EPISODES, _LOST, _PASSED = "env/episodes", "env/infra_error_frac", "env/pass_rate"
_TOKENS, _SECONDS = "mask/sampled_tokens", "step_time"


RETRAIN: dict[str, Name] = {
    "mean_reward": Name(("reward",)),
    "correct_rate": Name((_PASSED,), note="every assertion passed, not a reward above 0.5"),
    "num_datums": Name(
        (_EPISODES, "gigpo/dead_group_frac"),
        lambda episodes, dead: round(episodes * (1.0 - dead)),
        "episodes of groups with an advantage, turn term included",
    ),
    "max_token_hit_rate": Name(("completions/clipped_ratio",)),
    "batch_size": Name((_EPISODES,), note="episodes, not prompts"),
    "reward_uniform_group_rate": Name(("gigpo/flat_group_frac",)),
    "reward_tie_pair_rate": Name(("gigpo/tied_pair_frac",)),
    "sepa_lambda": Name(("credit/lambda",)),
    "exec_surprisal_mean": Name(("credit/exec_signal_mean",), note="of `token_signal`, as the next five"),
    "exec_surprisal_var": Name(("credit/exec_signal_var",)),
    "plan_surprisal_mean": Name(("credit/plan_signal_mean",)),
    "plan_surprisal_var": Name(("credit/plan_signal_var",)),
    "post_exec_surprisal_mean": Name(("credit/post_exec_signal_mean",)),
    "post_exec_surprisal_var": Name(("credit/post_exec_signal_var",)),
    "post_plan_surprisal_mean": Name(("credit/post_plan_signal_mean",)),
    "post_plan_surprisal_var": Name(("credit/post_plan_signal_var",)),
    "entropy_mask_fraction": Name(("credit/mask_kept",), lambda kept: 1.0 - kept, "the share that is masked"),
    "adv_cap_fraction": Name(("credit/capped_frac",)),
    "adv_cap_magnitude": Name(("credit/capped_magnitude",), note="of the advantages that were cut"),
    "dg_gate_mean": Name(("credit/delight_gate_mean",)),
    "dg_breakthrough_frac": Name(("credit/delight_breakthrough_frac",)),
    "dg_suppressed_frac": Name(("credit/delight_suppressed_frac",)),
    "dg_neutral_frac": Name(("credit/delight_neutral_frac",)),
    "dg_eta": Name(("credit/delight_eta",)),
    "clip_fraction": Name(("clip_ratio/region_mean",)),
    "behavior/invalid_action_rate": Name(("env/malformed_frac",)),
    "tokens_per_step": Name((_TOKENS,)),
    "tokens_per_second": Name((_TOKENS, _SECONDS), lambda tokens, seconds: tokens / seconds if seconds else 0.0),
    "step_time_s": Name((_SECONDS,)),
    "sample_time_s": Name(("time/rollout_seconds",)),
    "train_time_s": Name(("time/learn_seconds",)),
}
"""By their name, in the order of their file."""
RUNNING, GROUP = "running_correct_rate", "group_size"
"""Names that need more than the figures of a step: those of the steps before it; a setting."""


def retrain_figures(figures: Figures, before: Iterable[Figures], group_size: int) -> dict[str, float]:
    """A step's figures under retrain's names.

    Args:
        figures: Of the step, under ours.
        before: Of the steps before it: the rate of correct answers so far counts every graded episode once.
        group_size: K.
    """
    out: dict[str, float] = {}
    for name, row in RETRAIN.items():
        values = [figures[need] for need in row.needs if figures.get(need) is not None]
        if len(values) == len(row.needs):
            out[name] = float(row.of(*values) if row.of is not None else values[0])
    passed = graded = 0.0
    for step in (*before, figures):
        episodes, lost, rate = (step.get(need) for need in (_EPISODES, _LOST, _PASSED))
        if episodes is not None and lost is not None and rate is not None:
            n = episodes * (1.0 - lost)
            passed, graded = passed + n * rate, graded + n
    if graded:
        out[RUNNING] = passed / graded
    out[GROUP] = float(group_size)
    return out
