"""The part of a causal language model that sampling needs: the decoder, the head, and the mask they read.

`forward` of a model may be patched (a trainer fuses its loss into it, a wrapper casts it) and scores every position.
Sampling needs the last position only, so it goes to the decoder and to the output embeddings directly. What a model
does beside that (logit scale, soft cap, windows) is applied here, and `check` compares the result with the model's
own forward once, so that an architecture that does something else is refused instead of sampled wrongly.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from agents.policies.slots import SlotCache
from agents.policy import PolicyError

Hidden = Callable[[torch.Tensor, torch.Tensor, int, SlotCache], torch.Tensor]
"""`Decoder.hidden`, or what takes its place."""

_LAYER_TYPES = {"full_attention", "sliding_attention"}


class Decoder:
    """A causal LM of transformers, bare, wrapped by PEFT, or wrapped by a data-parallel module.

    Args:
        model: The model.

    Attributes:
        limit: The longest context whose positions the model knows, and knows alike in every batch; `None` for any.
        layer_count: Layers that have keys and values; 0 where the configuration does not say.

    Raises:
        PolicyError: The model keeps a state that is not keys and values (linear attention, chunks, an encoder).
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        base = getattr(model, "module", model) if not hasattr(model, "get_output_embeddings") else model
        if hasattr(base, "get_base_model"):
            if getattr(base.active_peft_config, "is_prompt_learning", False):
                raise PolicyError("the in-process engine does not support prompt-learning adapters; use LoRA")
            base = base.get_base_model()
        self.base = base
        self.body = base.get_decoder()
        if self.body is None or self.body is base:
            self.body = base.base_model
        self.config = getattr(self.body, "config", base.config)
        parameters = inspect.signature(self.body.forward).parameters
        self._cache_name = "cache" if "cache" in parameters else "past_key_values"
        if "position_ids" not in parameters:
            raise PolicyError(f"{type(base).__name__} takes no position_ids: the in-process engine cannot serve it")
        self._scale, self._cap = _head_settings(base.config.get_text_config())
        self._window, self._mixed = _window(self.config)
        self.limit = _limit(base.config.get_text_config())
        self.layer_count = int(getattr(base.config.get_text_config(), "num_hidden_layers", 0))
        self._checked = False

    @property
    def device(self) -> torch.device:
        """Where ids must be."""
        return self.body.get_input_embeddings().weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.body.get_input_embeddings().weight.dtype

    @property
    def adapted(self) -> bool:
        """Whether any layer carries an adapter."""
        # A state of PEFT's layers; whole models of transformers have a method of that name, adapter or not.
        return any(isinstance(getattr(module, "disable_adapters", None), bool) for module in self.base.modules())

    @property
    def windowed(self) -> bool:
        """Whether any layer sees only a window of the context."""
        return self._window is not None

    @contextmanager
    def sampling(self, held: Held) -> Iterator[None]:
        """Evaluation mode, no gradients, no autocast, an attention that takes masks; all as before afterwards.

        Args:
            held: The model's modules.
        """
        training = [module for module in held.modules if module.training]
        attention, plans = self.config._attn_implementation, torch.backends.cuda.cudnn_sdp_enabled()
        for module in training:
            vars(module)["training"] = False  # Module's own way of setting takes a hundred times as long
        torch.backends.cuda.enable_cudnn_sdp(False)  # it plans anew for each shape, which takes up to a second
        if attention not in ("sdpa", "eager"):
            self.config._attn_implementation = "sdpa"
        try:
            with torch.no_grad(), torch.autocast(self.device.type, enabled=False):
                if not self._checked:
                    self.check()
                yield
        finally:
            self.config._attn_implementation = attention
            torch.backends.cuda.enable_cudnn_sdp(plans)
            for module in training:
                vars(module)["training"] = True

    def hidden(self, ids: torch.Tensor, positions: torch.Tensor, read: int, cache: SlotCache) -> torch.Tensor:
        """Run the decoder on `ids` `[rows, tokens]` at `positions`; `cache` is already aimed. `[rows, tokens, hidden]`.

        Args:
            ids: New ids of each row.
            positions: Their positions, which are also where the cache stores them.
            read: Positions of the cache that attention sees.
            cache: The aimed cache.
        """
        outputs = self.body(
            input_ids=ids,
            attention_mask=self.mask(positions, read),
            position_ids=self.known(positions),
            use_cache=True,
            **{self._cache_name: cache},
        )
        return outputs.last_hidden_state

    def known(self, positions: torch.Tensor) -> torch.Tensor:
        """Positions as the model may be asked for them: padding can lie behind the last one."""
        return positions if self.limit is None else positions.clamp(max=self.limit - 1)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """`[rows, hidden]` to `[rows, vocabulary]`."""
        logits = self.base.get_output_embeddings()(hidden)
        if self._scale != 1.0:
            logits = logits * self._scale
        if self._cap is not None:
            logits = torch.tanh(logits / self._cap) * self._cap
        return logits

    def mask(self, positions: torch.Tensor, read: int) -> Any:
        """Additive mask `[rows, 1, tokens, read]`: a query sees the keys up to its own position (and its window)."""
        keys = torch.arange(read, device=positions.device)
        queries = positions.unsqueeze(1).unsqueeze(-1)
        hidden = keys > queries
        dtype = self.dtype
        lowest = torch.finfo(dtype).min
        if self._window is None or (self._mixed and read <= self._window):
            return torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, lowest)
        near = hidden | (keys <= queries - self._window)
        windowed = torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(near, lowest)
        if not self._mixed:
            return windowed
        full = torch.zeros(hidden.shape, dtype=dtype, device=positions.device).masked_fill_(hidden, lowest)
        return {"full_attention": full, "sliding_attention": windowed}

    def check(self) -> None:
        """Compare ragged, cached decoding with the model's own forward on a few ids.

        Raises:
            PolicyError: They differ: the engine does not know this architecture.
        """
        difference = self.difference(self.hidden)
        if not difference < self._tolerance():
            raise PolicyError(
                f"the in-process engine samples {type(self.base).__name__} wrongly (log-probabilities differ by "
                f"{difference:.2g} nats from its own forward): this architecture does something the engine does not "
                "know; use another engine"
            )
        self._checked = True

    def decodes(self, step: Hidden) -> bool:
        """Whether `step`, in place of `hidden`, prefills and decodes as the model's own forward does."""
        return self.difference(step) < self._tolerance()

    def difference(self, step: Hidden) -> float:
        """Nats between the model's own forward and decoding with `step`, the largest over the 20 likeliest ids."""
        vocabulary = self.body.get_input_embeddings().weight.shape[0]
        ids = torch.linspace(vocabulary // 7, vocabulary - 1, 12).long().view(2, 6).to(self.device)
        cache = SlotCache()
        cache.reserve(2, 6)
        try:
            # Row 0 is prefilled with three ids, row 1 with two and a pad; then both decode one id at a time.
            lengths = torch.tensor([3, 2], device=self.device)
            positions = torch.arange(3, device=self.device).expand(2, 3)
            cache.select(0, 2, positions, 3)
            step(ids[:, :3], positions, 3, cache)
            for _ in range(3):
                positions = lengths.unsqueeze(1)
                read = int(lengths.max()) + 1
                cache.select(0, 2, positions, read)
                hidden = step(ids.gather(1, positions), positions, read, cache)
                lengths = lengths + 1
            ours = self.logits(hidden[:, -1]).float().log_softmax(-1)
            forward = type(self.base).forward
            full = forward(self.base, input_ids=ids, use_cache=False).logits.float().log_softmax(-1)
        except (TypeError, RuntimeError, AttributeError, KeyError, IndexError, NotImplementedError) as error:
            name = type(self.base).__name__
            raise PolicyError(f"the in-process engine cannot run {name}: {type(error).__name__}: {error}") from error
        theirs = torch.stack([full[0, 5], full[1, 4]])
        top = theirs.topk(min(20, vocabulary), dim=-1).indices
        return (ours - theirs).gather(-1, top).abs().max().item()

    def _tolerance(self) -> float:
        return 1e-2 if self.dtype == torch.float32 else 0.7


class Weights(NamedTuple):
    """What tells weights from those of another time.

    Attributes:
        version: Grows whenever a parameter is changed in place, as an optimizer step does.
        places: Where every parameter lies and which adapters act: equal as long as weights only change in place.
    """

    version: int
    places: tuple[object, ...]


class Held:
    """A model's parts, listed once: to look at all of them then costs little (walking there costs more).

    Args:
        decoder: The model.

    Attributes:
        modules: All of its modules.
    """

    def __init__(self, decoder: Decoder) -> None:
        self.modules = walk(decoder.model)
        found = {id(p): p for module in self.modules for p in module._parameters.values() if p is not None}
        self._parameters = list(found.values())
        self._counted = [p for p in self._parameters if not p.is_inference()]
        kinds = {type(module) for module in self.modules}
        adapts = {kind for kind in kinds if hasattr(kind, "disable_adapters") and hasattr(kind, "merged")}
        self._adapted = [module for module in self.modules if type(module) in adapts]

    def now(self) -> Weights:
        """The weights as they are now, as far as torch counts changes."""
        acting = [(m.merged, m.disable_adapters, tuple(m.active_adapters)) for m in self._adapted]
        places = [p.data_ptr() for p in self._parameters]
        return Weights(sum([p._version for p in self._counted]), (*acting, *places))


def walk(model: Any) -> list[Any]:
    """Every module once, as `modules()` gives them, in another order and a tenth of the time."""
    found: dict[Any, None] = {}
    left = [model]
    while left:
        module = left.pop()
        if module not in found:
            found[module] = None
            left += [child for child in module._modules.values() if child is not None]
    return list(found)


def _head_settings(config: Any) -> tuple[float, float | None]:
    """Factor on the logits and soft cap, under the names that architectures give them."""
    factors = (getattr(config, name, None) for name in ("logit_scale", "output_multiplier", "lm_head_multiplier"))
    scale = next((float(factor) for factor in factors if factor is not None), None)
    divisor = getattr(config, "logits_scaling", None)
    if scale is None and divisor is not None:
        scale = float(divisor) if config.model_type == "hyperclovax" else 1.0 / float(divisor)
    return 1.0 if scale is None else scale, getattr(config, "final_logit_softcapping", None)


def _limit(config: Any) -> int | None:
    limit = getattr(config, "max_position_embeddings", None)
    rotary = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kinds = [rotary, *(value for value in rotary.values() if isinstance(value, dict))]
    if any(kind.get("rope_type", kind.get("type")) in ("dynamic", "longrope") for kind in kinds):
        # Behind the length it was first trained with, such a model turns all positions of a batch otherwise:
        # what is cached would be wrong, and a reply would depend on its neighbours.
        first = [kind.get("original_max_position_embeddings") for kind in kinds]
        first += [getattr(config, "original_max_position_embeddings", None), limit]
        limit = min(value for value in first if value)
    return limit


def _window(config: Any) -> tuple[int | None, bool]:
    """Sliding window in positions (`None` without one), and whether only some layers have it."""
    types = set(getattr(config, "layer_types", None) or ())
    unknown = types - _LAYER_TYPES
    if unknown:
        raise PolicyError(
            "the in-process engine keeps keys and values only; this model has layers of kind "
            + ", ".join(sorted(unknown))
        )
    window = getattr(config, "sliding_window", None)
    if window is None or types == {"full_attention"} or getattr(config, "use_sliding_window", True) is False:
        return None, False
    return int(window), len(types) > 1
