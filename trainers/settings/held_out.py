"""Settings of the held-out rule and of guards."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from tasks.settings import Settings, setting

# -- Settings of the held-out measurement: how it decodes, what chooses `best/`, when a run stops ---------------------

DEFAULT_METRIC = "sampled_pass_rate"
"""Sampled pass rate on held-out tasks of the families that are trained on."""
UNSEEN = "unseen_"
"""Begins the names of arms and figures of the tasks whose families are never trained on."""
PREFIXES = ("eval_", "held_out_")
"""May stand before a metric's name: as the logs write it, and to say that tasks of trained families are meant."""


class Arm(StrEnum):
    """How the held-out episodes are decoded."""

    SAMPLED = "sampled"
    GREEDY = "greedy"


class Figure(StrEnum):
    """What of a measurement may choose the checkpoint. Larger is better for every one."""

    PASS_RATE = "pass_rate"
    ASSERTION_RATE = "assertion_rate"
    REWARD = "reward"


class Metric(NamedTuple):
    """A deciding metric, taken apart: `unseen_greedy_reward` is the `reward` of the arm `unseen_greedy`."""

    arm: str
    figure: Figure


def take_apart(name: str) -> Metric:
    """A metric's arm and figure.

    Raises:
        ValueError: It is none of ours; the message names the nearest one.
    """
    for figure in Figure:
        arm = name.removesuffix(f"_{figure}")
        if arm != name and arm.removeprefix(UNSEEN) in tuple(Arm):
            return Metric(arm, figure)
    raise ValueError(unknown(name, known_metrics(greedy=True)))


def canonical(name: str) -> str:
    """A metric's name without what may stand before it."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def known_metrics(*, greedy: bool) -> list[str]:
    """Names that may decide; those of unseen families need tasks of such families."""
    arms = [Arm.SAMPLED, *([Arm.GREEDY] if greedy else [])]
    return [f"{side}{arm}_{figure}" for side in ("", UNSEEN) for arm in arms for figure in Figure]


def unknown(name: str, known: list[str]) -> str:
    """The message for a name that is none of `known`."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return f"best_metric={name!r}: no figure of the held-out tasks{meant} Known: {', '.join(known)}."


@dataclass
class HeldOutFields(Settings):
    """The held-out rule. The pool never decides."""

    held_out_samples: int = setting(
        1, "Sampled attempts at each held-out task (the greedy arm has one: all are alike).", low=1, common=True
    )
    held_out_temperature: float = setting(
        1.0,
        "Temperature of the sampled held-out arm (a greedy arm runs beside it).",
        above=0,
        why="the greedy arm is measured by held_out_greedy",
    )
    held_out_greedy: bool = setting(True, "Also measure greedily.")
    held_out_together: bool = setting(
        False,
        "Play the arms at the same time: the policy waits less for sandboxes, in batches half as large. "
        "Slower for a small policy on few cores (python -m benchmarks.evaluation).",
    )
    best_metric: str = setting(
        "",
        "Held-out figure that chooses `best/`: {sampled,greedy}_{pass_rate,assertion_rate,reward}, with "
        "`unseen_` before it for families that are never trained on. Empty: metric_for_best_model, else "
        f"{DEFAULT_METRIC} on families that are trained on.",
        common=True,
    )
    patience: int | None = setting(
        None,
        "Stop after this many held-out evaluations without a new best; 0 = never.",
        off=0,
        above=0,
        unit="evaluations",
        common=True,
    )
    min_delta: float = setting(0.0, "How much better a new best must be.", low=0, why="a new best is never a worse one")

    def __post_init__(self) -> None:
        """Fill in the deciding metric; transformers' name for it, where it is used, follows.

        What contradicts is left as it is, for `held_out_problems` to say.
        """
        asked = getattr(self, "metric_for_best_model", None)
        self.best_metric = canonical(self.best_metric or asked or DEFAULT_METRIC)
        if asked is None and getattr(self, "load_best_model_at_end", False):
            asked = self.best_metric  # transformers would look for a `loss`
        if asked is not None:
            self.metric_for_best_model = f"eval_{canonical(asked)}"
            if getattr(self, "greater_is_better", None) is None:
                self.greater_is_better = True
        super().__post_init__()

    def held_out_problems(self) -> Iterator[str]:
        """One line per setting that cannot work with the others."""
        known = known_metrics(greedy=self.held_out_greedy)
        if self.best_metric in known_metrics(greedy=True) and self.best_metric not in known:
            yield f"best_metric={self.best_metric!r}: is not measured with held_out_greedy off. Set held_out_greedy."
        elif self.best_metric not in known:
            yield unknown(self.best_metric, known)
        yield from self._stock_problems()

    def _stock_problems(self) -> Iterator[str]:
        """Transformers' own settings for choosing a checkpoint, where they contradict ours or would do nothing."""
        asked = getattr(self, "metric_for_best_model", None)
        if asked is not None and canonical(asked) != self.best_metric:
            yield (
                f"metric_for_best_model={canonical(asked)!r} and best_metric={self.best_metric!r}: one figure chooses "
                "`best/`. Set one of the two."
            )
        if getattr(self, "greater_is_better", None) is False:
            yield "greater_is_better=False: every held-out figure is better when it is larger. Leave it out."
        if getattr(self, "load_best_model_at_end", False) and getattr(self, "eval_strategy", "no") == "no":
            yield "load_best_model_at_end: nothing is measured with eval_strategy=no. Set eval_strategy=steps."


# -- Settings of the run-time checks: which are on, and what each does when it fires ----------------------------------


@dataclass
class GuardFields(Settings):
    """The guards. All are on by default; docs/guards.md says what each looks at."""

    guards: str = setting(
        "all",
        "Run-time checks: all | none, then `name=off|note|warn|stop` for single ones, with commas between "
        "(`resample_budget=off,update_health=warn`). stop ends the run after the step; notes stay notes.",
        common=True,
    )
