"""What guards may look at beside the metrics of each step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agents.models.card import ModelCard
from agents.policy import Sampling
from agents.trajectory import Trajectory
from tasks.sources.self_test import Coverage
from tasks.splits import Choice
from tasks.task import Task
from trainers.measuring.measure import Measurement

if TYPE_CHECKING:
    from trainers.config import GiGPOConfig


@dataclass(frozen=True, slots=True)
class Facts:
    """A run before its first step.

    Attributes:
        config: Its settings.
        pool: Tasks trained on; `held_out` those only measured on, of families that are trained on and of others.
        choice: How the sides were chosen.
        sampling: Decode settings of training episodes; `arms` those of the held-out ones, by name.
        environment: Id of the environment; `prompt_hash` hash of what it says.
        card: What the policy says it was made for.
        raw_prompts: The environment's messages are one running text for a base model.
        template_ids: Special tokens that the chat template puts around a message, as text.
        overrun: Why replies run on behind the end that the chat template writes; `None` where they end there.
        pad_id: The tokenizer's; `eos_ids` ids that end a reply.
        exact: The sampler is exactly the trained weights; where not, importance weights correct for it.
        sampler: Who samples, for people; `dtype` and `training_dtype` the number formats of sampler and trainer.
        self_test: What the gold self-test of question sets found; `None` where no task is a question.
        resampling: Asks the T2PO wrapper what is wrong with turn resampling; `None` where it is off.
        resample_rate: Share of turns that are meant to be resampled.
        parameters: Of the whole model, trained or not; `None` where unknown.
    """

    config: GiGPOConfig
    pool: Sequence[Task]
    held_out: Sequence[Task] = ()
    choice: Choice = Choice.SEED
    sampling: Sampling = field(default_factory=lambda: Sampling(1.0, 512))
    arms: Mapping[str, Sampling] = field(default_factory=dict)
    environment: str = ""
    prompt_hash: str = ""
    card: ModelCard = field(default_factory=ModelCard)
    raw_prompts: bool = False
    template_ids: Sequence[str] = ()
    overrun: str | None = None
    pad_id: int | None = None
    eos_ids: frozenset[int] = frozenset()
    exact: bool = True
    sampler: str = ""
    dtype: str = ""
    training_dtype: str = ""
    self_test: Coverage | None = None
    resampling: Callable[[], str | None] | None = None
    resample_rate: float = 0.15
    parameters: int | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """What one optimizer step did to the weights, on a sample of them (see `trainers.run.weight_delta`).

    Attributes:
        rate: Learning rate of the step.
        advantages: Trained tokens of its batches whose advantage was not 0, of all processes.
        moved: L2 norm of the change of all trained weights; 0 where nothing is trained, `None` where nothing of it is
            held by this process.
        slope: Whether any gradient was not 0; `None` where no gradient could be read.
        visible: Share of the weights that a change by `rate` would change at all: in number formats of few digits a
            small one is rounded away. Only known where nothing moved.
        dtype: Number format of the weights.
    """

    rate: float
    advantages: float
    moved: float | None
    slope: bool | None = None
    visible: float = 1.0
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """The newest checkpoint at the end of a run, opened from its folder alone as a later evaluation does it.

    Attributes:
        step: Optimizer steps taken before it.
        folder: Where it is.
        then: A few held-out episodes as the run played them.
        now: The same, played with what the folder says.
        problems: What is wrong with the folder itself.
        compares_replies: The run sampled them as a later evaluation does, so that replies must be alike, too.
        skipped: Why nothing could be compared; empty where it could.
    """

    step: int
    folder: str
    then: Sequence[Trajectory] = ()
    now: Sequence[Trajectory] = ()
    problems: Sequence[str] = ()
    compares_replies: bool = True
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """A held-out evaluation.

    Attributes:
        step: Optimizer steps taken before it.
        arms: Measurement of each decode setting.
        deciding: Name of the one that chooses the best.
        is_best: It became the best.
        p_value: Paired test of the deciding arm against the best before it; `None` for the first.
        best_step: Step of the best now; `None` while there is none.
        episodes: What was played, by decode setting.
    """

    step: int
    arms: Mapping[str, Measurement]
    deciding: str
    is_best: bool
    p_value: float | None = None
    best_step: int | None = None
    episodes: Mapping[str, Sequence[Trajectory]] = field(default_factory=dict)
