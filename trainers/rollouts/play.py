"""`Rollouts`: who acts, what is played, and which of it becomes the rows of a generation batch.

The trainer holds the weights; `Rollouts` holds the sampler around them, the engine with its environments, and the rules
that turn the rows of a generation batch into played episodes.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from functools import partial
from statistics import fmean
from typing import Any

from gymnasium import Env

from agents.models.card import ModelCard
from agents.policy import Policy, Request, Sampling
from agents.rollout import Job, RolloutEngine, RolloutMode, RolloutResult, RolloutState
from agents.rollout.episode import Waiting
from agents.rollout.progress import Timing
from agents.seeds import derive_seed, find_duplicates
from agents.t2po import T2PO
from tasks.task import Task
from trainers.rollouts.curriculum import RulesError
from trainers.rollouts.manner import card_of_env
from trainers.rollouts.overlap import Ahead
from trainers.rollouts.partial import NO_RESUME, PARTIAL, Done, PartialBatches
from trainers.rollouts.rules import FIRST_DRAW, TRAINED, Draw, Fates, Group, Played, Rules, as_completion, other_tasks
from trainers.rollouts.samplers import Sampler

log = logging.getLogger(__name__)


class Rollouts:
    """Plays episodes with the weights as they are.

    Args:
        sampler: Makes the sampler at first use, T2PO wrapper included.
        make_env: Opens one environment; called once per slot.
        pool: Tasks by id.
        group_size: K.
        temperature: Of the samples that are trained on.
        seed: Of the run.
        slots: Episodes in flight at a time.
        workers: Threads that step environments.
        ahead: Tasks laid out while the policy decodes.
        max_turn_tokens: Cap on one reply.
        max_episode_tokens: Most ids of an episode; `None` is no budget.
        step: Optimizer steps taken until now; a sampler that copies or publishes the weights goes by it.
        rules: Which attempts are made; default: one per row.
        mode: In which order episodes take their turns.
        on_round: Called now and then in a rollout with its name (`rollout` or `held-out`) and how far it is; from
            another thread where a generation is sampled ahead.

    Attributes:
        hidden_seconds: How long episodes were played while the caller did something else, in all.
        aside_seconds: How long they were played outside of calls of `play`, in all: hidden, or while a measurement
            waited for them.
    """

    def __init__(
        self,
        sampler: Callable[[], Sampler],
        make_env: Callable[[], Env[str, str]],
        pool: dict[str, Task],
        *,
        group_size: int,
        temperature: float,
        seed: int,
        slots: int,
        workers: int,
        ahead: int,
        max_turn_tokens: int,
        max_episode_tokens: int | None = None,
        step: Callable[[], int] = lambda: 0,
        rules: Rules | None = None,
        mode: RolloutMode = RolloutMode.AUTO,
        on_round: Callable[[str, RolloutState], None] | None = None,
    ) -> None:
        self._make_sampler, self._make_env, self.pool = sampler, make_env, pool
        self._group_size, self._seed = group_size, seed
        self.sampling = Sampling(temperature, max_turn_tokens, max_episode_tokens)
        self._slots, self._workers, self._ahead, self._mode = slots, workers, ahead, mode
        self.rules, self._step = rules or Rules(), step
        self._on_round = on_round
        self.phase = "rollout"
        """What was begun last, as `on_round` names it."""
        self._sampler: Sampler | None = None
        self._engine: RolloutEngine | None = None
        self._pending: Ahead | None = None
        self._before: dict[str, Any] | None = None
        """T2PO's state before what is sampled ahead."""
        self._finished: RolloutResult | None = None
        """Groups that were played to their end for a measurement: their time is that of the next generation."""
        self.hidden_seconds = self.aside_seconds = 0.0

    @property
    def sampler(self) -> Sampler:
        """Who acts, and what it needs around a rollout."""
        if self._sampler is None:
            self._sampler = self._make_sampler()
        return self._sampler

    @property
    def policy(self) -> Policy:
        """Who acts."""
        return self.sampler.policy

    @property
    def engine(self) -> RolloutEngine:
        """Plays episodes; made at first use, closed by `close`."""
        if self._engine is None:
            self._engine = RolloutEngine(
                self.policy,
                self._make_env,
                slots=self._slots,
                workers=self._workers,
                ahead=self._ahead,
                mode=self._mode,
            )
        return self._engine

    def card(self) -> ModelCard | None:
        """How the environments speak to the policy, of one more that is opened and closed; `None` for foreign ones."""
        env = self._make_env()
        try:
            return card_of_env(env, self.sampling.max_tokens, max_episode_tokens=self.sampling.max_episode_tokens)
        finally:
            env.close()

    @property
    def exact(self) -> bool:
        """True when log-probabilities are those of the weights being trained, so that the first ratio is 1."""
        return self.sampler.exact

    def try_sampler(self) -> None:
        """Have the sampler give one id at the temperature of training, so that one that cannot is found before a run.

        Raises:
            PolicyError: It cannot; the message says what to do.
        """
        self.renew()
        policy = self.policy.policy if isinstance(self.policy, T2PO) else self.policy
        request = Request("a try", policy.tokenizer.encode("ready"), seed=self._seed, max_tokens=1)
        with self.sampler.within():
            policy.complete([request], self.sampling)
            policy.forget([request.conversation])

    def renew(self) -> None:
        """Sample with the weights of now from here on. What is sampled ahead is waited for: it has weights of its own.

        Raises:
            PolicyError: The sampler cannot take them over.
        """
        if self._pending is not None:
            self._pending.wait()
        self.sampler.update(self._step())

    def run(
        self,
        jobs: Sequence[Job],
        sampling: Sampling,
        *,
        training: bool,
        enough: Callable[[Done], bool] | None = None,
    ) -> RolloutResult:
        """Play `jobs`: to measure the weights of now, or for `play`, with those that were taken over last.

        In a measurement T2PO keeps its turn cap only, unless asked. Groups that were carried on are played to their end
        before it. `enough`: see `RolloutEngine.run`.
        """
        with nullcontext() if training else self._measuring(), self.sampler.within():
            watch = self._watch("rollout" if training else "held-out")
            return self.engine.run(jobs, sampling, on_round=watch, enough=enough)

    def run_together(self, parts: Sequence[tuple[Sequence[Job], Sampling]]) -> list[RolloutResult]:
        """Play several lists of episodes of a measurement at the same time (see `RolloutEngine.run_together`).

        Where there are fewer slots than lists, one after the other.
        """
        if len(parts) > self._slots:
            return [self.run(jobs, sampling, training=False) for jobs, sampling in parts]
        with self._measuring(), self.sampler.within():
            return self.engine.run_together(parts, on_round=self._watch("held-out"))

    @contextmanager
    def _measuring(self) -> Iterator[None]:
        """A measurement is of the weights of now, of a policy that measures, in environments that nobody else needs."""
        self.renew()
        self._finish_carried()
        with self.policy.evaluation() if isinstance(self.policy, T2PO) else nullcontext():
            yield

    def _watch(self, what: str) -> Callable[[RolloutState], None] | None:
        self.phase = what
        return partial(self._on_round, what) if self._on_round else None

    def waiting(self) -> list[Waiting]:
        """See `RolloutEngine.waiting`; none before the first episode."""
        return [] if self._engine is None else self._engine.waiting()

    # -- one generation, with the weights of now or sampled ahead -------------------------------------------------

    def play(self, draw: Draw, *, end_id: int) -> Played:
        """One episode per row: what was sampled ahead of them (`begin`), or played now with the weights of now.

        Args:
            draw: The rows.
            end_id: Stands in where an episode sampled nothing (TRL needs one token).

        Raises:
            RuntimeError: Other rows were sampled ahead.
            BaseException: What playing them ahead failed with.
        """
        if self._pending is not None:
            clock = time.perf_counter()
            played = self._take(draw)
            waited = time.perf_counter() - clock
            self.hidden_seconds += played.hidden_seconds
            self.aside_seconds += max(0.0, played.result.timing.wall_seconds - waited)
        else:
            self.renew()
            played = self._play(draw, self._task_ids(draw), end_id)
        if self.rules.curriculum is not None:
            self.rules.curriculum.drawn(self.rules.groups_per_draw)
            played.metrics["rollouts/curriculum_laps"] = self.rules.curriculum.position / len(
                self.rules.curriculum.order
            )
        return played

    def lay_out(self, draw: Draw) -> None:
        """Begin to lay out the first tasks of the rows to come, in the background (see `RolloutEngine.prepare`).

        Not where it is decided later which attempts are played first.
        """
        if not self.rules.choose and self.rules.partial is None:
            self.engine.prepare(self._jobs(draw, self._task_ids(draw)))

    def begin(self, draw: Draw, *, end_id: int) -> None:
        """Begin to sample the rows of the generation to come, with the weights of now, in a thread of its own.

        The next `play` must be of these rows. Until it is over nothing else is played: a measurement waits for it.

        Args:
            draw: The rows; the weights of now are its `version`.
            end_id: See `play`.

        Raises:
            PolicyError: The sampler cannot take over the weights of now.
        """
        assert self._pending is None
        self.renew()
        self._before = self.policy.state_dict() if isinstance(self.policy, T2PO) else None
        _ = self.engine  # made by this thread, which outlives the other
        self._pending = Ahead(draw, partial(self._play, draw, self._task_ids(draw), end_id))

    def _take(self, draw: Draw) -> Played:
        ahead = self._pending
        assert ahead is not None
        ahead.wait()  # Ctrl-C meanwhile leaves it where `close` finds it
        self._pending = None
        played = ahead.take()
        if replace(ahead.draw, version=draw.version, later=draw.later) != draw:
            raise RuntimeError(
                f"what was sampled ahead for micro-step {ahead.draw.micro_step} are other tasks than those that the "
                f"data loader gives at micro-step {draw.micro_step}: their order is no function of seed and epoch any "
                "more. Leave overlap off with a data loader of your own."
            )
        return played

    def discard(self) -> None:
        """Before a checkpoint: forget what is sampled ahead, so that this run goes on as one that is resumed there.

        It is waited for. What it failed with, if it did, is raised by the next `play`. With partial batches nothing is
        forgotten: no run is resumed with them.
        """
        ahead = self._pending
        if ahead is not None:
            ahead.wait()
        if ahead is not None and self.rules.partial is None:
            self._pending = ahead if ahead.failure is not None else None
            self._restore()

    def drop(self) -> None:
        """Training is over: end what is sampled ahead, which nobody needs any more."""
        ahead, self._pending = self._pending, None
        if ahead is not None:
            self._end(ahead, self.engine.close)
            self._restore()
        if self.rules.partial is not None and self.rules.partial.groups:
            self.rules.partial.clear()
            self.engine.close()

    def _end(self, ahead: Ahead, stop: Callable[[], None]) -> None:
        failed = ahead.failure if ahead.over else None
        ahead.end(stop)
        if failed is not None:  # and nobody asked for it: it must not be lost
            log.warning("a generation that was sampled ahead, and is not needed any more, failed", exc_info=failed)

    def _restore(self) -> None:
        """T2PO's calibration and counts are those of what was learned on, as in a run that is resumed here."""
        if self._before is not None and isinstance(self.policy, T2PO):
            self.policy.load_state_dict(self._before)
        self._before = None

    def _play(self, draw: Draw, task_ids: Sequence[str], end_id: int) -> Played:
        """The episodes of the rows; but for partial batches changes nothing that a later generation reads."""
        if self.rules.choose:
            return self._play_groups(draw, task_ids, end_id)
        if self.rules.partial is not None:
            return self._play_partial(self.rules.partial, draw, task_ids, end_id)
        result = self.run(self._jobs(draw, task_ids), self.sampling, training=True)
        episodes = result.trajectories
        flats = [as_completion(e, end_id) for e in episodes]
        return Played(episodes, flats, result, {}, result, draw.version)

    def _jobs(self, draw: Draw, task_ids: Sequence[str]) -> list[Job]:
        """One per row."""
        jobs = []
        for i, task_id in enumerate(task_ids):
            group, attempt = divmod(draw.offset + i, self._group_size)
            jobs.append(Job(self.pool[task_id], attempt, derive_seed(*self._seed_of(draw, group), attempt)))
        return jobs

    def _task_ids(self, draw: Draw) -> list[str]:
        """The task of each row, those of the later draw behind them."""
        rows = [*draw.task_ids, *(draw.later.task_ids if draw.later else ())]
        curriculum = self.rules.curriculum
        if curriculum is None:
            return rows
        return [curriculum.task_id((draw.offset + i) // self._group_size) for i in range(len(rows))]

    def _seed_of(self, draw: Draw, group: int) -> tuple[int | str, ...]:
        return (self._seed, "train", draw.micro_step, group)

    # -- partial batches ------------------------------------------------------------------------------------------

    def _play_partial(self, partial: PartialBatches, draw: Draw, task_ids: Sequence[str], end_id: int) -> Played:
        """As many groups as the rows are: the first that are complete."""
        rows, k = len(draw.task_ids), self._group_size
        jobs = self._jobs(draw, task_ids[:rows])
        later = self._jobs(draw.later, task_ids[rows:]) if draw.later is not None else []
        now, then = ([some[i : i + k] for i in range(0, len(some), k)] for some in (jobs, later))
        taken, result, carried = partial.generation(self._play_on, now, then, draw.version)
        episodes = [group.episodes[job.attempt] for group in taken for job in group.jobs]
        result = RolloutResult(episodes, result.timing, result.retries, find_duplicates(episodes))
        if self._finished is not None:
            _add(result, self._finished)
            self._finished = None
        flats = [as_completion(e, end_id) for e in episodes]
        metrics = {"rollouts/carried_groups": float(carried)}
        versions = [group.version for group in taken for _ in group.jobs]
        return Played(episodes, flats, result, metrics, result, draw.version, versions=versions)

    def _play_on(self, jobs: Sequence[Job], enough: Callable[[Done], bool] | None) -> RolloutResult:
        return self.run(jobs, self.sampling, training=True, enough=enough)

    def _finish_carried(self) -> None:
        """Before a measurement, which needs the environments."""
        if self.rules.partial is not None and any(not group.complete for group in self.rules.partial.groups):
            self._finished = self.rules.partial.finish(self._play_on)

    # -- rules that play more than is trained on ------------------------------------------------------------------

    def _play_groups(self, draw: Draw, task_ids: Sequence[str], end_id: int) -> Played:
        """Whole groups: attempts until both outcomes were seen, other tasks for flat groups, as the rules say."""
        k, number = self._group_size, draw.offset // self._group_size
        first = [
            Group(self.pool[task_ids[row]], self._seed_of(draw, number + row // k))
            for row in range(0, len(task_ids), k)
        ]
        played = RolloutResult([], Timing())
        self._attempt(first, played)
        kept, tried, metrics = list(first), list(first), dict[str, float]()
        if self.rules.refill_rounds:
            metrics |= self._refill(draw, kept, tried, played)
        played.trajectories = [episode for group in tried for episode in group.episodes]
        played.duplicates = find_duplicates(played.trajectories)
        head = [episode for group in first for episode in group.episodes[:k]]
        trained = [episode for group in kept for episode in group.trained]
        for some, note in ((head, FIRST_DRAW), (trained, TRAINED)):
            marked = set(map(id, some))
            for episode in played.trajectories:
                episode.notes[note] = id(episode) in marked
        if self.rules.adaptive is not None:
            metrics["rollouts/attempts_per_task"] = fmean(len(group.episodes) for group in tried)
            metrics["rollouts/both_kinds_frac"] = fmean(group.both for group in tried)
        metrics |= Fates.of(tried, kept).metrics()
        measured = RolloutResult(head, played.timing, played.retries, find_duplicates(head))
        return Played(trained, [as_completion(e, end_id) for e in trained], played, metrics, measured, draw.version)

    def _attempt(self, groups: Sequence[Group], played: RolloutResult) -> None:
        """K attempts at each task, and more where the rule asks for them; all groups side by side."""
        adaptive = self.rules.adaptive
        wanted = [(group, self._group_size) for group in groups]
        while wanted:
            jobs = [job for group, count in wanted for job in group.jobs(count)]
            result = self.run(jobs, self.sampling, training=True)
            episodes = iter(result.trajectories)
            for group, count in wanted:
                group.episodes += [next(episodes) for _ in range(count)]
            _add(played, result)
            more = [(group, adaptive.more(group.outcomes)) for group in groups] if adaptive else []
            wanted = [(group, count) for group, count in more if count]
        for group in groups:
            group.choose(self._group_size, adaptive)

    def _refill(self, draw: Draw, kept: list[Group], tried: list[Group], played: RolloutResult) -> dict[str, float]:
        """Put groups of other tasks where groups are flat; `kept` and `tried` change. What stays flat, stays."""
        weightless = self.rules.weightless
        assert weightless is not None
        ids = set(self.rules.curriculum.order) if self.rules.curriculum else set(self.pool)
        flat = [place for place, group in enumerate(kept) if weightless(group.trained)]
        number = draw.offset // self._group_size
        for turn in range(self.rules.refill_rounds):
            used = {group.task.id for group in tried}
            others = other_tasks(ids, used, len(flat), *self._seed_of(draw, number), "refill", turn)
            if not others:
                break
            places = flat[: len(others)]
            fresh = [
                Group(self.pool[name], (*self._seed_of(draw, number + place), "refill", turn))
                for place, name in zip(places, others, strict=True)
            ]
            self._attempt(fresh, played)
            tried += fresh
            for place, group in zip(places, fresh, strict=True):
                if not weightless(group.trained):
                    kept[place] = group
                    flat.remove(place)
        dropped = [group for group in tried if not any(group is other for other in kept)]
        return {
            "rollouts/dropped_groups": float(len(dropped)),
            "rollouts/dropped_all_pass": float(sum(set(group.outcomes) == {True} for group in dropped)),
            "rollouts/dropped_all_fail": float(sum(set(group.outcomes) == {False} for group in dropped)),
            "rollouts/flat_groups_left": float(len(flat)),
        }

    # -- state ----------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """State of the rules that choose, JSON-able: part of every checkpoint."""
        state: dict[str, Any] = {}
        if self.rules.curriculum is not None:
            state["curriculum"] = self.rules.curriculum.state_dict()
        if self.rules.partial is not None:
            state[PARTIAL] = self.rules.partial.early
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint.

        Raises:
            RulesError: The run began with another curriculum, or with none; or partial batches are on, or were.
        """
        if self.rules.partial is not None or PARTIAL in state:
            raise RulesError(NO_RESUME)
        began = state.get("curriculum")
        if (self.rules.curriculum is None) != (began is None):
            raise RulesError(
                f"curriculum: this run began {'without' if began is None else 'with'} one. Go on as it began, or begin "
                "a new run"
            )
        if self.rules.curriculum is not None and began is not None:
            self.rules.curriculum.load_state_dict(began)

    def close(self) -> None:
        """End the environments and their sandboxes, and what the sampler holds elsewhere. Idempotent.

        What is sampled ahead ends, too: calls to a server are hung up, replies that are decoded here come to their end.
        """
        ahead, self._pending = self._pending, None
        try:
            if ahead is not None:
                self._end(ahead, self._close_all)
        finally:
            self._close_all()
            self._engine = None
            if self.rules.partial is not None:
                self.rules.partial.clear()

    def _close_all(self) -> None:
        if self._engine is not None:
            self._engine.close()
        if self._sampler is not None:
            self._sampler.close()


def _add(total: RolloutResult, more: RolloutResult) -> None:
    """Add the times and retries of another call."""
    for part in fields(Timing):
        setattr(total.timing, part.name, getattr(total.timing, part.name) + getattr(more.timing, part.name))
    total.retries += more.retries
