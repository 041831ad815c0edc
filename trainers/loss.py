"""What the loss rests on: sampled against trained probabilities, the reference of the KL, dropout."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

# -- Dropout off, all of it: what is trained must be what was sampled -------------------------------------------------
# TRL's `disable_dropout` reaches modules of the class `Dropout`. Many models keep numbers of their own beside them,
# which act in training mode and which that option leaves alone: `attention_dropout` of Llama and Qwen, `dropout` and
# `layerdrop` of OPT, `hidden_dropout` of BLOOM.

_READ_FROM_CONFIG = {"falcon": ("hidden_dropout", "attention_dropout"), "persimmon": ("attention_dropout",)}
"""Model types whose layers read rates from the model's config in every call; elsewhere the config acts no more."""


def silence_dropout(model: Any) -> list[str]:
    """Set every dropout of a model to 0, in place; returns the names of those that were not."""
    changed = []
    for name, owner, attribute in list(_acting(model)):
        setattr(owner, attribute, 0.0)
        changed.append(name)
    return changed


def active_dropout(model: Any) -> list[str]:
    """Names of the dropouts of a model that would act in training."""
    return [name for name, _, _ in _acting(model)]


def _acting(model: Any) -> Iterator[tuple[str, Any, str]]:
    """Name, owner and attribute of every rate above 0.

    A rate is `p` of a dropout module, or a number of a module that has "drop" in its name. A module of that name (BLOOM
    and Falcon call one `attention_dropout`) is none: it comes up by itself.
    """
    for name, module in model.named_modules():
        is_dropout = isinstance(module, torch.nn.modules.dropout._DropoutNd)
        for attribute, value in vars(module).items():
            if not isinstance(value, float) or value <= 0:
                continue
            if is_dropout and attribute == "p":
                yield name, module, attribute
            elif "drop" in attribute:
                yield f"{name}.{attribute}", module, attribute
    config = getattr(model, "config", None)
    for attribute in _READ_FROM_CONFIG.get(getattr(config, "model_type", ""), ()):
        if getattr(config, attribute) > 0:
            yield f"config.{attribute}", config, attribute


# -- Sampled against trained log-probabilities: how far apart they are, and the weight that corrects for it -----------
# A sampler that is not exactly the trained weights (another number format, a server, older weights) draws from another
# distribution than the one that TRL's ratio starts from. Each token is then weighted by `min(exp(old - sampled), cap)`
# (truncated importance sampling, Ionides 2008). The weight is folded into the advantage, which is exact for every loss
# that is allowed here: it is a constant >= 0, and `min(r * wA, clip(r) * wA)` is `w * min(r * A, clip(r) * A)`; the
# signs that the clips, SAPO's temperatures and the off-policy mask look at stay, too.


PASSED = "passed"
"""Key of the batch of a loss: 1 for the rows that were scored, shape (B,); without it all were."""


class Mismatch(NamedTuple):
    """Sampled against trained log-probabilities on the trained tokens of one batch, of all processes.

    Attributes:
        tokens: How many tokens were compared.
        advantaged: How many of them have an advantage that is not 0: what a gradient can come from.
        means: Figures for the log that are averaged; those of the weights only where they act. None without a token.
        largest: Figures of which the largest counts. `sampling/ratio_max` is that of either direction, before the cap.
    """

    tokens: float
    advantaged: float
    means: dict[str, float]
    largest: dict[str, float]


def log_ratios(old: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """`old - sampled` per token, nats; 0 where no token is trained or the sampler could not score it (NaN).

    Args:
        old: Log-probabilities under the weights that the ratio of the loss starts from, shape (B, T).
        sampled: Under the distribution that was sampled, same shape.
        mask: Not 0 where a token is trained, same shape.
    """
    return torch.where((mask != 0) & ~torch.isnan(sampled), old - sampled, 0.0)


def importance_weights(ratios: torch.Tensor, cap: float) -> torch.Tensor:
    """`min(exp(ratios), cap)`: exactly 1 where the two agree, and never negative."""
    return ratios.exp().clamp(max=cap)


def correct(
    inputs: dict[str, Any],
    trained: torch.Tensor,
    *,
    exact: bool,
    cap: float,
    gather: Callable[[torch.Tensor], torch.Tensor],
) -> Mismatch:
    """Compare sampled with trained log-probabilities; weight `inputs["advantages"]` unless the sampler is `exact`.

    Args:
        inputs: The batch of a loss, with `sampling_per_token_logps` and maybe `old_per_token_logps`.
        trained: Log-probabilities under the weights as they are now, shape (B, T), without gradient.
        exact: The sampler was exactly the trained weights: nothing is changed.
        cap: Of a weight.
        gather: Rows of all processes from those of this one.

    """
    on = inputs["completion_mask"] * inputs["tool_mask"]
    if PASSED in inputs:
        on = on * inputs[PASSED][:, None]
    ratios = log_ratios(inputs.get("old_per_token_logps", trained), inputs["sampling_per_token_logps"], on)
    difference = ratios.abs()
    advantages = inputs["advantages"]
    per_token = advantages if advantages.dim() == 2 else advantages[:, None]
    figures = [on.sum(), difference.sum(), difference.max(), ((per_token != 0) & (on != 0)).sum()]
    if not exact:
        weights = importance_weights(ratios, cap)
        inputs["advantages"] = inputs["advantages"] * weights
        figures += [(weights * on).sum(), (weights * on).max(), ((ratios.exp() > cap) & (on != 0)).sum()]
    rows = gather(torch.stack([x.float() for x in figures])[None])  # one copy to the host for all of them
    total, most = rows.sum(0).tolist(), rows.max(0).values.tolist()
    tokens, largest_difference = total[0], most[2]
    if not tokens:
        return Mismatch(0.0, total[3], {}, {})
    means = {"sampling/logp_difference_mean": total[1] / tokens}
    largest = {
        "sampling/logp_difference_max": largest_difference,
        "sampling/ratio_max": math.exp(min(largest_difference, 50.0)),
    }
    if not exact:
        means["sampling/importance_mean"] = total[4] / tokens
        means["sampling/importance_capped_frac"] = total[6] / tokens
        largest["sampling/importance_max"] = most[5]
    return Mismatch(tokens, total[3], means, largest)


# -- The policy that the KL is measured from (`beta` above 0): the weights this run started with, frozen --------------
# | what is trained | the reference | memory |
# |---|---|---|
# | a new LoRA adapter | the model with the adapter switched off | none |
# | an adapter that goes on learning | a frozen copy of the adapter as it was loaded (`ref`) | the adapter again |
# | all weights | a frozen copy of the model as it was given | the model again |
#
# The first two are TRL's own. The third is not: given a model in memory, TRL loads a reference from the place that the
# model's config names, which may be no place, or another model. And a copy of the trained model must never be made
# with `copy.deepcopy`: the trainer patches `forward` with a function that holds the original. So a new model of the
# same class gets the same numbers, before the trainer touches either.
#
# A resumed run starts from the same model (the trainer is built with it, and only then reads the checkpoint), so its
# reference is the one of the uninterrupted run.

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


def own_reference(model: Any, args: Any, peft_config: Any) -> Any | None:
    """The reference where all weights are trained and the KL counts: see the table's third row; else `None`.

    Args:
        model: As it was given to the trainer.
        args: With `beta`, the weight of the KL.
        peft_config: Of the adapter that TRL is about to make.
    """
    if args.beta == 0.0 or peft_config is not None or hasattr(model, "peft_config"):
        return None
    return frozen_copy(model)


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
