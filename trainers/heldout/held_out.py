"""Held-out measurement during training: the figure that chooses the checkpoint, and when to stop.

The pool never decides. The step-0 baseline competes, so a run that never beats its start ships its start. Ties keep
the earlier checkpoint. `best/` is written beside the checkpoints, never rotated away (see `trainers.checkpoint`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from agents.policy import Sampling
from agents.rollout import Job, RolloutResult
from agents.seeds import derive_seed
from agents.trajectory import Trajectory
from tasks.task import Task
from trainers.checkpoint import Best, check_kept, forget_old, go_back, list_files, remake, save_best
from trainers.errors import ConfigError
from trainers.measure import Measurement, is_graded, measure
from trainers.processes import is_main
from trainers.settings.groups import UNSEEN, Arm, Figure, HeldOutFields, take_apart
from trainers.stats import paired_test

COVERAGE = 0.9
"""Share of the best's graded episodes that must be graded again, or an evaluation decides nothing."""
FIRST_COVERAGE = 0.5
"""The same for the first best: share of its episodes that must be graded, for later ones are compared on those."""
DOCTOR = "`python -m sandboxes doctor` says what is wrong with the sandbox."

Scores = dict[str, list[float | None]]
"""Task id to the deciding figure of each attempt, `None` where it was not graded."""


class Player(Protocol):
    """Who holds the weights that are measured: the trainer."""

    def rollout(self, jobs: Sequence[Job], sampling: Sampling, *, training: bool) -> RolloutResult:
        """Play episodes with the weights as they are."""

    def rollout_together(self, parts: Sequence[tuple[Sequence[Job], Sampling]]) -> list[RolloutResult]:
        """Play several lists of episodes to measure them, each decoded in its own way, at the same time."""

    def save_policy(self, folder: Path) -> None:
        """Write weights and tokenizer into a new folder."""


@dataclass(frozen=True, slots=True)
class PoolRate:
    """Training episodes since the evaluation before: shown beside the held-out figures, and used for nothing.

    Attributes:
        passed: Episodes that passed, of `graded`; `excluded` have no grade.
        first: The optimizer steps that they belong to, counted from 1, are `first` to `last`.
    """

    passed: int
    graded: int
    first: int
    last: int
    excluded: int = 0


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One held-out evaluation.

    Attributes:
        step: Optimizer steps taken before it.
        arms: Measurement of each decode setting (`sampled`, `greedy`), and of the same with `unseen_` before it on
            tasks of families that are never trained on, and with `NAME_` on each further set, where there are any.
        metrics: The figures, under the names of the logs.
        is_best: It became the best.
        p_value: Paired test of the deciding arm against the best before it; `None` for the first.
        stop: Patience is spent.
        p_values: The same test for each arm; empty for the first.
        pool: The pool's rate since the evaluation before.
        lost: Why it decides nothing and costs no patience: too little of it was graded. `None` where it counts.
    """

    step: int
    arms: dict[str, Measurement]
    metrics: dict[str, float]
    is_best: bool
    p_value: float | None
    stop: bool
    p_values: dict[str, float] = field(default_factory=dict)
    pool: PoolRate | None = None
    lost: str | None = None


@dataclass(slots=True)
class HeldOut:
    """The held-out tasks and the rule that chooses the best.

    Attributes:
        tasks: Only measured on; of families that are also trained on.
        arms: Decode settings by name.
        metric: `<arm>_<figure>`, with `unseen_` or `NAME_` before it for those of `unseen` or a set; its figure
            decides.
        unseen: Only measured on; of families that are never trained on. Measured as a set of its own.
        samples: Attempts at each task in arms that sample; greedy arms have one, for all would be alike.
        seed: Of the samples; equal at every step, so that steps are compared on common random numbers.
        output_dir: Where `best/` goes; `None` keeps no weights.
        writes: This process writes there: with several, one does.
        patience: Evaluations without a new best before the run stops; `None` never stops.
        min_delta: How much better a new best must be.
        goes_back: The run goes back to a checkpoint whose best may be gone: it is written again (see `remake`).
        on_evaluation: Called after each evaluation with its trajectories by arm, for records and the console.
        sets: Further tasks that are only measured on, by name, each a set of its own.

    Raises:
        ValueError: `metric` is not measured.
    """

    tasks: Sequence[Task]
    arms: dict[str, Sampling]
    metric: str
    unseen: Sequence[Task] = ()
    samples: int = 1
    seed: int = 0
    output_dir: Path | None = None
    writes: bool = True
    patience: int | None = None
    min_delta: float = 0.0
    on_evaluation: Callable[[Evaluation, dict[str, list[Trajectory]]], None] | None = None
    goes_back: bool = False
    best: Best | None = None
    history: list[Evaluation] = field(default_factory=list)
    seconds: float = 0.0
    sets: Mapping[str, Sequence[Task]] = field(default_factory=dict)
    _best_scores: Scores = field(default_factory=dict)
    _since_best: int = 0
    _pool: PoolRate | None = None

    def __post_init__(self) -> None:
        """Refuse a deciding arm that nothing measures."""
        arm, measured = take_apart(self.metric).arm, [name for name, _, _ in self._measured()]
        if arm not in measured:
            raise ValueError(f"metric {self.metric!r}: arm {arm!r} is not measured, only {', '.join(measured)}")

    @classmethod
    def of(
        cls,
        config: HeldOutFields,
        tasks: Sequence[Task],
        *,
        unseen: Sequence[Task] = (),
        sets: Mapping[str, Sequence[Task]] | None = None,
        max_turn_tokens: int = 512,
        max_episode_tokens: int | None = None,
        goes_back: bool = False,
    ) -> HeldOut:
        """The rule that the settings name: arms, deciding figure, samples, patience, and `best/` in `output_dir`.

        Args:
            config: A `GiGPOConfig`.
            tasks: Only measured on.
            unseen: The same, of families that are never trained on.
            sets: Further sets, by name.
            max_turn_tokens: Cap on one reply: the trainer's.
            max_episode_tokens: Most ids of an episode: the trainer's.
            goes_back: See the attribute.

        Raises:
            ValueError: The deciding figure is of tasks that there are none of.
        """
        arms = {Arm.SAMPLED.value: Sampling(config.held_out_temperature, max_turn_tokens, max_episode_tokens)}
        if config.held_out_greedy:
            arms[Arm.GREEDY.value] = Sampling(0.0, max_turn_tokens, max_episode_tokens)
        settings: Any = config  # seed and output_dir are TRL's
        return cls(
            tasks=tasks,
            arms=arms,
            metric=config.best_metric,
            unseen=unseen,
            sets=sets or {},
            samples=config.held_out_samples,
            seed=settings.seed,
            output_dir=Path(settings.output_dir),
            writes=is_main(),
            patience=config.patience,
            min_delta=config.min_delta,
            goes_back=goes_back,
        )

    def _measured(self) -> Iterator[tuple[str, Sampling, Sequence[Task]]]:
        """Each arm: its name, decode settings, tasks."""
        sets = ((f"{name}_", tasks) for name, tasks in self.sets.items())
        for prefix, tasks in (("", self.tasks), (UNSEEN, self.unseen), *sets):
            if tasks:
                yield from ((prefix + name, sampling, tasks) for name, sampling in self.arms.items())

    @property
    def everything(self) -> list[Task]:
        """Every task that is only measured on."""
        return [*self.tasks, *self.unseen, *chain.from_iterable(self.sets.values())]

    @property
    def episodes(self) -> int:
        """Episodes of the largest arm."""
        return max(len(tasks) for _, _, tasks in self._measured()) * self.samples

    def evaluate(self, player: Player, step: int) -> Evaluation:
        """Play every held-out task in each arm with the weights as they are, and judge."""
        done = self.measured(step)
        if done is not None:
            return done
        episodes: dict[str, list[Trajectory]] = {}
        arms: dict[str, Measurement] = {}
        for name, played, label in self._play(player, list(self._measured())):
            episodes[name] = played
            arms[name] = measure(played, label)
        before = self.measured(self.best.step) if self.best else None
        p_values = _compare(before.arms, arms) if before else {}
        arm, figure = take_apart(self.metric)
        scores = scores_of(episodes[arm], figure)
        best, lost = self._challenge(step, arms[arm], p_values.get(arm), scores)
        if best is not None and self.output_dir is not None and self.writes:
            save_best(self.output_dir, best, player.save_policy)
        # Only now: an interruption while the weights were written leaves the old best in force.
        if best is not None:
            self.best, self._best_scores, self._since_best = best, scores, 0
        elif lost is None:  # one that was lost says nothing of the weights
            self._since_best += 1
        evaluation = Evaluation(
            step, arms, _figures(arms), best is not None, p_values.get(arm), self.exhausted, p_values, self._pool, lost
        )
        self.history.append(evaluation)
        self._pool = None
        if self.on_evaluation is not None:
            self.on_evaluation(evaluation, episodes)
        return evaluation

    def measure(self, player: Player, tasks: Sequence[Task]) -> dict[str, float]:
        """Figures on tasks of the caller's, in the same arms; they choose nothing and are not kept."""
        return _figures({name: measured for name, (_, measured) in self.play(player, tasks).items()})

    def play(
        self, player: Player, tasks: Sequence[Task], prefix: str = ""
    ) -> dict[str, tuple[list[Trajectory], Measurement]]:
        """Play tasks of the caller's in the same arms: episodes and measurement of each; nothing is chosen or kept.

        Args:
            player: Holds the weights.
            tasks: What to play.
            prefix: Of the arms' names where the seeds come from; another one gives other samples.
        """
        arms = [(prefix + name, sampling, tasks) for name, sampling in self.arms.items()]
        played = self._play(player, arms)
        return {name.removeprefix(prefix): (episodes, measure(episodes, label)) for name, episodes, label in played}

    def _play(
        self, player: Player, arms: Sequence[tuple[str, Sampling, Sequence[Task]]]
    ) -> Iterator[tuple[str, list[Trajectory], str]]:
        """Play arms; yields each one's name, episodes in the order of its tasks, and decode label.

        Arms that decode in the same way are one list, and lists are played at the same time: the sandboxes of one step
        while the policy decodes for the other.
        """
        jobs = {name: self._jobs(name, sampling, tasks) for name, sampling, tasks in arms}
        samplings = list(dict.fromkeys(sampling for _, sampling, _ in arms))
        parts = [([job for n, s, _ in arms if s == sampling for job in jobs[n]], sampling) for sampling in samplings]
        results = player.rollout_together(parts)
        self.seconds += sum(result.timing.wall_seconds for result in results)
        left = {s: iter(result.trajectories) for s, result in zip(samplings, results, strict=True)}
        labels = {s: result.label for s, result in zip(samplings, results, strict=True)}
        for name, sampling, _ in arms:
            yield name, [next(left[sampling]) for _ in jobs[name]], labels[sampling]

    def _jobs(self, name: str, sampling: Sampling, tasks: Sequence[Task]) -> list[Job]:
        attempts = 1 if sampling.greedy else self.samples
        seeds = [derive_seed(self.seed, "held_out", name, i) for i in range(len(tasks))]
        return [Job(t, attempt, s) for t, s in zip(tasks, seeds, strict=True) for attempt in range(attempts)]

    def measured(self, step: int) -> Evaluation | None:
        """The evaluation after `step` optimizer steps, if there was one."""
        return next((e for e in self.history if e.step == step), None)

    @property
    def exhausted(self) -> bool:
        """Patience is spent."""
        return self.patience is not None and self._since_best >= self.patience > 0

    def saw_pool(self, step: int, episodes: Sequence[Trajectory]) -> None:
        """Note training episodes of optimizer step `step` (counted from 1), to be shown beside the next evaluation."""
        graded = [episode for episode in episodes if is_graded(episode)]
        passed = sum(bool(episode.passed) for episode in graded)
        past = self._pool or PoolRate(0, 0, step, step)
        excluded = past.excluded + len(episodes) - len(graded)
        self._pool = PoolRate(past.passed + passed, past.graded + len(graded), past.first, step, excluded)

    def _challenge(
        self, step: int, m: Measurement, p_value: float | None, scores: Scores
    ) -> tuple[Best | None, str | None]:
        """The new best, if it is one; and why the evaluation decides nothing, if it does not.

        Weights are compared on the attempts that were graded for both, or what the infrastructure lost would choose.
        """
        value: float | None = getattr(m, take_apart(self.metric).figure)
        if value is None:
            return None, f"held-out at step {step}: nothing was graded, so it decides nothing and costs no patience."
        reason = "first measurement" if not self.history else "first measurement of which enough was graded"
        if self.best is None:
            if m.graded < FIRST_COVERAGE * m.n:
                return None, (
                    f"held-out at step {step}: only {m.graded} of {m.n} episodes were graded, fewer than "
                    f"{FIRST_COVERAGE:.0%}, so it decides nothing and costs no patience. {DOCTOR}"
                )
        else:
            again = played_again(self._best_scores, scores)
            known, pairs = len(again), [(score, other) for score, other in again if other is not None]
            if len(pairs) < COVERAGE * known or not pairs:
                return None, (
                    f"held-out at step {step}: of the {known} episodes graded at the best step {self.best.step} only "
                    f"{len(pairs)} were graded again, fewer than {COVERAGE:.0%}, so it decides nothing and costs no "
                    f"patience. {DOCTOR}"
                )
            before, now = (fmean(side) for side in zip(*pairs, strict=True))
            if now <= before + self.min_delta:
                return None, None
            same = len(pairs) == known == m.graded
            reason = (
                f"{now:.4f} beats {before:.4f} at step {self.best.step}"
                f"{'' if same else f' on the {len(pairs)} episodes graded for both'} (paired p of the passes: "
                f"{'unknown' if p_value is None else f'{p_value:.2g}'})"
            )
        best = Best(
            step,
            value,
            self.metric,
            reason,
            m.passed,
            m.graded,
            m.tasks,
            m.low,
            m.high,
            p_value,
            m.sampling,
            m.infrastructure,
        )
        return best, None

    # -- resume -------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Best, patience and history, JSON-able: part of every checkpoint."""
        return {
            "best": asdict(self.best) if self.best else None,
            "best_scores": self._best_scores,
            "since_best": self._since_best,
            "pool": asdict(self._pool) if self._pool else None,
            "history": [asdict(e) for e in self.history],
            "manner": self._manner,
        }

    @property
    def _manner(self) -> dict[str, Any]:
        """What makes figures of two steps comparable, by the names of settings and arms."""
        return {"seed": self.seed, **{name: sampling.label() for name, sampling in self.arms.items()}}

    def check(self, state: dict[str, Any]) -> None:
        """Whether this rule can go on from the state of a checkpoint; changes nothing.

        Raises:
            BestLostError: Its best weights are gone.
            ConfigError: Another figure chose its best, or its episodes were decoded in another way.
        """
        best = Best(**state["best"]) if state["best"] else None
        if best is None:
            return
        if best.metric != self.metric:
            raise ConfigError(
                f"best_metric={self.metric!r}: the run to resume chose its best by {best.metric!r}. Resume with "
                "that one, or start in another output_dir."
            )
        was: dict[str, Any] = state.get("manner", {})
        other = [f"{name} {now} (was {was[name]})" for name, now in self._manner.items() if was.get(name, now) != now]
        if other:
            raise ConfigError(
                f"held-out: the run to resume measured its best in another way, so nothing can be compared with it: "
                f"{'; '.join(other)}. Resume with what it had, or start in another output_dir."
            )
        if self.output_dir is not None and self.writes and not self.goes_back:
            check_kept(self.output_dir, best)

    def remake(self, player: Player, state: dict[str, Any], *, listed: bool) -> None:
        """Before the weights of a checkpoint are loaded: write its best again, if that was asked for and it is gone.

        Args:
            player: Has the weights that the run started from.
            state: Of the checkpoint.
            listed: The checkpoint counts on a list of the best's files.
        """
        if self.goes_back and self.output_dir is not None and self.writes and state["best"]:
            best = Best(**state["best"])
            remake(self.output_dir, best, player.save_policy, listed=listed)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint.

        Raises:
            BestLostError: See `check`.
            ConfigError: See `check`.
        """
        self.check(state)
        self.best = Best(**state["best"]) if state["best"] else None
        self._best_scores = state["best_scores"]
        self._since_best = state["since_best"]
        self._pool = PoolRate(**state["pool"]) if state["pool"] else None
        self.history = [
            Evaluation(
                **{
                    **e,
                    "arms": {k: Measurement.from_json(m) for k, m in e["arms"].items()},
                    "pool": PoolRate(**e["pool"]) if e["pool"] else None,
                }
            )
            for e in state["history"]
        ]
        if self.output_dir is not None and self.writes:
            go_back(self.output_dir, self.best)

    def checkpoint_begun(self) -> None:
        """The next checkpoint will count on the files of the present best: they are listed."""
        if self.output_dir is not None and self.writes:
            list_files(self.output_dir)

    def checkpoint_written(self) -> None:
        """The newest checkpoint points to the present best: the one before it is no longer needed."""
        if self.output_dir is not None and self.writes:
            forget_old(self.output_dir)


def scores_of(episodes: Sequence[Trajectory], figure: Figure) -> Scores:
    """The figure of every episode, of which the measurement's is the mean."""
    read = {Figure.PASS_RATE: "passed", Figure.ASSERTION_RATE: "rate", Figure.REWARD: "reward"}[figure]
    out: Scores = {}
    for episode in episodes:
        score = getattr(episode, read) if is_graded(episode) else None
        out.setdefault(episode.task_id, []).append(None if score is None else float(score))
    return out


def played_again(first: Scores, second: Scores) -> list[tuple[float, float | None]]:
    """Each score of the first, with that of the same attempt in the second; attempts of only one are left out."""
    pairs = (pair for task in first for pair in zip(first[task], second.get(task, ()), strict=False))
    return [(score, other) for score, other in pairs if score is not None]


def _compare(before: dict[str, Measurement], now: dict[str, Measurement]) -> dict[str, float]:
    """Paired p-value of each arm that both have."""
    return {n: paired_test(before[n].outcomes, m.outcomes).p_value for n, m in now.items() if n in before}


def _figures(arms: dict[str, Measurement]) -> dict[str, float]:
    """The figures of an evaluation under the names of the logs."""
    out = {}
    for name, m in arms.items():
        for key in ("pass_rate", "pass_min", "assertion_rate", "reward", "mean_turns", "submitted"):
            if (number := getattr(m, key)) is not None:
                out[f"{name}_{key}"] = float(number)
        out[f"{name}_infrastructure"] = float(m.infrastructure)
    return out
