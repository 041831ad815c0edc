"""How far a step moved the weights, on a sample of them."""

from __future__ import annotations

import math
from typing import Any

import torch

SAMPLE = 65_536
"""Weights looked at, spread evenly over all that are trained: enough for three digits, cheap for any model."""


class WeightDelta:
    """Looks at the weights before and after an optimizer step; changes nothing."""

    def __init__(self) -> None:
        self._before: torch.Tensor | None = None
        self._rate = 0.0
        self._trained = 0

    def begin(self, model: Any, rate: float) -> None:
        """A step begins, with learning rate `rate`."""
        self._trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self._before, self._rate = self._sample(model), rate

    def end(self, model: Any) -> dict[str, float]:
        """The step is done: its figures under the names of the logs; empty without trained weights or a rate.

        `update/weight_delta` is the L2 norm of the change of all trained weights; `update/weight_delta_share` that in
        units of learning rate * sqrt(number of weights): about 1 in Adam's first step, where each weight moves by the
        learning rate, and less in later ones, where gradients of different signs cancel.
        """
        before, self._before = self._before, None
        if before is None or not before.numel() or self._rate <= 0:
            return {}
        norm = float((self._sample(model) - before).norm())
        return {
            "update/weight_delta": norm * math.sqrt(self._trained / before.numel()),
            "update/weight_delta_share": norm / (self._rate * math.sqrt(before.numel())),
        }

    def _sample(self, model: Any) -> torch.Tensor:
        stride = -(-self._trained // SAMPLE) or 1
        parts = [p.detach().flatten()[::stride].double().cpu() for p in model.parameters() if p.requires_grad]
        return torch.cat(parts) if parts else torch.empty(0)
