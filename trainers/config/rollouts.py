"""Settings of the rollouts of training: which attempts are made and which of them are trained on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from trainers.credit.token import TokenSignal
from trainers.rollouts.adaptive import Adaptive
from trainers.rollouts.curriculum import CurriculumOrder
from trainers.rollouts.names import IN_PROCESS, SAME, SAMPLE_DTYPES, VLLM
from trainers.rollouts.schedule import Schedule, schedule

RARE = frozenset(
    {"adaptive_attempts", "adaptive_chunk", "curriculum_allow_missing", "max_staleness", "sampler_adapters"}
)
"""Fields that the short help leaves to `--help-all`; each refines one that it shows."""


@dataclass
class RolloutFields:
    """How the episodes of a step come about."""

    importance_cap: float = field(
        default=2.0,
        metadata={
            "help": "Cap on the weight exp(trained - sampled log-probability) of a token whose sampler was not exactly "
            "the trained weights (another number format, a server, older weights); an exact sampler needs none."
        },
    )
    adaptive_successes: int = field(
        default=0,
        metadata={
            "help": "Attempt a task until this many attempts passed (and adaptive_failures failed); K of them are "
            "trained on, both outcomes among them where both were seen. 0: exactly K attempts. Biases advantages."
        },
    )
    adaptive_failures: int = field(default=0, metadata={"help": "Failures wanted; goes with adaptive_successes."})
    adaptive_attempts: int = field(default=0, metadata={"help": "Attempts at one task at most; 0: four times K."})
    adaptive_chunk: int = field(default=0, metadata={"help": "Attempts between two looks; 0: K."})
    refill_rounds: int = field(
        default=0,
        metadata={"help": "How often groups in which no token has a weight are replaced by groups of other tasks."},
    )
    curriculum: str = field(
        default="",
        metadata={
            "help": "Pass rates that order the pool: a folder of `python -m trainers.evaluate --samples N`, or a JSONL "
            "with task_id, passes and n. Then shuffle_dataset does nothing."
        },
    )
    curriculum_order: str = field(
        default=CurriculumOrder.EASY_FIRST.value,
        metadata={"help": "easy_first (all tasks, again and again) | band (only those solved sometimes, not always)."},
    )
    curriculum_allow_missing: bool = field(
        default=False, metadata={"help": "Leave out tasks of the pool that the curriculum does not know."}
    )
    max_staleness: int | None = field(
        default=None,
        metadata={
            "help": "Optimizer steps that the weights which train may be ahead of those which sampled; rows beyond it "
            "are masked. Default: what num_iterations and steps_per_generation need."
        },
    )
    sampler: str = field(
        default=IN_PROCESS,
        metadata={"help": "in_process | vllm:URL (a server that gets each new LoRA adapter; see docs/rollouts.md)."},
    )
    sampler_adapters: str = field(
        default="",
        metadata={
            "help": "Folder for the adapters that a vLLM server sees under the same path; empty: a temporary one."
        },
    )
    sample_dtype: str = field(
        default=SAME,
        metadata={"help": "Sample from a merged copy of the model in this type: same | bfloat16 | float32 | auto."},
    )

    def adaptive_rule(self) -> Adaptive | None:
        """Adaptive sampling of these settings; `None` where it is off."""
        if not self.adaptive_successes:
            return None
        k: int = self._trl("num_generations")
        most = self.adaptive_attempts or 4 * k
        return Adaptive(self.adaptive_successes, self.adaptive_failures, most, self.adaptive_chunk or k)

    def step_schedule(self) -> Schedule:
        """How generations and optimizer steps interleave.

        Raises:
            ValueError: They do not divide.
        """
        rows: int = self._trl("per_device_train_batch_size")
        passes: int = (self._trl("steps_per_generation") or 1) * self._trl("num_iterations")
        return schedule(rows * self._trl("gradient_accumulation_steps"), rows, rows * passes)

    def rollout_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        if not 0 < self.importance_cap < math.inf:
            yield f"importance_cap={self.importance_cap}: a finite number above 0; 1 never raises a token's weight."
        if self.refill_rounds < 0:
            yield f"refill_rounds={self.refill_rounds}: 0 or more."
        yield from self._adaptive_problems()
        yield from self._curriculum_problems()
        yield from self._sampler_problems()
        if self.max_staleness is not None and self._trl("num_iterations") >= 1:
            needed = self.step_schedule().required_staleness
            if self.max_staleness < needed:
                yield (
                    f"max_staleness={self.max_staleness}: num_iterations={self._trl('num_iterations')} and "
                    f"steps_per_generation={self._trl('steps_per_generation')} train on samples up to {needed} "
                    f"optimizer steps old. Use {needed} or more, or lower those two."
                )

    def _adaptive_problems(self) -> Iterator[str]:
        successes, failures, k = self.adaptive_successes, self.adaptive_failures, self._trl("num_generations") or 0
        if min(successes, failures, self.adaptive_attempts, self.adaptive_chunk) < 0:
            yield "adaptive_successes, adaptive_failures, adaptive_attempts, adaptive_chunk: 0 or more."
        elif (successes > 0) != (failures > 0):
            yield (
                f"adaptive_successes={successes}, adaptive_failures={failures}: both above 0 (attempts until both "
                "outcomes were seen), or both 0 (off)."
            )
        elif not successes:
            if self.adaptive_attempts or self.adaptive_chunk:
                yield "adaptive_attempts, adaptive_chunk: do nothing without adaptive_successes and adaptive_failures."
        elif successes + failures > k:
            yield (
                f"adaptive_successes={successes} and adaptive_failures={failures} do not fit into the "
                f"num_generations={k} episodes of a task that are trained on."
            )
        elif self.adaptive_attempts and self.adaptive_attempts <= k:
            yield f"adaptive_attempts={self.adaptive_attempts}: must be above num_generations={k}, or 0 for {4 * k}."

    def _curriculum_problems(self) -> Iterator[str]:
        if self.curriculum_order not in tuple(CurriculumOrder):
            yield f"curriculum_order={self.curriculum_order!r}: one of {', '.join(CurriculumOrder)}."
        if self.curriculum and not Path(self.curriculum).expanduser().exists():
            yield f"curriculum={self.curriculum}: no such file or folder."
        elif not self.curriculum and (
            self.curriculum_allow_missing or self.curriculum_order != CurriculumOrder.EASY_FIRST
        ):
            yield "curriculum_order, curriculum_allow_missing: do nothing without curriculum."

    def _sampler_problems(self) -> Iterator[str]:
        served = self.sampler.startswith(VLLM)
        if self.sampler != IN_PROCESS and not served:
            yield f"sampler={self.sampler!r}: in_process, or vllm:URL such as vllm:http://127.0.0.1:8000."
        elif served and not _is_address(self.sampler.removeprefix(VLLM)):
            yield f"sampler={self.sampler!r}: no address of a server; such as vllm:http://127.0.0.1:8000."
        if self.sample_dtype not in SAMPLE_DTYPES:
            yield f"sample_dtype={self.sample_dtype!r}: one of {', '.join(SAMPLE_DTYPES)}."
        elif served and self.sample_dtype != SAME:
            yield f"sample_dtype={self.sample_dtype}: a vLLM server has its own --dtype. Leave it at same."
        if served and self._needs_entropies():
            yield (
                "token_signal=entropy: a vLLM server gives only bounds of the entropy, and token_operators read it "
                "exactly. Use token_signal=surprisal, or sampler=in_process."
            )
        if self.sampler_adapters and not served:
            yield "sampler_adapters: does nothing without sampler=vllm:URL."

    def _needs_entropies(self) -> bool:
        """Whether a token operator reads exact entropies (settings of credit, where there are any)."""
        operators = getattr(self, "token_operators", "none").strip()
        return operators not in ("", "none") and getattr(self, "token_signal", "") == TokenSignal.ENTROPY

    def _trl(self, name: str) -> Any:
        """A setting of TRL's, which this part does not declare."""
        return getattr(self, name)


def _is_address(url: str) -> bool:
    """Whether a request can be sent there."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # fails where it is no number
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
