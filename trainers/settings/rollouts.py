"""Settings of the rollouts of training: which attempts are made, who samples, and what of it is trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agents.rollout.engine import RolloutMode
from tasks.settings import Settings, setting, unless, without
from trainers.credit.episode import EpisodeOperator
from trainers.credit.token import TokenSignal
from trainers.rollouts.curriculum import CurriculumOrder
from trainers.rollouts.rules import IN_PROCESS, SAME, SAMPLE_DTYPES, VLLM, Adaptive, Schedule, schedule

_SERVED = unless(lambda c: not c.sampler.startswith(VLLM), " without sampler=vllm:URL")
_EXACT = unless(lambda c: c.samples_exactly, ": this sampler is exact, so there is no such weight")


@dataclass
class RolloutFields(Settings):
    """How the episodes of a step come about."""

    rounded = False
    """The weights are in a type of few digits, so that sampling and training round differently. No setting of its own:
    `dtype` says it, or the model that a trainer is given."""

    importance_cap: float = setting(
        2.0,
        "Cap on the weight exp(trained - sampled log-probability) of a token whose sampler was not exactly "
        "the trained weights (another number format, a server, older weights); an exact sampler needs none.",
        above=0,
        why="1 never raises a token's weight",
        needs=(_EXACT,),
    )
    adaptive_successes: int | None = setting(
        None,
        "Attempt a task until this many attempts passed (k_success; and adaptive_failures failed); K of them are "
        "trained on, both outcomes among them where both were seen. 0: exactly K attempts. Biases advantages.",
        off=0,
        above=0,
    )
    adaptive_failures: int | None = setting(
        None, "Failures wanted (k_failure); goes with adaptive_successes.", off=0, above=0
    )
    adaptive_attempts: int | None = setting(
        None,
        "Attempts at one task at most; 0: four times K.",
        off=0,
        above=0,
        requires=(without("adaptive_successes"),),
    )
    adaptive_chunk: int | None = setting(
        None, "Attempts between two looks; 0: K.", off=0, above=0, requires=(without("adaptive_successes"),)
    )
    refill_rounds: int = setting(
        0, "How often groups in which no token has a weight are replaced by groups of other tasks.", low=0
    )
    curriculum: str = setting(
        "",
        "Pass rates that order the pool: a folder of `python -m trainers.evaluate --samples N`, or a JSONL "
        "with task_id, passes and n. Then shuffle_dataset does nothing.",
    )
    curriculum_order: CurriculumOrder = setting(
        CurriculumOrder.EASY_FIRST,
        "easy_first (all tasks, again and again) | band (only those solved sometimes, not always).",
        choices=CurriculumOrder,
        requires=(without("curriculum"),),
    )
    curriculum_allow_missing: bool = setting(
        False, "Leave out tasks of the pool that the curriculum does not know.", requires=(without("curriculum"),)
    )
    max_staleness: int | None = setting(
        None,
        "Optimizer steps that the weights which train may be ahead of those which sampled; rows beyond it "
        "are masked. Default: what num_iterations and steps_per_generation need; with overlap 1, with "
        "partial_batches 2.",
    )
    overlap: int | None = setting(
        None,
        "1: while a generation is learned on, the next one is sampled with the weights before; tokens are weighted as "
        "importance_cap says. 0: one after the other. In one process.",
        off=0,
        above=0,
        high=1,
        unit="generations",
    )
    partial_batches: int | None = setting(
        None,
        "Groups that are begun beyond those of a batch: a step learns on the first that are complete, and those that "
        "straggle go to a later one, within max_staleness. Works against slow tasks; not with resume. 0: off.",
        off=0,
        above=0,
        unit="groups",
        requires=(
            without("overlap"),
            without("rollout_mode", RolloutMode.ASYNCHRONOUS),
            unless(
                lambda c: c.adaptive_successes or c.refill_rounds,
                ": adaptive sampling and refill wait for whole generations, to see how they ended",
            ),
        ),
    )
    sampler: str = setting(
        IN_PROCESS,
        "in_process | vllm:URL (a server that gets each new LoRA adapter; several with commas between share the load; "
        "see docs/rollouts.md).",
        common=True,
    )
    rollout_mode: RolloutMode = setting(
        RolloutMode.AUTO,
        "asynchronous (no episode waits for another one's command or reply) | lockstep (all take their turns together: "
        "equal seeds, equal bytes) | auto (lockstep where the CPU samples, else asynchronous).",
        choices=RolloutMode,
    )
    sampler_adapters: str = setting(
        "",
        "Folder for the adapters that a vLLM server sees under the same path; empty: a temporary one.",
        requires=(_SERVED,),
    )
    sampler_retries: int | None = setting(
        None,
        "Attempts after the first at a vLLM server, with waits that double up to a minute. Default: 10 (four minutes).",
        low=0,
        requires=(_SERVED,),
    )
    sample_dtype: str = setting(
        SAME,
        "Sample from a merged copy of the model in this type: same | bfloat16 | float32 | auto.",
        choices=SAMPLE_DTYPES,
    )

    def adaptive_rule(self) -> Adaptive | None:
        """Adaptive sampling of these settings; `None` where it is off."""
        if self.adaptive_successes is None or self.adaptive_failures is None:
            return None
        k: int = self._trl("num_generations")
        most = self.adaptive_attempts or 4 * k
        return Adaptive(self.adaptive_successes, self.adaptive_failures, most, self.adaptive_chunk or k)

    def step_schedule(self, ahead: int | None = None) -> Schedule:
        """How generations and optimizer steps interleave.

        Args:
            ahead: Generations that sampling begins before learning needs it; default: what these settings need.

        Raises:
            ValueError: They do not divide.
        """
        rows: int = self._trl("per_device_train_batch_size")
        passes: int = (self._trl("steps_per_generation") or 1) * self._trl("num_iterations")
        return schedule(
            rows * self._trl("gradient_accumulation_steps"),
            rows,
            rows * passes,
            self._ahead if ahead is None else ahead,
        )

    @property
    def samples_exactly(self) -> bool:
        """Sampling surely reads the very weights that are trained (a copy in their own type may, too), in float32."""
        return self.samples_with_itself and not self.rounded

    @property
    def samples_with_itself(self) -> bool:
        """The model that is trained samples: no copy of it is asked for, and no server."""
        return self.sampler == IN_PROCESS and self.sample_dtype == SAME and not self.overlap

    @property
    def _ahead(self) -> int:
        """Generations that sampling must be able to begin before learning needs it."""
        return (self.overlap or 0) + bool(self.partial_batches)

    @property
    def carried_at_most(self) -> int:
        """Generations that a group may be carried on with `partial_batches`, so that the staleness bound is kept."""
        bound, carried = self.staleness_bound, 0
        assert bound is not None and self.overlap is not None
        while self.step_schedule(self.overlap + carried + 1).required_staleness <= bound:
            carried += 1
        return carried

    @property
    def rows_in_flight(self) -> int:
        """Episodes of training that are under way at a time, at most."""
        return int(self._trl("generation_batch_size") + (self.partial_batches or 0) * self._trl("num_generations"))

    @property
    def staleness_bound(self) -> int | None:
        """Optimizer steps that samples may be behind the weights that train; `None` where the schedule alone says."""
        return self._ahead or None if self.max_staleness is None else self.max_staleness

    def rollout_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        yield from self._adaptive_problems()
        if self.curriculum and not Path(self.curriculum).expanduser().exists():
            yield f"curriculum={self.curriculum}: no such file or folder."
        yield from self._sampler_problems()
        groups = (self._trl("generation_batch_size") or 0) // (self._trl("num_generations") or 1)
        if self.partial_batches and self.partial_batches > groups:
            yield f"partial_batches={self.partial_batches}: at most the {groups} groups of a generation."
        if (bound := self.staleness_bound) is not None and self._trl("num_iterations") >= 1:
            needed = self.step_schedule().required_staleness
            if bound < needed:
                ahead = f"overlap={self.overlap}, " if self.overlap else ""
                ahead += f"partial_batches={self.partial_batches}, " if self.partial_batches else ""
                yield (
                    f"max_staleness={bound}: {ahead}num_iterations={self._trl('num_iterations')} and "
                    f"steps_per_generation={self._trl('steps_per_generation')} train on samples up to {needed} "
                    f"optimizer steps old. Use {needed} or more, or lower them."
                )

    def _adaptive_problems(self) -> Iterator[str]:
        successes, failures, k = self.adaptive_successes, self.adaptive_failures, self._trl("num_generations") or 0
        if (successes is None) != (failures is None):
            yield (
                f"adaptive_successes={successes}, adaptive_failures={failures}: both above 0 (attempts until both "
                "outcomes were seen), or both 0 (off)."
            )
        elif successes is None or failures is None:
            return
        elif successes + failures > k:
            yield (
                f"adaptive_successes={successes} and adaptive_failures={failures} do not fit into the "
                f"num_generations={k} episodes of a task that are trained on."
            )
        elif self.adaptive_attempts is not None and self.adaptive_attempts <= k:
            yield f"adaptive_attempts={self.adaptive_attempts}: must be above num_generations={k}, or 0 for {4 * k}."

    def _sampler_problems(self) -> Iterator[str]:
        served = self.sampler.startswith(VLLM)
        if self.sampler != IN_PROCESS and not served:
            yield f"sampler={self.sampler!r}: in_process, or vllm:URL such as vllm:http://127.0.0.1:8000."
        elif served and not all(map(_is_address, self.sampler.removeprefix(VLLM).split(","))):
            yield f"sampler={self.sampler!r}: no address of a server; such as vllm:http://127.0.0.1:8000."
        if served and self.sample_dtype != SAME:
            yield f"sample_dtype={self.sample_dtype}: a vLLM server has its own --dtype. Leave it at same."
        if served and self._needs_entropies():
            yield (
                "token_signal=entropy: a vLLM server gives only bounds of the entropy, and operators read it "
                "exactly. Use token_signal=surprisal, or sampler=in_process."
            )

    def _needs_entropies(self) -> bool:
        """Whether an operator reads exact entropies (settings of credit, where there are any)."""
        operators = getattr(self, "token_operators", "none").strip()
        reads = operators not in ("", "none") or getattr(self, "episode_operator", "") == EpisodeOperator.GTPO
        return reads and getattr(self, "token_signal", "") == TokenSignal.ENTROPY

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
