"""How far a step moved the weights, and whether it had a gradient, on a sample of them."""

from __future__ import annotations

import math
from typing import Any

import torch

from trainers.guards.events import Update

SAMPLE = 65_536
"""Weights looked at, spread evenly over all that are trained: enough for three digits, cheap for any model."""


class WeightDelta:
    """Looks at the weights before and after an optimizer step, and at its gradients; changes nothing.

    Every trained tensor has a weight in the sample, an adapter's as well as a norm's, so that a sample in which nothing
    moved is no chance.
    """

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []
        self._before: torch.Tensor | None = None
        self._rate = 0.0
        self._trained = 0
        self._slope: bool | None = None

    def begin(self, model: Any, rate: float) -> None:
        """A step begins, with learning rate `rate`."""
        self._tensors = [p for p in model.parameters() if p.requires_grad]
        self._trained = sum(p.numel() for p in self._tensors)
        self._before, self._rate, self._slope = self._sample(), rate, None

    def gradients(self) -> None:
        """The gradients of the step are there, and it is not taken yet."""
        slopes = [p.grad.flatten()[:: self._stride] for p in self._tensors if p.grad is not None]
        found = [slope.count_nonzero() for slope in slopes if slope.numel()]
        if found:  # one copy to the host per device
            self._slope = any(bool(torch.stack(some).sum()) for some in _by_device(found))
        # Without a gradient anywhere nothing is known: some optimizers keep them elsewhere.

    def end(self, advantages: float = 0.0) -> tuple[dict[str, float], Update | None]:
        """The step is done: its figures under the names of the logs, and what guards are told.

        `update/weight_delta` is the L2 norm of the change of all trained weights; `update/weight_delta_share` that in
        units of learning rate * sqrt(number of weights): about 1 in Adam's first step, where each weight moves by the
        learning rate, and less in later ones, where gradients of different signs cancel. Both are left out without
        trained weights or a rate.

        Args:
            advantages: Trained tokens of the step whose advantage was not 0.
        """
        before, self._before = self._before, None
        if before is None:
            return {}, None
        tensors, self._tensors = self._tensors, []
        if not before.numel():  # nothing is trained, or other processes hold all of it
            moved = None if tensors else 0.0
            return {}, Update(self._rate, advantages, moved, self._slope)
        norm = float((self._sample(tensors) - before).norm())
        moved = norm * math.sqrt(self._trained / before.numel())
        dtype = str(tensors[0].dtype).removeprefix("torch.")
        visible = 1.0 if norm else self._visible(tensors)
        update = Update(self._rate, advantages, moved, self._slope, visible, dtype)
        if self._rate <= 0:
            return {}, update
        share = norm / (self._rate * math.sqrt(before.numel()))
        return {"update/weight_delta": moved, "update/weight_delta_share": share}, update

    @property
    def _stride(self) -> int:
        return -(-self._trained // SAMPLE) or 1

    def _sample(self, tensors: list[torch.Tensor] | None = None) -> torch.Tensor:
        held = self._tensors if tensors is None else tensors
        parts = [p.detach().flatten()[:: self._stride].double().cpu() for p in held]
        return torch.cat(parts) if parts else torch.empty(0)

    def _visible(self, tensors: list[torch.Tensor]) -> float:
        """Share of the sample that adding the learning rate would change, in the weights' own number format."""
        changed = total = 0
        for tensor in tensors:
            some = tensor.detach().flatten()[:: self._stride]
            changed += int(((some + self._rate) != some).sum())
            total += some.numel()
        return changed / total


def _by_device(values: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    out: dict[torch.device, list[torch.Tensor]] = {}
    for value in values:
        out.setdefault(value.device, []).append(value)
    return list(out.values())
