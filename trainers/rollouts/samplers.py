"""Who samples in training: the model itself, a merged copy, or a vLLM server; how stale its weights may be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from agents.policies.merged import sampling_dtype
from agents.policies.transformers import TransformersPolicy
from agents.policies.vllm import VllmPolicy
from agents.policy import Policy
from tasks.endpoints.http import RETRIES
from trainers.rollouts.rules import SAME, VLLM

# -- Staleness: optimizer steps between the weights that sampled an episode and the weights that train on it ----------
# With `num_iterations` or `steps_per_generation` above their defaults a batch is sampled once and trained on in
# several optimizer steps, so its last part meets weights that moved on; with `overlap` a batch is sampled while the one
# before is trained on. How far follows from the schedule; a bound below that could never be kept, and is refused before
# a run starts.

VERSION = "policy_version"
"""Key of the batch: optimizer steps behind the weights that sampled each row, shape (B,)."""


def fresh(version: int, step: int, bound: int) -> bool:
    """Whether weights of `step` optimizer steps may train on a sample of `version`."""
    return version >= step - bound


def drop_stale(inputs: Mapping[str, Any], step: int, bound: int) -> tuple[dict[str, Any], int]:
    """The batch with the rows masked that `bound` does not allow, and how many these are.

    A masked row adds nothing to the loss; what divides the loss still counts it, so the step gets smaller, not louder.

    Args:
        inputs: A batch with `policy_version` (B,) and `tool_mask` (B, T); it is not changed.
        step: Optimizer steps taken.
        bound: Staleness that is allowed.
    """
    stale = torch.tensor([not fresh(int(version), step, bound) for version in inputs[VERSION].tolist()])
    if not stale.any():
        return dict(inputs), 0
    mask = inputs["tool_mask"].masked_fill(stale.to(inputs["tool_mask"].device).unsqueeze(1), 0)
    return {**inputs, "tool_mask": mask}, int(stale.sum())


# -- Who samples in training: the model itself, a copy of it (in another number format, or of the weights before a
# -- step), or a vLLM server ------------------------------------------------------------------------------------------
# Only the first samples from exactly the weights that are trained; for the others the trainer corrects what the
# sampled log-probabilities differ by (`importance_cap`).

READY_SECONDS = 60.0
"""Longest wait for a server that is starting."""


def nothing() -> None:
    """For a sampler that needs no end."""


def no_update(step: int) -> None:
    """For a sampler that reads the weights themselves."""


@dataclass(frozen=True, slots=True)
class Sampler:
    """A policy, and what it needs around a rollout.

    Attributes:
        policy: Who acts.
        exact: Its log-probabilities are those of the weights being trained, to the last digits of float32.
        update: Called before each rollout with the number of optimizer steps taken: samples with the weights of now
            from then on.
        close: Called at the end.
        within: Entered by the thread that plays, for as long as it plays.
    """

    policy: Policy
    exact: bool = True
    update: Callable[[int], None] = no_update
    close: Callable[[], None] = nothing
    within: Callable[[], AbstractContextManager[None]] = nullcontext


class Publisher:
    """Sends a model's LoRA adapter to a server whenever the weights changed.

    Args:
        policy: Of the server.
        model: The PEFT model that is trained.
    """

    def __init__(self, policy: VllmPolicy, model: Any) -> None:
        self._policy, self._model = policy, model
        self._state: tuple[object, ...] | None = None
        self._ready = False
        self.names: list[str] = []
        """Of all versions published, in order; no name comes twice."""

    def update(self, step: int) -> None:
        """Publish, if the trained weights are others than those published last.

        Args:
            step: Optimizer steps taken; fused optimizers change weights without a trace, so torch's counters alone
                would not tell.

        Raises:
            PolicyError: The server is not there or not what is needed, or the model has no LoRA adapter.
        """
        if not self._ready:
            self._policy.wait_ready(READY_SECONDS)
            self._ready = True
        # A checkpoint is loaded in place or puts other tensors there: the counters tell that.
        places = ((p.data_ptr(), p._version) for p in self._model.parameters() if p.requires_grad)
        state = (step, *places)
        if state != self._state:
            self.names.append(self._policy.publish(self._model))
            self._state = state


class Renewed:
    """Has a policy copy the weights again after each optimizer step (a fused one leaves no trace in them)."""

    def __init__(self, policy: TransformersPolicy) -> None:
        self._policy, self._step = policy, -1

    def update(self, step: int) -> None:
        """Copy again at the next reply, if a step was taken."""
        if step != self._step:
            self._policy.renew()
            self._step = step


class Frozen:
    """Has a policy take the weights over when it is told, and never by itself: for sampling beside an optimizer."""

    def __init__(self, policy: TransformersPolicy, device: torch.device) -> None:
        self._policy, self._device = policy, device
        # Of its own: on the stream that trains, sampling would wait in line behind it. All sampling uses it, so that
        # memory that it gives back is never written to by a stream that does not know what still reads it.
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None

    def update(self, step: int) -> None:
        """Take the weights over as they are now."""
        self._policy.renew()
        if self._stream is not None:
            torch.cuda.current_stream(self._device).synchronize()

    @contextmanager
    def within(self) -> Iterator[None]:
        """What is computed here goes to the stream of sampling, and is done at the end."""
        if self._stream is None:
            yield
            return
        with torch.cuda.stream(self._stream):
            try:
                yield
            finally:
                self._stream.synchronize()


def rounds(model: Any) -> bool:
    """Whether weights of a model are in a type of few digits (bfloat16, float16)."""
    return any(p.dtype in (torch.bfloat16, torch.float16) for p in model.parameters())


def sampled_dtype(model: Any, sampler: str, sample_dtype: str) -> str:
    """The number format that the sampler of these settings computes in, by name; empty where only a server knows."""
    if sampler.startswith(VLLM):
        return ""
    if sample_dtype not in (SAME, "auto"):
        return sample_dtype
    own = next(model.parameters())
    found = own.dtype if sample_dtype == SAME else sampling_dtype(own.device)
    return str(found).removeprefix("torch.")


def make_sampler(
    model: Any,
    tokenizer: Any,
    eos_ids: Iterable[int],
    *,
    sampler: str,
    sample_dtype: str,
    adapters: str = "",
    frozen: bool = False,
    retries: int | None = None,
) -> Sampler:
    """The sampler that the settings name; a server is not asked anything yet.

    Args:
        model: The model being trained (PEFT's wrapper included).
        tokenizer: Its tokenizer.
        eos_ids: Ids that end a turn.
        sampler: `in_process`, or `vllm:URL` (`vllm:URL,URL`: replicas).
        sample_dtype: `same`, or the type of a merged copy.
        adapters: Folder for adapters that trainer and server see under the same path; empty: a temporary one.
        frozen: It samples while the model is trained, with the weights of its last `update`.
        retries: Attempts after the first at a server; default: the policy's.

    Raises:
        PolicyError: The model cannot be served in this process.
        ValueError: The address cannot be used.
    """
    if sampler.startswith(VLLM):
        served = VllmPolicy(
            sampler.removeprefix(VLLM), tokenizer, eos_ids=eos_ids, adapters=adapters or None,
            retries=RETRIES if retries is None else retries,
        )  # fmt: skip
        return Sampler(served, exact=False, update=Publisher(served, model).update, close=served.close)
    dtype = None if sample_dtype == SAME else sample_dtype if sample_dtype == "auto" else getattr(torch, sample_dtype)
    make = partial(TransformersPolicy, model, tokenizer, eos_ids=eos_ids, sample_dtype=dtype)
    if frozen:
        kept = Frozen(policy := make(frozen=True), next(model.parameters()).device)
        return Sampler(policy, exact=False, update=kept.update, within=kept.within)
    policy = make()
    if not policy.copied:
        # In few digits decoding and training round differently: other kernels, other sums.
        return Sampler(policy, exact=not rounds(model))
    return Sampler(policy, exact=False, update=Renewed(policy).update)
