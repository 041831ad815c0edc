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
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from trainers.passes import LearnsInPasses

PLAIN = "plain_advantages"
"""Key of a batch: the advantages of plain GRPO, shape (B, T)."""


def cosine(pairs: Iterable[tuple[torch.Tensor | None, torch.Tensor | None]]) -> float | None:
    """Between the firsts of all pairs and their seconds, each as one vector, in float64.

    `None` in a pair stands for zeros; there is no cosine to a vector of zeros.
    """
    dot = norm_first = norm_second = 0.0
    for first, second in pairs:
        a, b = (None if tensor is None else tensor.detach().double() for tensor in (first, second))
        norm_first += 0.0 if a is None else float(a.square().sum())
        norm_second += 0.0 if b is None else float(b.square().sum())
        dot += 0.0 if a is None or b is None else float((a * b).sum())
    norms = math.sqrt(norm_first) * math.sqrt(norm_second)
    return max(-1.0, min(1.0, dot / norms)) if norms else None


def adam_scales(parameters: Sequence[torch.Tensor], optimizer: Any) -> Iterator[torch.Tensor] | None:
    """`1 / (sqrt(v) + epsilon)` of each parameter in turn, as Adam would divide a gradient now but for its own square.

    Returns:
        `None` where the optimizer has no second moments: it is another one, or this is its first step.
    """
    groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    states = [optimizer.state.get(parameter, {}) for parameter in parameters]
    if not all("exp_avg_sq" in state for state in states):
        return None
    return (_scale(state, groups[id(parameter)]) for parameter, state in zip(parameters, states, strict=True))


def _scale(state: dict[str, Any], group: dict[str, Any]) -> torch.Tensor:
    bias = 1.0 - group["betas"][1] ** float(state["step"])
    return 1.0 / ((state["exp_avg_sq"].double() / bias).sqrt() + group["eps"])


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
        pairs = [(parameter.grad, other) for parameter, other in zip(parameters, plain, strict=True)]
        found = {"cosine/gradient": cosine(pairs)}
        if (scales := adam_scales(parameters, self.optimizer)) is not None:
            scaled = ((_times(a, scale), _times(b, scale)) for (a, b), scale in zip(pairs, scales, strict=True))
            found["cosine/gradient_adam"] = cosine(scaled)
        for name, value in found.items():
            if value is not None:
                self.note_metric(name, value)


def _times(gradient: torch.Tensor | None, scale: torch.Tensor) -> torch.Tensor | None:
    return None if gradient is None else gradient * scale
