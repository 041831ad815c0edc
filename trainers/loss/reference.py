"""The policy that the KL is measured from (`beta` above 0): the weights this run started with, frozen.

| what is trained | the reference | memory |
|---|---|---|
| a new LoRA adapter | the model with the adapter switched off | none |
| an adapter that goes on learning | a frozen copy of the adapter as it was loaded (`ref`) | the adapter again |
| all weights | a frozen copy of the model as it was given | the model again |

The first two are TRL's own. The third is not: given a model in memory, TRL loads a reference from the place that the
model's config names, which may be no place, or another model. And a copy of the trained model must never be made with
`copy.deepcopy`: the trainer patches `forward` with a function that holds the original. So a new model of the same class
gets the same numbers, before the trainer touches either.

A resumed run starts from the same model (the trainer is built with it, and only then reads the checkpoint), so its
reference is the one of the uninterrupted run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from trainers.loss.dropout import silence_dropout

POLICY_ADAPTER = "default"
"""PEFT's name of the adapter that is trained; TRL calls its frozen copy `ref`."""


def frozen_copy(model: Any) -> Any:
    """A new model with the same weights, in evaluation mode, without dropout and without gradients.

    Args:
        model: A model of transformers (not PEFT's), as it was loaded: no trainer has touched it.

    Raises:
        ValueError: Its `forward` is patched, so that it may not be what its class says.
    """
    if "forward" in vars(model):
        raise ValueError("the model's forward is patched: make the reference before a trainer gets the model")
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):  # initial weights are drawn and thrown away: the run's draws stay
        out = type(model)._from_config(
            copy.deepcopy(model.config), dtype=model.dtype, attn_implementation=model.config._attn_implementation
        )
    types = {name: parameter.dtype for name, parameter in model.named_parameters()}
    for name, parameter in out.named_parameters():  # some models keep a few in float32, whatever the type of the others
        parameter.data = parameter.data.to(types[name])
    out.load_state_dict(model.state_dict(), strict=True)
    kept = dict(model.named_buffers())
    for name, buffer in out.named_buffers():  # also those that a state dict leaves out
        buffer.data = kept[name].detach().clone()
    silence_dropout(out)
    out.requires_grad_(False)
    return out.to(model.device).eval()


@contextmanager
def without_reference(args: Any) -> Iterator[None]:
    """Let TRL put itself together as if there were no KL, so that it loads no reference of its own."""
    beta, args.beta = args.beta, 0.0
    try:
        yield
    finally:
        args.beta = beta


def attach_reference(trainer: Any, reference: Any) -> None:
    """Give a trainer, made `without_reference`, the model that its KL is measured from."""
    from trl.trainer.utils import add_fused_lm_head

    add_fused_lm_head(reference, temperature=trainer.temperature)
    trainer.ref_model = trainer.accelerator.prepare_model(reference, evaluation_mode=True)
    trainer.beta = trainer.args.beta


def k3_tail(trained: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The k3 estimates of KL(policy || reference) of single tokens, nats: the largest, and the 99th percentile.

    The percentile is the value that one token in a hundred exceeds, and one token at least: however few there are, it
    is not that of the largest alone. Both are 0 without a token.

    Args:
        trained: Log-probabilities of the sampled tokens under the policy, shape (B, T).
        reference: Under the reference, same shape.
        mask: Not 0 where a token is trained, same shape.

    Returns:
        Shape (2,).
    """
    difference = (reference - trained)[mask != 0].float()
    if not difference.numel():
        return torch.zeros(2, device=trained.device)
    k3 = difference.exp() - difference - 1
    above = max(1, len(k3) // 100)
    largest = k3.topk(min(above + 1, len(k3))).values
    return torch.stack([largest[0], largest[-1]])
