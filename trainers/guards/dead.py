"""Guard 14, dead update: steps that have something to learn and change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from trainers.guards.events import Update
from trainers.guards.guard import Alarm, Guard, stop, warn
from trainers.guards.levels import GuardName


@dataclass
class DeadUpdate(Guard):
    """The weights stand still, or have no gradient, although some advantage is not 0 and the learning rate is above 0.

    A step without an advantage (all groups flat) or with a rate of 0 (the first of a warm-up) says nothing and is left
    out. Weights that stand still because a step of the learning rate is smaller than the spacing of their number format
    are said apart, and only warned of: nothing is broken, the settings do not go together.

    Attributes:
        limit: Such steps in a row.
        rounded: Share of the weights that a step of the learning rate must be able to change for standing still to be
            no rounding.
    """

    name: ClassVar[str] = GuardName.DEAD_UPDATE
    limit: int = 3
    rounded: float = 0.01
    _still: int = 0
    """Steps in a row in which nothing moved, and `_flat` those without a gradient."""
    _flat: int = 0

    def update(self, step: int, update: Update) -> Iterator[Alarm]:
        """Judge one optimizer step."""
        if not update.advantages or update.rate <= 0:
            return
        self._still = self._still + 1 if update.moved == 0 else 0
        self._flat = self._flat + 1 if update.slope is False else 0
        told = f"{update.advantages:g} trained tokens of step {step} have an advantage, learning_rate {update.rate:g}"
        if self._flat >= self.limit:
            yield stop(
                "no_gradient",
                f"dead update: for {self._flat} steps every gradient was 0 ({told}): the loss reaches no weight, so "
                "that the run learns nothing from its rewards, and weight decay or momentum are all that moves. "
                "Something multiplies the loss or a part of the model by 0, or cuts the graph: an adapter that is "
                "switched off or scaled by 0, a frozen copy in place of the policy, a loss that was detached.",
            )
        elif self._still >= self.limit and update.visible < self.rounded:
            yield warn(
                "rounded",
                f"dead update: for {self._still} steps no weight moved ({told}): a step of that size changes only "
                f"{update.visible:.2%} of the weights in {update.dtype}, and is rounded away in the others. Use "
                "--dtype float32, or a larger learning_rate, or an adapter, whose weights begin at 0.",
            )
        elif self._still >= self.limit:
            why = {
                True: "there are gradients, so the optimizer's step has no effect: it holds other tensors than the "
                "model does (a model that was wrapped or loaded after the optimizer was made), or its step is skipped",
                False: "every gradient is 0",
                None: "no trained weight has a gradient: what is trained (an adapter, perhaps) takes no part in the "
                "loss, or is switched off",
            }[update.slope]
            yield stop(
                "still",
                f"dead update: for {self._still} steps no trained weight moved ({told}); {why}. Nothing is learned.",
            )
