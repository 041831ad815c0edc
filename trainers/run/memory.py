"""Memory: what a run took at most; when it runs out, which error says so, what would help, and what is kept."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

import torch

from trainers.checkpoint import Checkpoint
from trainers.errors import ConfigError, OutOfMemoryError
from trainers.run.device import PeakMemory
from trainers.run.dry_run import MAIN_MEMORY, estimate, gib, load_of, machine, remedies, too_large
from trainers.run.policy import find_shape
from trainers.run.setup import Run

if TYPE_CHECKING:
    from trainers.gigpo import GiGPOTrainer

MOST = 3
"""Settings that are named."""
_KINDS = (torch.OutOfMemoryError, MemoryError, OutOfMemoryError)
"""Torch's, Python's, and ours, which says that a single row does not fit."""
_TEXTS = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What torch says in other errors: of CUDA itself, of the allocator of main memory, of the library of matrices."""
_BEHIND = re.compile(r"\. (?:GPU \d|What helps)")
"""Begins what torch goes on with (processes, bytes), and the advice that an error of ours has of its own."""
_ANY_SHAPE = (
    "gradient_checkpointing or per_device_train_batch_size with more gradient_accumulation_steps",
    "fewer slots or a lower max_turn_tokens",
    "adapter=lora with dtype=bfloat16",
)


def ran_out(error: BaseException) -> BaseException | None:
    """The error, or the cause of it, that says that memory ran out; `None` where none does.

    An engine tells any failure of its own as a `PolicyError`, whose cause keeps its kind.
    """
    found: BaseException | None = error
    while found is not None:
        texts = isinstance(found, RuntimeError) and any(text in str(found) for text in _TEXTS)
        if found.__cause__ is None and (texts or isinstance(found, _KINDS)):
            return found
        found = found.__cause__
    return None


def told(run: Run, error: BaseException, step: int | None = None) -> str:
    """What happened and what helps, in one line.

    Args:
        run: Whose settings the remedies are for.
        error: That of `ran_out`.
        step: The optimizer step that was under way; `None`: nothing had begun.
    """
    when = "while the run was put together" if step is None else f"in step {step}"
    said = _BEHIND.split((str(error).strip() or type(error).__name__).splitlines()[0])[0].rstrip(".")
    return f"out of memory {when} ({said}). What helps most: {'; '.join(_help(run))}"


def _help(run: Run) -> Iterator[str]:
    shape = find_shape(run.source)
    if shape is None:
        yield from _ANY_SHAPE
    else:
        load = load_of(run, shape)
        yield from islice(remedies(load, estimate(load)), MOST)


def keep_weights(trainer: GiGPOTrainer, began: int, *, whole: bool) -> str:
    """Write a checkpoint of the last finished step, if none has it yet; says what became of it.

    Args:
        trainer: Its run failed in the middle of a step, or between two.
        began: Steps taken before this process.
        whole: Its weights are those of a finished step: no optimizer step failed half-way, and nothing else was loaded
            to be measured.
    """
    step, folder = int(trainer.state.global_step), trainer.output_folder
    written = Checkpoint.newest_whole(folder)
    newest = max(written.step if written else 0, began)
    if step > newest and whole and trainer.accelerator.num_processes == 1:
        trainer.model.zero_grad(set_to_none=True)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        trainer.save_finished_step()
        return f"The weights of step {step} are in checkpoint-{step}: --resume goes on from it."
    if step > newest and whole:
        lost = f"The weights of step {step} are lost: several processes write a checkpoint together, and one failed."
    elif step > newest:
        lost = f"The weights of step {step} are lost: an optimizer step or a measurement had changed them."
    else:
        lost = ""
    left = f"The last checkpoint is that of step {written.step}: --resume goes on from it." if written else ""
    return " ".join(filter(None, (lost, left or "No checkpoint was written before.")))


def peak_memory(run: Run) -> PeakMemory:
    """What the process took at most, beside what was estimated."""
    use_cpu = run.settings.config.use_cpu
    shape = find_shape(run.source)
    if shape is None:
        return PeakMemory.now(use_cpu=use_cpu)
    estimated = estimate(load_of(run, shape))
    on_gpu = machine(use_cpu=use_cpu).name != MAIN_MEMORY
    return PeakMemory.now(use_cpu=use_cpu, estimated=estimated.tensors if on_gpu else estimated.total)


def check_fits(run: Run) -> str:
    """Refuse a run that cannot fit into its GPU, before it starts; returns a warning where it may not.

    Raises:
        ConfigError: The estimate exceeds the memory by more than it can be wrong.
    """
    has = machine(use_cpu=run.settings.config.use_cpu)
    shape = find_shape(run.source) if has.name != MAIN_MEMORY else None
    if shape is None:
        return ""
    load = load_of(run, shape)
    estimated = estimate(load)
    if why := too_large(load, estimated, has):
        raise ConfigError(f"this run does not fit: {why}")
    if estimated.total <= has.total:
        return ""
    helps = "; ".join(islice(remedies(load, estimated), MOST))
    return (
        f"memory may run out: about {gib(estimated.total)} are needed where episodes are as long as they may be, and "
        f"the {has.name} has {gib(has.total)}. What helps most: {helps}"
    )
