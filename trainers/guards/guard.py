"""What a guard is: the events that it is shown, its memory, what it says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, ClassVar

from agents.models.card import ModelCard
from agents.policy import Sampling
from agents.trajectory import Trajectory
from tasks.sources.questions import Coverage
from tasks.splits import Choice
from tasks.task import Task
from trainers.guards.levels import Severity
from trainers.measure import Measurement

if TYPE_CHECKING:
    from agents.rollout import RolloutResult
    from trainers.settings import GiGPOConfig


# -- The last few values of a figure ----------------------------------------------------------------------------------


class Window:
    """The last `size` values; `full` once there are as many."""

    def __init__(self, size: int) -> None:
        self._values: deque[float] = deque(maxlen=size)

    def add(self, value: float | None) -> bool:
        """Take a value in (`None`: the step had none, which is left out); returns `full`."""
        if value is not None:
            self._values.append(value)
        return self.full

    def fill(self, values: Iterable[float]) -> None:
        """Hold these values instead."""
        self._values.clear()
        self._values.extend(values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values(self) -> list[float]:
        """Oldest first."""
        return list(self._values)

    @property
    def full(self) -> bool:
        """As many values as it holds at most."""
        return len(self._values) == self._values.maxlen

    @property
    def mean(self) -> float:
        """Of at least one value."""
        return fmean(self._values)

    @property
    def median(self) -> float:
        """Of at least one value."""
        return median(self._values)

    @property
    def low(self) -> float:
        """Smallest of at least one value."""
        return min(self._values)

    @property
    def high(self) -> float:
        """Largest of at least one value."""
        return max(self._values)


# -- What guards may look at beside the metrics of each step ----------------------------------------------------------


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
    """What one optimizer step did to the weights, on a sample of them (see `trainers.run.callback`).

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


# -- What a guard is: a run-time check with a name, what it may look at, and what it says to people -------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """What a guard found. One line of `guards.jsonl`.

    Attributes:
        step: Optimizer step it was seen at; 0 before the first one.
        guard: Name of the guard.
        message: What happened, with the figures, and what to do.
        kind: Which of the guard's checks it was; each is said once in a run.
    """

    step: int
    guard: str
    severity: Severity
    message: str
    kind: str = ""


class Fires(StrEnum):
    """On which side of its limit a figure lies when the guard fires."""

    ABOVE = ">"
    FROM = ">="
    BELOW = "<"
    TO = "<="


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure that a guard judges by, as it stands now. More may have to hold before it fires (docs/guards.md).

    Attributes:
        name: For people; unique within the guard.
        limit: Where it fires; `fires` on which side of it.
    """

    name: str
    value: float
    fires: Fires
    limit: float


@dataclass(frozen=True, slots=True)
class Alarm:
    """A condition that holds now. A guard may repeat it at every step: only the first of its `kind` is a finding."""

    kind: str
    severity: Severity
    message: str


class Guard:
    """One check. A guard overrides the events that it looks at; each yields an alarm for every condition that holds.

    An event that only takes something in returns nothing.

    Attributes whose names begin with one underscore are its memory: numbers, text, lists, mappings or a `Window`; they
    are part of every checkpoint, so that a resumed run judges as an uninterrupted one.
    """

    name: ClassVar[str]

    def begin(self, facts: Facts) -> Iterator[Alarm] | None:
        """Before the first step: settings, tasks, model."""

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm] | None:
        """The episodes that step `step` trains on (counted from 1) were played."""

    def update(self, step: int, update: Update) -> Iterator[Alarm] | None:
        """Optimizer step `step` was taken. With several steps on one batch of episodes each has this event."""

    def measured(self, held_out: Measured) -> Iterator[Alarm] | None:
        """A held-out evaluation is done."""

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm] | None:
        """Step `step` is done; `metrics` under the names of the logs."""

    def left(self, behind: LeftBehind) -> Iterator[Alarm] | None:
        """The run is over; its newest checkpoint was opened as somebody who measures it later does."""

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """What it judges by, after a step with `metrics`; nothing where it looks at no figures, or has none yet."""
        yield from ()

    def state_dict(self) -> dict[str, Any]:
        """The guard's memory, JSON-able."""
        memory = {name: value for name, value in vars(self).items() if name.startswith("_")}
        return {name: value.values if isinstance(value, Window) else value for name, value in memory.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Put back what `state_dict` gave; memory that it does not name starts anew."""
        for name, value in state.items():
            own = getattr(self, name, None)
            if isinstance(own, Window):
                own.fill(value)
            elif name in vars(self):
                setattr(self, name, value)


def note(kind: str, message: str) -> Alarm:
    """Worth knowing, no fault."""
    return Alarm(kind, Severity.NOTE, message)


def warn(kind: str, message: str) -> Alarm:
    """A fault, or nearly one."""
    return Alarm(kind, Severity.WARN, message)


def stop(kind: str, message: str) -> Alarm:
    """Going on would waste the machine, or the weights."""
    return Alarm(kind, Severity.STOP, message)
