"""How the rows of an optimizer step are cut into passes: by tokens, each pass as wide as its own rows need.

TRL cuts by rows (`per_device_train_batch_size`) and pads all of them to the longest row of the generation: on a GPU
many small passes, mostly padding, that wait for launches. With `micro_batch_tokens` all rows of an optimizer step come
here at once (`GiGPOConfig` folds the accumulation into the batch). They are sorted by length and cut so that rows times
width, padding included, stays within the budget, and each pass loses the columns that none of its rows fills.

Why the sum of the passes' gradients is the gradient of one pass over all rows: every loss that is allowed here is a sum
over rows, divided by numbers that follow from masks alone. Each pass therefore computes TRL's loss of the *whole* step,

    L(logp_1, ..., logp_B),    with a gradient through the rows b of this pass, and numbers in the place of the others,

so the derivatives by the rows add up to those of L, and no divisor of TRL's is written down a second time. The last
pass has the numbers of all rows: its loss and figures are those of the step. Only there are figures kept, and only
there do processes talk to each other, who may have different numbers of passes; gradients are averaged behind it.

A row in which no token has an advantage has no gradient, unless the loss has a KL, an entropy or a router term: it is
left out of the passes. Masks still hold it, so what divides the loss counts it.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from accelerate.utils.memory import clear_device_cache

from trainers.activations import KnownMask
from trainers.cutting import Lengths, Score, Scored, cut, lengths_of, padded_tokens, put, score_rows, tokens_that_fit
from trainers.errors import OutOfMemoryError, first_line
from trainers.figures import TellsFigures
from trainers.graphed import GraphedLayers, padded_width
from trainers.loss import PASSED
from trainers.pieces import PIECES, Piece, chunks, tokens_of
from trainers.processes import average
from trainers.settings import GiGPOConfig


def on_gpu(device: torch.device) -> bool:
    """Whether torch can tell how much memory is taken there."""
    return device.type == "cuda"


@dataclass
class _Step:
    """The passes of one step, as far as they have come.

    Attributes:
        lengths: Of all rows.
        tokens: Of all passes, padding included.
        scale: Turns a mean over all tokens, in which those of rows that were left out are 0, into one over the others.
        rows: Of the pass of now.
        pieces: Of all rows, where they are scored in pieces.
        logps: Of all rows, shape (B, T), as far as they are known.
        entropies: The same.
        router: Loss of the routers: the mean over the passes, by their tokens.
        wrong: Of each pass `KnownMask.wrong`.
    """

    lengths: Lengths
    tokens: int
    scale: float
    rows: list[int]
    pieces: list[list[Piece]] | None
    logps: torch.Tensor | None = None
    entropies: torch.Tensor | None = None
    router: torch.Tensor | None = None
    wrong: list[torch.Tensor] = field(default_factory=list)


class _Alone:
    """The accelerator as a pass sees it that is not the last of its step: it talks to no other process.

    What a loss gathers are figures, and those of such a pass are thrown away. Zeros of the host stand for them: to read
    a dozen numbers from a GPU, one by one, keeps it waiting for each.
    """

    sync_gradients = False

    def __init__(self, accelerator: Any) -> None:
        self._accelerator = accelerator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._accelerator, name)

    def gather(self, values: torch.Tensor) -> torch.Tensor:
        return torch.zeros(values.shape, dtype=values.dtype)

    gather_for_metrics = gather

    def reduce(self, values: torch.Tensor, reduction: str = "sum") -> torch.Tensor:
        return self.gather(values)


class LearnsInPasses(TellsFigures):
    """The part of the trainer that cuts what is scored and learned on into passes. `GiGPOTrainer` gives the loss."""

    advantaged: float
    _budget: int = 0
    """Tokens of a pass; 0 until the first one."""
    _settled = False
    """It stays: a pass did not fit, or `auto` was chosen."""
    _per_token: float = 0.0
    """Bytes that a token of a pass took at its peak, the most that was seen; for `auto` on a GPU."""
    _now: _Step | None = None
    _failed = ""
    """What the last pass that did not fit said."""
    _learning = False
    """The loss of this step has begun: memory that is missing is missing for it, not for sampling."""

    graph_passes = True
    """On a CUDA device passes are replayed as graphs where they can be (`trainers.graphed`); False for a comparison."""
    _graphed: GraphedLayers | None = None

    # Set by TRL, which is not analysed.
    entropy_coef: float
    _last_world_entropy: float
    _entropy_window_stats: torch.Tensor | None

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any) -> torch.Tensor:
        """One micro-step; a pass that does not fit into memory is said in words that help.

        Raises:
            OutOfMemoryError: It does not, and nothing is left that could be tried.
        """
        self._learning = False
        try:
            return super().training_step(model, inputs, num_items_in_batch)
        except torch.OutOfMemoryError as error:
            if not self._learning:
                raise
            rows = len(self._now.rows) if self._now is not None else self.args.per_device_train_batch_size
            raise self._hopeless(f"{rows} rows", first_line(error)) from error

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """As TRL; by tokens, the gradients are there when it returns, and the loss is a number.

        Raises:
            OutOfMemoryError: A single row does not fit, or does not with several processes.
        """
        self._learning = True
        args: GiGPOConfig = self.args
        if args.token_budget is None or not self.model.training:
            self._meanwhile()
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        self._choose_budget(alone=inputs.get(PIECES) is not None)
        before, done = self._figures(), []
        while (loss := self._try(model, inputs)) is None:
            self._put_back(before)
            model.zero_grad(set_to_none=True)
            done.append(self._make_room())
            if self._graphed is not None:
                self._graphed.forget()
            clear_device_cache(garbage_collection=True)
        if done:
            self.warn(self.state.global_step + 1, f"a pass did not fit into memory: {done[-1]}. The step was repeated.")
        return loss.requires_grad_()  # whose backward pass, called by transformers, does nothing more

    def _try(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor | None:
        """The step's loss, its gradients made; `None` where a pass did not fit.

        No random number is drawn in a pass (dropout is off), so a second try computes the same.
        """
        try:
            return self._learn(model, inputs)
        except torch.OutOfMemoryError as error:
            if self.accelerator.num_processes > 1:  # the others wait in the middle of a pass that this one left
                raise
            self._failed = first_line(error)
        return None  # outside: the error would keep what its frames hold

    def _make_room(self) -> str:
        """Half the budget; for a single row gradient checkpointing. What was done, in words.

        Raises:
            OutOfMemoryError: Neither can be done.
        """
        assert self._now is not None
        (tokens, count), self._now = self._size(self._now), None
        if count > 1:
            self._budget, self._settled = max(1, min(self._budget, tokens) // 2), True
            return f"passes have at most {self._budget} tokens from now on (micro_batch_tokens)"
        model = self.accelerator.unwrap_model(self.model)
        if not model.is_gradient_checkpointing and model.supports_gradient_checkpointing:
            self.args.gradient_checkpointing_kwargs = {"use_reentrant": False}  # TRL switches it off and on with these
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)  # its newer name is not in transformers 5.17
                model.gradient_checkpointing_enable(self.args.gradient_checkpointing_kwargs)
            return f"gradient_checkpointing is on from now on, for a row of {tokens} tokens"
        raise self._hopeless(f"a single row of {tokens} tokens", self._failed)

    def _hopeless(self, what: str, why: str) -> OutOfMemoryError:
        on = "on" if self.accelerator.unwrap_model(self.model).is_gradient_checkpointing else "off"
        return OutOfMemoryError(
            f"step {self.state.global_step + 1}: no memory for a learning pass of {what}, gradient_checkpointing {on}. "
            "What helps: gradient_checkpointing; a smaller micro_batch_tokens (or, without it, a smaller "
            "per_device_train_batch_size with more gradient_accumulation_steps); a smaller max_turn_tokens, or "
            f"adapter=lora with dtype=bfloat16 ({why})."
        )

    def _size(self, step: _Step) -> tuple[int, int]:
        """Tokens that the pass of now has in memory at a time, padding included, and of how many rows or pieces."""
        if step.pieces is None:
            return padded_tokens(step.rows, step.lengths), len(step.rows)
        some = max(chunks(step.pieces[step.rows[0]], self._budget), key=tokens_of)
        return tokens_of(some), len(some)

    # -- the passes of a step --------------------------------------------------------------------------------------

    def _learn(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """The gradients of the step, pass by pass; its loss, a number."""
        rows, lengths, scale = self._rows_to_pass(inputs)
        pieces = inputs.get(PIECES)
        graphed = self._replays(alone=pieces is not None)
        replays = 0 if graphed is None else graphed.replays
        width = int if graphed is None else padded_width
        passes = cut(rows, lengths, self._budget, alone=pieces is not None, width=width)
        self.note_metric("passes/count", float(len(passes)))
        self.note_metric("passes/rows_left_out", float(len(lengths.prompts) - len(rows)))
        launched = min(1, len(passes) - 1) if on_gpu(self.accelerator.device) else 0
        if not passes:  # the gradient is 0, not missing: momentum and weight decay act as ever
            for parameter in self.model.parameters():
                if parameter.requires_grad and parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self.note_metric("passes/replayed", 0.0)
            self._meanwhile()
            return torch.zeros((), device=self.accelerator.device)
        passed = torch.zeros(len(lengths.prompts), dtype=torch.long, device=inputs["completion_ids"].device)
        passed[rows] = 1
        inputs = {**inputs, PASSED: passed}
        self._now = _Step(lengths, sum(padded_tokens(some, lengths) for some in passes), scale, passes[0], pieces)
        self._now.logps = inputs.get("old_per_token_logps")  # ratio 1 where nothing else is known
        acting = nullcontext() if graphed is None else graphed.acting(self._budget)
        with self.accelerator.no_sync(model), acting:  # no hook of a wrapper sees the gradients that graphs sum up
            for number, self._now.rows in enumerate(passes):
                if number == launched:
                    self._meanwhile()
                with self._unseen() if self._now.rows is not passes[-1] else nullcontext():
                    loss = self._learn_rows(model, inputs)
        if self._now.wrong and bool(torch.stack(self._now.wrong).any()):
            raise RuntimeError(
                "the model's head scored other ids than those of the completions: nothing is learned from this step. "
                "It is a defect; micro_batch_tokens=0 learns without what has it"
            )
        self._now = None
        if self.accelerator.num_processes > 1:
            average([parameter.grad for parameter in self.model.parameters() if parameter.grad is not None])
        self.note_metric("passes/replayed", 0.0 if graphed is None else float(graphed.replays - replays))
        return loss

    def _meanwhile(self) -> None:
        """Called when the loss of a step begins; on a GPU once it has the first of several passes to compute."""

    def _may_replay(self, *, alone: bool) -> bool:
        """Whether passes may be replayed, before layers are looked at.

        Args:
            alone: Rows are scored in pieces, each row by itself.
        """
        cuda = self._graphed is not None or self.accelerator.device.type == "cuda"
        told = self.args.may_replay_passes(cuda=cuda, pieces=alone)
        return told and self.graph_passes and not self.aux_loss_enabled

    def _replays(self, *, alone: bool) -> GraphedLayers | None:
        """The model's layers as graphs; `None` where its own forward computes the passes (see `trainers.graphed`)."""
        if not self._may_replay(alone=alone):
            return None
        if self._graphed is None:
            self._graphed = GraphedLayers(self.accelerator.unwrap_model(self.model))
        return self._graphed if self._graphed.fits() else None

    def _learn_rows(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """Forward and backward pass of the rows of now; the loss of the step as far as it is known, a number."""
        watch = self.args.budget_is_auto and not self._settled and on_gpu(self.accelerator.device)
        before = torch.cuda.memory_allocated() if watch else 0
        if watch:
            torch.cuda.reset_peak_memory_stats()
        loss = self._compute_loss(model, inputs)
        self.accelerator.backward(loss)
        if watch and self._now is not None:
            tokens, _ = self._size(self._now)
            self._per_token = max(self._per_token, (torch.cuda.max_memory_allocated() - before) / tokens)
        return loss.detach()

    def _rows_to_pass(self, inputs: dict[str, Any]) -> tuple[list[int], Lengths, float]:
        """Rows that have a gradient, the lengths of all, and `_Step.scale`; of all processes none, or one at least."""
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        signal = ((inputs["advantages"] != 0) & (mask != 0)).any(1)
        if self.beta or self._entropy_bonus_enabled or self.aux_loss_enabled:
            signal = torch.ones_like(signal)
        counts = [inputs["prompt_mask"].sum(1), inputs["completion_mask"].sum(1), mask.sum(1), signal.long()]
        prompts, completions, tokens, wanted = torch.stack([x.long() for x in counts]).tolist()
        lengths = Lengths(prompts, completions)
        rows = [row for row, wants in enumerate(wanted) if wants]
        # Where other processes have rows, this one passes one, too: gradients are averaged by all or by none.
        chosen = rows or [min(range(len(prompts)), key=lambda row: prompts[row] + completions[row])]
        mine = [len(rows), sum(tokens[row] for row in chosen), sum(tokens)]
        anywhere, passed, everything = (
            self.accelerator.gather(torch.tensor([mine], dtype=torch.float64, device=mask.device)).sum(0).tolist()
        )
        return (chosen if anywhere else []), lengths, everything / passed if passed else 1.0

    @contextmanager
    def _unseen(self) -> Iterator[None]:
        """Around a pass that is not the last: it talks to no other process, and its figures are thrown away."""
        accelerator, before = self.accelerator, self._figures()
        self.accelerator = _Alone(accelerator)
        try:
            yield
        finally:
            self.accelerator = accelerator
            self._put_back(before)

    def _figures(self) -> tuple[Any, ...]:
        """What computing a loss adds to."""
        metrics = {name: list(values) for name, values in self._metrics["train"].items()}
        return metrics, self.advantaged, self.entropy_coef, self._last_world_entropy, self._entropy_window_stats

    def _put_back(self, before: tuple[Any, ...]) -> None:
        metrics, self.advantaged, self.entropy_coef, self._last_world_entropy, self._entropy_window_stats = before
        self._metrics["train"].clear()
        self._metrics["train"].update({name: list(values) for name, values in metrics.items()})

    # -- what is scored --------------------------------------------------------------------------------------------

    def _in_passes(self, score: Score, ids: torch.Tensor, mask: torch.Tensor, keep: int, *, alone: bool) -> Scored:
        """Log-probabilities and entropies of a batch, shape (B, T), pass by pass; in a loss those of the pass of now.

        Args:
            score: Scores some rows.
            ids: Prompts and completions, shape (B, P + T).
            mask: Where there is something, same shape.
            keep: T.
            alone: Every row makes a pass by itself.
        """
        if self._now is not None:
            return self._spread(score, ids, mask, keep)
        self._choose_budget(alone=alone)
        lengths = lengths_of(mask[:, :-keep], mask[:, -keep:])
        out: list[torch.Tensor | None] = [None, None]
        router = []
        for rows in cut(range(len(ids)), lengths, self._budget, alone=alone):
            *found, loss = score_rows(score, rows, lengths, ids, mask, keep)
            for place, part in enumerate(found):
                if part is not None:
                    whole = out[place]
                    out[place] = put(part.new_zeros(len(ids), keep) if whole is None else whole, rows, part)
            router += [loss] if loss is not None else []
        logps, entropies = out
        assert logps is not None
        return logps, entropies, torch.stack(router).mean() if router else None

    def _known_mask(self, step: _Step, device: torch.device) -> KnownMask | None:
        """Of the ids that TRL's head scores: those of completions, each at the column before its own."""
        columns = max(step.lengths.prompts[row] for row in step.rows)
        if step.pieces is not None or not columns or not on_gpu(device):
            return None
        counts = [step.lengths.completions[row] for row in step.rows]
        return KnownMask(columns - 1, counts, columns + max(counts) - 1, device)

    def _spread(self, score: Score, ids: torch.Tensor, mask: torch.Tensor, keep: int) -> Scored:
        """The rows of this pass, scored, among what is known of the others."""
        step = self._now
        assert step is not None
        chosen = self._known_mask(step, ids.device)
        with nullcontext() if chosen is None else chosen:
            logps, entropies, router = score_rows(score, step.rows, step.lengths, ids, mask, keep)
        if chosen is not None:
            step.wrong.append(chosen.wrong)
        if step.logps is None or step.logps.dtype != logps.dtype:
            step.logps = logps.new_zeros(len(ids), keep) if step.logps is None else step.logps.to(logps.dtype)
        whole = put(step.logps, step.rows, logps)
        step.logps = whole.detach()
        if entropies is not None:
            known = entropies.new_zeros(len(ids), keep) if step.entropies is None else step.entropies
            entropies = put(known, step.rows, entropies)
            step.entropies = entropies.detach()
            entropies = entropies * step.scale if step.scale != 1.0 else entropies
        if router is not None:
            router = router * (padded_tokens(step.rows, step.lengths) / step.tokens) + (
                0.0 if step.router is None else step.router
            )
            step.router = router.detach()
        return whole, entropies, router

    def _choose_budget(self, *, alone: bool) -> None:
        """The budget as it was given; `auto` has fewer where a GPU has less free, once a step has shown its need.

        The model is looked at only when it learns: before, a reference may score, with adapters switched off.
        """
        args: GiGPOConfig = self.args
        if self._settled:
            return
        replayed = args.budget_is_auto and self._may_replay(alone=alone)
        if replayed and self._learning:
            replayed = self._replays(alone=alone) is not None
        most = args.tokens_of_a_pass(replayed=replayed)
        assert most is not None
        self._budget = most
        if not self._learning or not args.budget_is_auto or not self._per_token:
            return
        device = self.accelerator.device
        free = torch.cuda.mem_get_info(device)[0]
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        gradients = sum(p.numel() * p.element_size() for p in self.model.parameters() if p.requires_grad)
        # Of a shape that comes first, while the graphs of others hold the memory of a pass.
        per_token = self._per_token * (2 if replayed else 1)
        self._budget = min(most, tokens_that_fit(free - gradients, per_token))
        self._settled = True
