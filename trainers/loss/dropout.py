"""Dropout off, all of it: what is trained must be what was sampled.

TRL's `disable_dropout` reaches modules of the class `Dropout`. Attention keeps its own number (`attention_dropout` of
Llama, Qwen and others), which acts in training mode and which that option leaves alone.
"""

from __future__ import annotations

from typing import Any

import torch


def silence_dropout(model: Any) -> list[str]:
    """Set every dropout of a model to 0, in place; returns the names of those that were not."""
    changed = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and module.p > 0:
            module.p = 0.0
            changed.append(name)
        if getattr(module, "attention_dropout", 0.0):
            module.attention_dropout = 0.0
            changed.append(f"{name}.attention_dropout")
    return changed


def active_dropout(model: Any) -> list[str]:
    """Names of the dropouts of a model that would act in training."""
    found = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout) and module.p > 0:
            found.append(name)
        if getattr(module, "attention_dropout", 0.0):
            found.append(f"{name}.attention_dropout")
    return found
