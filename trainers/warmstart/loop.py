"""The training loop of supervised fine-tuning: weighted next-token loss over batches of similar length.

Deterministic on a CPU, given the model and the seed. On a GPU the order of data and the arithmetic type are the same
from run to run, and sums may still differ in their last bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from trainers.warmstart.corpus import Batches, Corpus

if TYPE_CHECKING:
    from trainers.warmstart.config import SFTSettings


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of the log, over the steps since the last line.

    Attributes:
        step: Steps done, of `steps`.
        loss: Mean cross-entropy of the tokens that are trained at full weight (nats).
        token_accuracy: Share of those tokens that are the model's first choice.
        learning_rate: At the last step.
        tokens_per_second: Tokens trained on or read, without padding, per second of wall time.
    """

    step: int
    steps: int
    loss: float
    token_accuracy: float
    learning_rate: float
    tokens_per_second: float

    def line(self) -> str:
        """For people."""
        return (
            f"step {self.step:>5}/{self.steps}  loss {self.loss:.4f}  token accuracy {self.token_accuracy:.3f}  "
            f"lr {self.learning_rate:.2e}  {self.tokens_per_second:,.0f} tokens/s"
        )


def train(
    model: Any, corpus: Corpus, settings: SFTSettings, *, pad_id: int, device: torch.device,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Progress:  # fmt: skip
    """Train `model` in place and return the last progress. The order of the data depends on `settings.seed` alone.

    Raises:
        CorpusError: Nothing to train on.
        FloatingPointError: The loss is no longer a number.
    """
    batches = Batches(corpus, settings.batch_tokens, pad_id, settings.seed)
    steps = settings.max_steps or max(1, math.ceil(settings.epochs * len(batches)))
    optimizer = _optimizer(model, settings, device)
    model.to(device).train()
    totals = torch.zeros(3, device=device)  # loss, right, trained tokens
    tokens, since = 0, time.perf_counter()
    progress: Progress | None = None
    for step, (ids, trained, real) in enumerate(islice(_forever(batches), steps), start=1):
        rate = settings.learning_rate * schedule(step, steps, settings.warmup_steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        context_weight = settings.context_weight if step <= settings.context_until * steps else 0.0
        batch = Batch(*(torch.from_numpy(array).to(device, non_blocking=True) for array in (ids, trained, real)))
        loss, counts = weighted_loss(model, batch, context_weight, autocast=device.type == "cuda")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        totals += counts
        tokens += int(real.sum())
        if step % settings.logging_steps == 0 or step == steps:
            loss_sum, right, count = totals.tolist()
            if not math.isfinite(loss_sum):
                raise FloatingPointError(f"step {step}: the loss is {loss_sum}; lower learning_rate")
            seconds = time.perf_counter() - since
            progress = Progress(step, steps, loss_sum / count, right / count, rate, tokens / seconds)
            report(progress)
            totals.zero_()
            tokens, since = 0, time.perf_counter()
    assert progress is not None
    model.eval()
    return progress


def schedule(step: int, steps: int, warmup: int) -> float:
    """Share of the peak learning rate at a step (from 1): linear warm-up, then half a cosine to 0."""
    warmup = min(warmup, max(1, steps // 2))
    if step <= warmup:
        return step / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of shape (sequences, longest), see `Batches.epoch`."""

    ids: torch.Tensor
    trained: torch.Tensor
    real: torch.Tensor


def weighted_loss(
    model: Any, batch: Batch, context_weight: float, *, autocast: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean cross-entropy of the next token, and its bookkeeping.

    Args:
        model: A causal language model.
        batch: What to learn; padding has no weight.
        context_weight: Weight of tokens that are read only; tokens that are trained have weight 1.
        autocast: Compute in bfloat16.

    Returns:
        The weighted mean (nats), and sums over the trained tokens: loss, right first choices, count.
    """
    ids, trained, real = batch.ids, batch.trained, batch.real
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=autocast):
        logits = model(input_ids=ids, use_cache=False).logits
    goal = ids[:, 1:].reshape(-1)
    on = trained[:, 1:].reshape(-1)
    used = real[:, 1:].reshape(-1) if context_weight else on
    logits = logits[:, :-1].reshape(len(goal), -1)[used].float()
    goal, on = goal[used], on[used].float()
    each = functional.cross_entropy(logits, goal, reduction="none")
    weight = on + context_weight * (1.0 - on)
    with torch.no_grad():
        right = (logits.argmax(-1) == goal).float()
        counts = torch.stack([(each * on).sum(), (right * on).sum(), on.sum()])
    return (each * weight).sum() / weight.sum().clamp_min(1e-8), counts


def _forever(batches: Batches) -> Iterator[Any]:
    while True:
        yield from batches.epoch()


def _optimizer(model: Any, settings: SFTSettings, device: torch.device) -> torch.optim.Optimizer:
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learned if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in learned if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, fused=device.type == "cuda")
