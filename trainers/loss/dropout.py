"""Dropout off, all of it: what is trained must be what was sampled.

TRL's `disable_dropout` reaches modules of the class `Dropout`. Many models keep numbers of their own beside them, which
act in training mode and which that option leaves alone: `attention_dropout` of Llama and Qwen, `dropout` and
`layerdrop` of OPT, `hidden_dropout` of BLOOM.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

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
