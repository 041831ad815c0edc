"""A copy of a model for sampling alone: adapters merged into the weights, in a type of its own.

An unmerged LoRA doubles the matrix products of a decode step, and float32 weights halve the speed of a machine that
multiplies bfloat16 in hardware. The copy is refreshed in place whenever the model's weights changed. Its
log-probabilities are those that the sampler used, and differ from a forward of the model by the rounding of the type
(about 0.03 nats in bfloat16): whoever trains on them corrects for that.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from agents.policies.decoder import Decoder, Held, Weights
from agents.policies.fused import FusedDecoder
from agents.policy import PolicyError


class SamplingCopy:
    """A merged copy.

    Args:
        source: The model's decoder (bare or inside PEFT).
        dtype: Of the copy.

    Attributes:
        model: The copy, on the source's device, in evaluation mode.

    Raises:
        PolicyError: The weights are quantised, an adapter cannot be merged by addition, or the model has a parameter
            that would be in the copy nowhere. `refresh` says so, too, for the adapters of then.
    """

    def __init__(self, source: Decoder, dtype: torch.dtype) -> None:
        self._source = source
        self._places: tuple[object, ...] | None = None
        """Of the weights that `_pairs` were made for."""
        self._weights: Weights | None = None
        """Those that the copy has."""
        self._pairs: list[_Pair] = []
        base = source.base
        config = copy.deepcopy(base.config)
        config._attn_implementation = base.config._attn_implementation
        with torch.device("meta"):
            made = type(base)(config)
        self.model: Any = made.to(dtype).to_empty(device=source.device).eval().requires_grad_(False)
        self.model.generation_config = base.generation_config
        self.model.tie_weights()
        buffers = dict(self.model.named_buffers())
        for name, buffer in base.named_buffers():
            if name in buffers:
                # Tables of positions keep their own type, as they do in any model of this type.
                module, _, leaf = name.rpartition(".")
                setattr(self.model.get_submodule(module), leaf, buffer.detach().clone())

        FusedDecoder.prepare(self.model)

    def refresh(self) -> None:
        """Take over the model's weights, if they changed since the last time."""
        now = Held(self._source).now()
        if now == self._weights:
            return
        self._weights = None  # a failure leaves the copy half-way
        if now.places != self._places:
            self._pairs, self._places = list(self._pair()), now.places
        with torch.no_grad():
            for pair in self._pairs:
                pair.refresh()
        self._weights = now

    def _pair(self) -> Iterator[_Pair]:
        """Every parameter of the copy with what it is made of."""
        targets = dict(self.model.named_parameters())
        filled: set[str] = set()
        taken: set[int] = set()
        self._refuse_what_does_not_merge()
        for name, module in self._source.base.named_modules():
            adapted = hasattr(module, "base_layer")
            layer = module.base_layer if adapted else module
            if name.endswith(".base_layer") or ".base_layer." in name:
                continue
            for leaf, parameter in layer.named_parameters(recurse=False):
                target = targets.get(f"{name}.{leaf}" if name else leaf)
                if target is None:
                    continue  # an adapter's own matrices, or the second name of a tied weight: see below
                if not parameter.is_floating_point() or parameter.shape != target.shape:
                    raise PolicyError(f"{name}.{leaf} is quantised: sample with the model itself, not with a copy")
                merges = adapted and leaf == getattr(module, "parameter_name", "weight")
                yield _Pair(name, target, parameter, module if merges else None)
                filled.add(f"{name}.{leaf}" if name else leaf)
                taken.add(id(parameter))
                if merges:
                    taken.update(map(id, _spent(module)))
        self._refuse_what_was_left(taken)
        missing = sorted(set(targets) - filled)
        if missing:
            raise PolicyError(f"no merged copy of {type(self._source.base).__name__}: {missing[0]} was not found in it")

    def _refuse_what_does_not_merge(self) -> None:
        base = self._source.base
        embedding, head = base.get_input_embeddings(), base.get_output_embeddings()
        weights = [getattr(layer, "base_layer", layer).weight for layer in (embedding, head)]
        tied = (embedding, head) if weights[0] is weights[1] else ()
        for name, module in base.named_modules():
            if hasattr(module, "modules_to_save"):
                raise PolicyError(f"{name} is trained as a whole (modules_to_save): sample with the model itself")
            if not hasattr(module, "base_layer") or getattr(module, "merged", False):
                continue
            if any(module is shared for shared in tied):
                raise PolicyError(
                    f"{name} carries an adapter and shares its weight with another layer: sample with the model itself"
                )
            if not _merges(module):
                raise PolicyError(f"{name}: this adapter does not merge by addition; sample with the model itself")

    def _refuse_what_was_left(self, taken: set[int]) -> None:
        """A parameter that is neither in the copy nor merged into it would be left out of every sample."""
        for name, parameter in self._source.base.named_parameters():
            if id(parameter) not in taken:
                raise PolicyError(f"{name} has no place in a merged copy: sample with the model itself")

    def renew(self) -> None:
        """Trained weights may have changed without a trace: the next `refresh` takes them over."""
        self._weights = None

    def invalidate(self) -> None:
        """Anything may have changed: the next `refresh` takes all weights over."""
        self._weights = self._places = None


@dataclass(slots=True)
class _Pair:
    """A parameter of the copy, and what it is made of: a parameter, and the layer whose adapters are added to it."""

    name: str
    target: torch.Tensor
    parameter: torch.Tensor
    adapted: Any
    seen: int | None = None
    """The version that was copied of what is not trained."""

    def refresh(self) -> None:
        if self.adapted is None:
            counted = not (self.parameter.requires_grad or self.parameter.is_inference())
            version = self.parameter._version if counted else None
            if version is None or version != self.seen:
                self.target.copy_(self.parameter)
            self.seen = version
            return
        weight = self.parameter.float() + _delta(self.adapted)
        if weight.shape != self.target.shape:
            raise PolicyError(f"{self.name}: its adapter has another shape; sample with the model itself")
        self.target.copy_(weight)


def _delta(module: Any) -> torch.Tensor | float:
    """What the active adapters of one layer add to its weight, float32."""
    if module.merged or module.disable_adapters:
        return 0.0
    return sum((module.get_delta_weight(name).float() for name in module.active_adapters), start=torch.zeros(()))


def _spent(module: Any) -> Iterator[torch.nn.Parameter]:
    """Parameters of an adapted layer that its merged weight stands for, or that do not act now."""
    idle = module.merged or module.disable_adapters
    for name, parameter in module.named_parameters():
        kind, _, rest = name.partition(".")
        if kind == "base_layer":
            continue
        acts = not idle and rest.split(".")[0] in module.active_adapters
        if kind in ("lora_A", "lora_B") or not acts:
            yield parameter


def _merges(module: Any) -> bool:
    """Whether every active adapter of a layer is plain LoRA: a product that is added to the weight, no more."""
    return hasattr(module, "get_delta_weight") and all(
        adapter in getattr(module, "lora_A", {})
        and not getattr(module, "use_dora", {}).get(adapter)
        and not getattr(module, "lora_bias", {}).get(adapter)
        and adapter not in getattr(module, "lora_variant", {})
        for adapter in module.active_adapters
    )


def sampling_dtype(device: torch.device) -> torch.dtype:
    """The type that this machine multiplies fastest: bfloat16 where the hardware does (GPU, AMX), else float32."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    capabilities = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return torch.bfloat16 if capabilities.get("amx_tile") else torch.float32
