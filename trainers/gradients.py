"""How far a step's gradient is from that of plain GRPO on the same batch (`gradient_cosine_steps`).

Credit that changes advantages need not change what is learned: their signs and most of their sizes stay, and Adam
divides each weight's gradient by its running size. So the step's own rows are passed once more with the advantages of
plain GRPO, and three cosines are logged:

| metric | between |
|---|---|
| `cosine/advantages` | the advantages of the generation's tokens |
| `cosine/gradient` | the gradients of the step, before clipping |
| `cosine/gradient_adam` | both over `sqrt(v) + epsilon`, `v` Adam's second moment before the step (none in its first) |

Nothing of it reaches the weights: figures and gradients of the second pass are taken away again. It costs one more pass
over the rows, and memory for one more gradient. Source: the gradient cosines of the SEPA study, which measured a toy
model on one prompt a batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from trainers.passes import LearnsInPasses

PLAIN = "plain_advantages"
"""Key of a batch: the advantages of plain GRPO, shape (B, T)."""


def cosine(first: Sequence[torch.Tensor | None], second: Sequence[torch.Tensor | None]) -> float | None:
    """Between two lists of tensors as vectors, in float64; `None` is 0, and there is no cosine to a vector of zeros.

    Raises:
        ValueError: They differ in length.
    """
    dot = norm_first = norm_second = 0.0
    for a, b in zip(first, second, strict=True):
        if a is not None:
            norm_first += float(a.detach().double().square().sum())
        if b is not None:
            norm_second += float(b.detach().double().square().sum())
        if a is not None and b is not None:
            dot += float((a.detach().double() * b.detach().double()).sum())
    norms = math.sqrt(norm_first) * math.sqrt(norm_second)
    return max(-1.0, min(1.0, dot / norms)) if norms else None


def adam_scales(parameters: Sequence[torch.Tensor], optimizer: Any) -> list[torch.Tensor] | None:
    """`1 / (sqrt(v) + epsilon)` of each parameter, as Adam would divide a gradient now but for its own new square.

    Returns:
        `None` where the optimizer has no second moments: it is another one, or this is its first step.
    """
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    out = []
    for parameter in parameters:
        state = optimizer.state.get(parameter, {})
        if "exp_avg_sq" not in state:
            return None
        group = groups[id(parameter)]
        bias = 1.0 - group["betas"][1] ** float(state["step"])
        out.append(1.0 / ((state["exp_avg_sq"].double() / bias).sqrt() + group["eps"]))
    return out


class ComparesGradients(LearnsInPasses):
    """The part of the trainer that measures the gradient of plain GRPO beside that of the step."""

    _plain_gradients: list[torch.Tensor | None] | None = None
    """Of the micro-steps of the step of now; `None` where it is not measured."""

    # Set by transformers, which is not analysed.
    optimizer: Any

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        """One micro-step; the last one of a step that is measured logs the cosines."""
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self._plain_gradients is not None and self.accelerator.sync_gradients:
            plain, self._plain_gradients = self._plain_gradients, None
            self._note_cosines(plain)
        return loss

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """As ever; before it, where the step is measured, the same rows with the advantages of plain GRPO."""
        every = self.args.gradient_cosine_steps
        if every and self.model.training and self.state.global_step % every == 0:
            self._add_plain(model, inputs, num_items_in_batch)
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def _trained(self) -> list[torch.Tensor]:
        return [parameter for parameter in self.model.parameters() if parameter.requires_grad]

    def _add_plain(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any) -> None:
        """Adds the gradients of these rows to those of plain GRPO, and puts everything else back."""
        parameters, before = self._trained(), self._figures()
        kept = [parameter.grad for parameter in parameters]
        for parameter, gradient in zip(parameters, self._plain_gradients or [None] * len(parameters), strict=True):
            parameter.grad = gradient
        try:
            loss = super().compute_loss(model, {**inputs, "advantages": inputs[PLAIN]}, False, num_items_in_batch)
            if loss.grad_fn is not None:  # in passes the gradients are there already
                self.accelerator.backward(loss)
            self._plain_gradients = [parameter.grad for parameter in parameters]
        finally:
            self._put_back(before)
            for parameter, gradient in zip(parameters, kept, strict=True):
                parameter.grad = gradient

    def _note_cosines(self, plain: Sequence[torch.Tensor | None]) -> None:
        parameters = self._trained()
        own = [parameter.grad for parameter in parameters]
        found = {"cosine/gradient": cosine(own, plain)}
        scales = adam_scales(parameters, self.optimizer)
        if scales is not None:
            found["cosine/gradient_adam"] = cosine(_scaled(own, scales), _scaled(plain, scales))
        for name, value in found.items():
            if value is not None:
                self.note_metric(name, value)


def _scaled(gradients: Sequence[torch.Tensor | None], scales: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    return [None if gradient is None else gradient * scale for gradient, scale in zip(gradients, scales, strict=True)]
