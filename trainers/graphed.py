"""Learning passes replayed as CUDA graphs: all layers of a model forward in one launch, and backward in another.

A small model on a GPU waits for launches: 30 layers with LoRA are thousands of them in a pass. Here the layers are
recorded once for a shape (rows, width) and replayed; embeddings, the head and the loss stay outside, as they are.

| what | here |
|---|---|
| where | learning passes of `micro_batch_tokens` on a CUDA device, LoRA or all weights (`may_replay_passes`) |
| not | `overlap` (two threads would record); `gradient_checkpointing`; pieces; a router's loss |
| models | `sdpa` attention, no windows, equal to their own forward on a few ids; else a warning, once |
| shapes | widths in 64s up to 512, then four to an octave; rows that the budget has room for, or half of them, ... |
| fillers | attend to themselves (no softmax over nothing), nothing attends to them; their gradients are exactly 0 |
| positions | columns, as transformers counts them where it is told none: padding at the left counts |
| recording | when a shape comes a second time; the first time it runs unrecorded, which prepares its kernels |
| failure | a model that cannot be recorded: a warning, once, and its own forward from then on; memory: `forget` |
| memory | one pool, since no two passes overlap: about that of one pass, held while sampling, too; so `auto` is 4,096 |
| gradients | summed in the graph, in tensors of ours; added to `.grad` once a step, when the last pass is done |
| weights | changed in place by the optimizer; where one moves, all graphs are forgotten |
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.function import once_differentiable
from transformers.modeling_outputs import BaseModelOutputWithPast

from agents.policies.cuda import Graphs, Run
from agents.policies.decoder import Decoder, Held, walk
from agents.policy import PolicyError
from trainers.errors import first_line

KEPT = 32
"""Shapes kept at most."""
_STEP = 64
"""Widths are multiples of it."""
_ASKED = {"input_ids", "attention_mask", "use_cache"}
"""What a caller says who gets a replay; whoever says more is answered by the model's own forward."""


def padded_width(width: int) -> int:
    """Columns of a shape that holds `width`: multiples of 64, above 512 of an eighth of the next power of two."""
    step = max(_STEP, (1 << (width - 1).bit_length()) // 8)
    return -(-width // step) * step


def padded_rows(rows: int, width: int, budget: int) -> int:
    """Rows of a shape that holds `rows`: what `budget` tokens have room for, halved as long as they fit.

    Args:
        rows: Of the pass.
        width: Of the shape.
        budget: Tokens of a pass at most; a pass over it has its own rows.
    """
    most = max(rows, budget // width)
    while -(-most // 2) >= rows and most > 1:
        most = -(-most // 2)
    return most


def additive_mask(keep: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """What attention adds to its scores: 0 for what was there before and is no padding, and for oneself; else -inf.

    Additive, not of booleans: torch would turn those into numbers in each layer, and keep them for the backward pass.

    Args:
        keep: Whether there is something, shape (rows, width).
        dtype: Of the hidden states.

    Returns:
        Shape (rows, 1, width, width).
    """
    places = torch.arange(keep.size(1), device=keep.device)
    before, itself = places <= places[:, None], places == places[:, None]
    seen = (before & keep[:, None, None, :]) | itself
    return torch.zeros(seen.shape, dtype=dtype, device=keep.device).masked_fill_(~seen, -torch.inf)


class _Pass(torch.autograd.Function):
    """A pass through the layers; gradients of weights do not come out of it, `GraphedLayers` sums them."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, anchor: torch.Tensor, shape: _Shape, keep: torch.Tensor) -> Any:
        ctx.shape = shape
        out = shape.forward(hidden, keep)
        ctx.number = shape.layers.passes
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if ctx.number != ctx.shape.layers.passes:
            raise RuntimeError("another pass has taken the memory of this one: its gradient is gone")
        of_hidden = ctx.shape.backward(gradient)
        return of_hidden if ctx.needs_input_grad[0] else None, None, None, None


class GraphedLayers:
    """The layers of a causal LM, in the place of its decoder's `forward` while `acting`.

    Args:
        model: A causal LM of transformers, bare or wrapped by PEFT, with weights that are trained.
        capture: Record CUDA graphs; without, the same passes of fixed shape run directly (on any device; for tests).

    Attributes:
        passes: Passes through shapes so far, recorded or not.
        replays: Of them, those that were replayed.
        summed: The step of now has gradients in our sums.
    """

    def __init__(self, model: Any, *, capture: bool = True) -> None:
        self.passes = self.replays = 0
        self._model, self._capture = model, capture
        self._decoder: Decoder | None = None
        self._off = False
        self._own: Any = None
        """The decoder's own `forward`."""
        self._budget = 0
        self._places: tuple[object, ...] = ()
        self._weights: list[torch.Tensor] = []
        self._sums: list[torch.Tensor | None] | None = None
        """The step's gradients of `_weights`, `None` for those that the layers do not use."""
        self.summed = False
        self._anchor: torch.Tensor | None = None
        self._buffers: list[torch.Tensor] = []
        self._shapes: dict[tuple[int, int], _Shape] = {}
        self._graphs = Graphs(capture=capture)

    def fits(self) -> bool:
        """Whether passes of the model can be replayed now. It is looked at once; a reason against it is warned of."""
        if self._decoder is None and not self._off and (reason := self._obstacle()):
            self._stop(reason)
        return not self._off and not any(vars(one).get("gradient_checkpointing") for one in walk(self._model))

    @contextmanager
    def acting(self, budget: int) -> Iterator[None]:
        """Around the passes of a step, of at most `budget` tokens: their gradients are in `.grad` afterwards."""
        assert self._decoder is not None
        body = self._decoder.body
        if (places := Held(self._decoder).now().places) != self._places or budget != self._budget:
            self.forget()
            self._places, self._budget = places, budget
            self._weights = [weight for weight in body.parameters() if weight.requires_grad]
        if self._sums is not None:
            torch._foreach_zero_([one for one in self._sums if one is not None])
        self.summed = False
        with self._in_place_of(body):
            yield
        if self.summed:
            self._hand_over()

    def forget(self) -> None:
        """No shape is left, no memory is held, and a step that has begun has no gradient."""
        self._drop()
        self._sums, self.summed = None, False

    def _drop(self) -> None:
        self._shapes.clear()
        self._graphs.forget()
        self._buffers = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The decoder's `forward`: hidden states, shape (rows, width, hidden)."""
        asked = {name: value for name, value in kwargs.items() if value is not None}
        plain = args or asked.keys() != _ASKED or asked["use_cache"] or not torch.is_grad_enabled()
        if plain or self._off or asked["attention_mask"].dim() != 2:
            return self._own(*args, **kwargs)
        assert self._decoder is not None
        ids, keep = asked["input_ids"], asked["attention_mask"].bool()
        if torch.is_autocast_enabled(ids.device.type):
            return self._own(*args, **kwargs)
        hidden = self._decoder.body.get_input_embeddings()(ids)
        shape = self._shape(hidden)
        if shape is None:
            return self._own(*args, **kwargs)
        if self._anchor is None:
            self._anchor = torch.zeros((), device=ids.device, requires_grad=True)  # frozen embeddings have no gradient
        return BaseModelOutputWithPast(last_hidden_state=_Pass.apply(hidden, self._anchor, shape, keep))

    def run(self, hidden: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """The model's own layers, told what else they would ask the host for."""
        positions = torch.arange(hidden.size(1), device=hidden.device)[None]
        mask = additive_mask(keep, hidden.dtype)
        out = self._own(inputs_embeds=hidden, attention_mask=mask, position_ids=positions, use_cache=False)
        return out.last_hidden_state

    def gradients(self, of: torch.Tensor, by: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor | None:
        """Sum up the gradients of the weights; returns that of `hidden`, if it has one."""
        wanted = [*self._weights, hidden] if hidden.requires_grad else self._weights
        found = torch.autograd.grad(of, wanted, by, allow_unused=True)
        weights = found[: len(self._weights)]
        if self._sums is None:
            self._sums = [None if one is None else torch.zeros_like(one) for one in weights]
        pairs = [(whole, one) for whole, one in zip(self._sums, weights, strict=True) if whole is not None]
        torch._foreach_add_([whole for whole, _ in pairs], [one for _, one in pairs])
        return found[-1] if hidden.requires_grad else None

    def buffers(self, rows: int, width: int, like: torch.Tensor) -> list[torch.Tensor]:
        """Two tensors that go in and out of a shape, (rows, width, hidden) each; all shapes share their memory."""
        size = like.size(-1)
        if not self._buffers or len(self._buffers[0]) < rows * width * size:  # what is ready keeps those of before
            cells = max(rows * width, self._budget) * size
            self._buffers = [torch.zeros(cells, dtype=like.dtype, device=like.device) for _ in range(2)]
        return [flat[: rows * width * size].view(rows, width, size) for flat in self._buffers]

    def _shape(self, hidden: torch.Tensor) -> _Shape | None:
        """What is ready for a pass; the one used last stands last. `None` where it is too wide, or not recorded."""
        assert self._decoder is not None
        rows, width = hidden.size(0), padded_width(hidden.size(1))
        if self._decoder.limit is not None and width > self._decoder.limit:
            return None
        key = padded_rows(rows, width, self._budget), width
        found = self._shapes.pop(key, None)
        if found is not None and self._capture and not found.recorded:
            try:
                found.record(self._graphs)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                self._stop(first_line(error))
                self._drop()  # not the sums: passes of this step are in them
                return None
        if found is None:
            while len(self._shapes) >= KEPT:
                self._shapes.pop(next(iter(self._shapes)))
            found = _Shape(self, *key, hidden)
        self._shapes[key] = found
        return found

    @contextmanager
    def _in_place_of(self, body: Any) -> Iterator[None]:
        before = vars(body).get("forward")
        self._own = body.forward
        body.forward = self
        try:
            yield
        finally:
            del body.forward
            if before is not None:
                body.forward = before

    def _hand_over(self) -> None:
        """Add the step's sums to `.grad`, where passes that were not through a shape have put theirs."""
        assert self._sums is not None
        pairs = [(weight, one) for weight, one in zip(self._weights, self._sums, strict=True) if one is not None]
        new = [(weight, one) for weight, one in pairs if weight.grad is None]
        old = [(weight.grad, one) for weight, one in pairs if weight.grad is not None]
        if old:
            torch._foreach_add_([gradient for gradient, _ in old], [one for _, one in old])
        if new:
            made = [torch.empty_like(one) for _, one in new]
            torch._foreach_copy_(made, [one for _, one in new])
            for (weight, _), gradient in zip(new, made, strict=True):
                weight.grad = gradient

    # -- Models that cannot be replayed -----------------------------------------------------------------------------

    def _stop(self, reason: str) -> None:
        self._off = True
        warnings.warn(f"learning runs slower than it could: no CUDA graphs of its passes ({reason})", stacklevel=3)

    def _obstacle(self) -> str:
        """Why passes of this model cannot be replayed, as far as a look tells; empty where nothing does."""
        try:
            self._decoder = decoder = Decoder(self._model)
            body = decoder.body
            if body is not decoder.base.base_model:
                return "the loss calls another module than the decoder"
            if decoder.config._attn_implementation != "sdpa":
                return f"attention {decoder.config._attn_implementation}, not sdpa"
            if decoder.windowed:
                return "layers that see a window"
            if decoder.limit is not None and decoder.limit < _STEP:
                return f"no more than {decoder.limit} positions"
            if not any(weight.requires_grad for weight in body.parameters()):
                return "no weights of its layers are trained"
            with self._in_place_of(body), torch.no_grad():
                return self._difference()
        except PolicyError as error:
            return first_line(error)

    def _difference(self) -> str:
        """Two rows, padded at the left and at the right, by the model's own forward and as shapes compute them."""
        assert self._decoder is not None
        body = self._decoder.body
        embeddings = body.get_input_embeddings()
        ids = torch.linspace(embeddings.weight.size(0) // 7, embeddings.weight.size(0) - 1, 12).long().view(2, 6)
        ids = ids.to(embeddings.weight.device)
        mask = torch.ones_like(ids)
        mask[0, :2] = mask[1, 4:] = 0
        try:
            own = self._own(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state[mask.bool()]
            hidden = torch.zeros(3, _STEP, own.size(-1), dtype=own.dtype, device=own.device)
            hidden[:2, :6] = embeddings(ids)
            keep = torch.zeros(3, _STEP, dtype=torch.bool, device=own.device)
            keep[:2, :6] = mask.bool()
            ours = self.run(hidden, keep)[keep]
        except torch.OutOfMemoryError:
            raise
        except (TypeError, ValueError, RuntimeError, AttributeError, KeyError, IndexError) as error:
            return f"{type(error).__name__}: {first_line(error)}"
        away = float((ours - own).float().norm() / own.float().norm())
        most = 0.01 if own.dtype in (torch.float32, torch.float64) else 0.1
        return "" if away < most else f"with our mask its hidden states are {away:.2g} away from its own"


class _Shape:
    """Passes of one number of rows and columns, and the tensors that they work on."""

    def __init__(self, layers: GraphedLayers, rows: int, width: int, like: torch.Tensor) -> None:
        self.layers = layers
        hidden, self._out = layers.buffers(rows, width, like)
        self._hidden = hidden.detach().requires_grad_(like.requires_grad)
        self._keep = torch.zeros(rows, width, dtype=torch.bool, device=like.device)
        self._made: torch.Tensor | None = None
        self._forward: Run = self._run_forward
        self._backward: Run = self._run_backward
        self.recorded = False

    def record(self, graphs: Graphs) -> None:
        """Replay from now on.

        Raises:
            RuntimeError: As of `Graphs.record`.
        """
        forward = graphs.record(self._run_forward, warm=True)
        self._forward, self._backward = forward, graphs.record(self._run_backward, warm=True)
        self.recorded = True

    @torch.no_grad()
    def forward(self, hidden: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """Hidden states behind the layers, from those before them; shape (rows, width, hidden), of the pass."""
        rows, width = keep.shape
        for whole, part in ((self._hidden, hidden), (self._keep, keep)):
            whole.zero_()[:rows, :width] = part
        self._forward()
        self.layers.passes += 1
        self.layers.replays += self.recorded
        return self._out[:rows, :width].clone()

    @torch.no_grad()
    def backward(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient by what went in; meaningless where that has none."""
        rows, width = gradient.shape[:2]
        self._out.zero_()[:rows, :width] = gradient
        self._backward()
        self.layers.summed = True
        return self._hidden.detach()[:rows, :width].clone()

    def _run_forward(self) -> None:
        with torch.enable_grad():
            self._made = self.layers.run(self._hidden, self._keep)
        self._out.copy_(self._made.detach())

    def _run_backward(self) -> None:
        made, self._made = self._made, None
        assert made is not None
        of_hidden = self.layers.gradients(made, self._out, self._hidden)
        if of_hidden is not None:
            self._hidden.detach().copy_(of_hidden)  # nothing reads what went in any more
