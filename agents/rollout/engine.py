"""Lockstep rollouts: many episodes at once, one batched call of the policy per turn, environments in parallel threads.

Every round samples one reply for each live episode, then steps all their environments together and waits for all of
them. Which episodes share a batch therefore depends on the jobs and the slots only, never on which thread was faster,
and each reply's seed depends on its job and turn only. A slot whose episode ends takes the next job in the same round;
while the policy decodes, the tasks of the next jobs in line are laid out, so that it need not wait for that.

The two clocks that matter are told apart: `model_seconds` is time inside the policy, `sandbox_seconds` time in which
the engine had nothing to do but wait for environments; the rest is our own overhead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from gymnasium import Env

from agents.chat import ChatTemplate
from agents.policy import (
    Completion,
    Policy,
    PolicyError,
    PromptTooLong,
    Request,
    Sampling,
    SomeFailed,
    TaskAware,
    abilities,
    decode_label,
)
from agents.rollout.episode import Environments, Episode, Job, Step
from agents.rollout.progress import RolloutState, Timing
from agents.seeds import Duplicates, find_duplicates
from agents.trajectory import Trajectory
from envs.conversation import StopReason
from sandboxes.sandbox import SandboxError
from sandboxes.transport import uninterrupted
from tasks.assertions.grade import GradeError

RETRIES = 1
"""How often a job starts over after the machinery failed."""
CLOSED = "the rollout engine was closed by another thread while it played; only episodes that were over are complete"


@dataclass(slots=True)
class RolloutResult:
    """What a call played.

    Attributes:
        trajectories: One per job, in the jobs' order.
        timing: Where the time went.
        retries: Jobs that started over because the machinery failed.
        duplicates: Attempts that came out the same; `None` for greedy decoding, where they must.
    """

    trajectories: list[Trajectory]
    timing: Timing
    retries: int = 0
    duplicates: Duplicates | None = None

    @property
    def label(self) -> str:
        """The decode settings that were at work, for tables; one call has one."""
        return self.trajectories[0].sampling if self.trajectories else ""


@dataclass(slots=True)
class _Run:
    """One call while it runs."""

    jobs: Sequence[Job]
    sampling: Sampling
    on_episode: Callable[[Trajectory], None] | None
    on_round: Callable[[RolloutState], None] | None
    done: list[Trajectory | None]
    begin: float
    label: str
    own_ids: bool
    asked: Sampling
    """As requests ask for: with the policy's own cap on a reply."""
    slots: int
    ahead: int
    lane: int = 0
    live: dict[int, Episode] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    calls: dict[int, Future[Step]] = field(default_factory=dict)
    """What the environments are doing for it."""
    stepping: bool = False
    """In the middle of a round: the policy has answered, and the environments have not been waited for."""
    spent: float = 0.0
    """Seconds of the engine's thread."""
    next: int = 0
    ended: int = 0
    lost: int = 0
    timing: Timing = field(default_factory=Timing)
    retries: int = 0

    @property
    def seconds(self) -> float:
        """Since the call began."""
        return time.perf_counter() - self.begin

    def state(self) -> RolloutState:
        """For those who watch."""
        tokens = self.timing.sampled_tokens if self.own_ids else None
        return RolloutState(
            self.ended, len(self.jobs), self.timing.turns, tokens, self.seconds, self.lost, self.retries
        )


class RolloutEngine:
    """Plays jobs with a policy.

    One environment is made at once, so that one that cannot be played is refused here; the others and threads are made
    at first use. All are kept between calls; `close` ends them.

    Args:
        policy: Who acts.
        make_env: Makes one environment: a `ConversationEnv`, or what `gymnasium.make` returns (`envs.wrapping` says
            which wrappers compose); called `slots + ahead` times at most. A pool of sandboxes that they share has as
            many.
        slots: Episodes played at once.
        workers: Threads that step environments.
        ahead: Tasks laid out before a slot is free for them, while the policy decodes; batches do not depend on it. It
            needs as many more sandboxes, and a pool that is too small for it is waited for in vain.
        max_context: Longest conversation, in ids, replies included; default: the policy's own `max_context`, if any.
        template: The tokenizer's chat template, taken apart; default: made here.

    Raises:
        ValueError: A number is too small, or a wrapper around the environment breaks what must hold.
    """

    def __init__(
        self,
        policy: Policy,
        make_env: Callable[[], Env[str, str]],
        *,
        slots: int,
        workers: int,
        ahead: int = 0,
        max_context: int | None = None,
        template: ChatTemplate | None = None,
    ) -> None:
        if slots < 1 or workers < 1:
            raise ValueError(f"slots is {slots} and workers is {workers}: both must be at least 1")
        if ahead < 0:
            raise ValueError(f"ahead is {ahead}: give the number of tasks laid out ahead, or 0")
        self.policy = policy
        self.slots, self.ahead = slots, ahead
        self.max_context = max_context if max_context is not None else getattr(policy, "max_context", None)
        self.template = template or ChatTemplate(policy.tokenizer, policy.eos_ids)
        self._raw_template: ChatTemplate | None = None
        self._environments = Environments(make_env, slots + ahead, workers)
        self._playing: int | None = None
        """Thread of the `run` under way."""
        self._stopped = False
        """Another thread has closed the engine under it."""

    def run(
        self,
        jobs: Sequence[Job],
        sampling: Sampling,
        *,
        on_episode: Callable[[Trajectory], None] | None = None,
        on_round: Callable[[RolloutState], None] | None = None,
    ) -> RolloutResult:
        """Play every job once; see `run_together`.

        Args:
            jobs: What to play.
            sampling: Decode settings.
            on_episode: Called with each trajectory as it ends (in a deterministic order).
            on_round: Called after each round, for those who watch (see `agents.rollout.progress`).

        Returns:
            Trajectories in the order of the jobs.
        """
        (result,) = self.run_together([(jobs, sampling)], on_episode=on_episode, on_round=on_round)
        return result

    def run_together(
        self,
        parts: Sequence[tuple[Sequence[Job], Sampling]],
        *,
        on_episode: Callable[[Trajectory], None] | None = None,
        on_round: Callable[[RolloutState], None] | None = None,
    ) -> list[RolloutResult]:
        """Play the jobs of each part once; parts take turns at the policy.

        While the policy decodes for one part, the environments of the others step: with two parts it need not wait for
        sandboxes that are faster than it is. Parts share the slots evenly. Turns are taken in a fixed order, so which
        episodes share a batch still depends on jobs and slots alone.

        After any exception, Ctrl-C among them, the environments are closed and no call of theirs goes on; what was
        finished has reached `on_episode`. A later call makes new ones.

        Args:
            parts: Jobs, and how to decode them; not more parts than slots.
            on_episode: Called with each trajectory as it ends (in a deterministic order).
            on_round: Called after each round, for those who watch (see `agents.rollout.progress`).

        Returns:
            One result per part: trajectories in the order of the jobs. Where the machinery failed twice, the trajectory
            has stop reason `infrastructure`, no reward, and `error` says what failed. The wall time of a part is the
            time spent on it, so that the parts' sum is the time of the call.

        Raises:
            PolicyError: The policy failed. Before, every episode that had begun and not ended went to `on_episode` as
                `infrastructure`. (Where it fails some requests only, their episodes end so, and the others go on.)
            RuntimeError: Another thread closed the engine meanwhile.
            ValueError: There are more parts than slots.
        """
        if len(parts) > self.slots:
            raise ValueError(f"{len(parts)} parts at the same time need as many slots, and there are {self.slots}")
        begin, own_ids = time.perf_counter(), abilities(self.policy).own_ids
        runs = [
            _Run(
                jobs, sampling, on_episode, on_round, [None] * len(jobs), begin, decode_label(self.policy, sampling),
                own_ids, capped(self.policy, sampling), _share(self.slots, len(parts), lane),
                _share(self.ahead, len(parts), lane), lane,
            )
            for lane, (jobs, sampling) in enumerate(parts)
        ]  # fmt: skip
        self._playing, self._stopped = threading.get_ident(), False
        try:
            self._play(runs)
        except BaseException as error:
            self._close_after(error)
            if self._stopped and isinstance(error, Exception):
                raise RuntimeError(CLOSED) from error
            raise
        finally:
            self._playing = None
        return [self._result(run) for run in runs]

    def _result(self, run: _Run) -> RolloutResult:
        played = [trajectory for trajectory in run.done if trajectory is not None]
        duplicates = None if run.sampling.greedy else find_duplicates(played)
        run.timing.wall_seconds = run.spent
        return RolloutResult(played, run.timing, run.retries, duplicates)

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Begin to lay out the first tasks of the next `run`, in the background; for the time in which weights change.

        A `run` with jobs that begin the same takes them over; any other one waits until they are laid out, and drops
        them. The results are the same in every case. After any exception the environments are closed, as in `run`.
        """
        try:
            self._environments.expect(jobs)
            self._environments.open_ahead(jobs[: self._environments.count])
        except BaseException as error:
            self._close_after(error)
            raise

    def close(self) -> None:
        """End environments and threads, also calls under way. Idempotent; a later `run` makes new ones.

        Ctrl-C meanwhile is raised at the end. From another thread it ends the `run` under way, which raises.
        """
        if self._playing not in (None, threading.get_ident()):
            self._stopped = True
        uninterrupted(self._environments.close)

    def _close_after(self, error: BaseException) -> None:
        """Close for an error, which is the one to raise whatever else goes wrong."""
        try:
            self.close()
        except Exception as other:
            error.add_note(f"and something could not be closed: {type(other).__name__}: {other}")

    def _check(self) -> None:
        if self._stopped:
            raise RuntimeError(CLOSED)

    def __enter__(self) -> RolloutEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- one round ----------------------------------------------------------------------------------------------------

    def _play(self, runs: Sequence[_Run]) -> None:
        try:
            clock = time.perf_counter()
            for run in runs:
                self._environments.expect(run.jobs, run.lane, run.slots + run.ahead)
                run.timing.sandbox_seconds = time.perf_counter() - clock
                self._refill(run)
                clock = self._spent(run, clock)
            while any(run.live or run.stepping for run in runs):
                for run in runs:
                    if run.stepping:
                        self._answered(run)
                    if run.live:
                        self._environments.open_ahead(run.jobs[run.next : run.next + run.ahead], run.lane)
                        self._ask_and_step(run)
                    clock = self._spent(run, clock)
        except PolicyError as error:
            for run in runs:
                for slot, episode in list(run.live.items()):
                    episode.broken(error)
                    self._end(run, slot)
            raise
        finally:
            self.policy.forget([episode.name for run in runs for episode in run.live.values()])

    def _spent(self, run: _Run, since: float) -> float:
        """Count the time since `since` as the run's; returns now."""
        now = time.perf_counter()
        run.spent += now - since
        return now

    def _ask_and_step(self, run: _Run) -> None:
        """One reply of every live episode; their environments begin to step."""
        wanted: dict[int, Request | None] = {}
        for slot, episode in list(run.live.items()):
            try:
                wanted[slot] = episode.request(run.asked, self.max_context)
            except PolicyError as error:  # its first prompt is too long: the others go on
                episode.broken(error)
                self._end(run, slot)
        asking = {slot: request for slot, request in wanted.items() if request is not None}
        texts: dict[int, str] = {}
        if asking:
            clock = time.perf_counter()
            answers = self._ask(list(asking.values()), run.sampling)
            seconds = time.perf_counter() - clock
            run.timing.model_seconds += seconds
            for slot, answer in zip(asking, answers, strict=True):
                if isinstance(answer, Completion):
                    run.timing.sampled_tokens += len(answer.ids) + sum(len(c.ids) for c in answer.candidates)
                    texts[slot] = run.live[slot].replied(answer, seconds / len(asking))
                elif not isinstance(answer, PromptTooLong):
                    run.live[slot].broken(answer)
                    self._end(run, slot)
            run.timing.turns += len(texts)
        self._check()  # before anything is made anew
        run.texts, run.stepping = texts, True
        for slot, episode in run.live.items():
            call = (
                partial(episode.step, texts[slot]) if slot in texts else partial(episode.finish, StopReason.MAX_TOKENS)
            )
            run.calls[slot] = self._environments.submit(episode.env, call)

    def _answered(self, run: _Run) -> None:
        """What the environments answer; then the free slots take new jobs."""
        again: list[int] = []
        calls, run.calls, run.stepping = run.calls, {}, False
        for slot, step in self._together(run, calls):
            episode = run.live[slot]
            if not isinstance(step, Step):
                self._failed(run, slot, step, again)
            elif slot in run.texts:
                episode.stepped(step)
            else:
                episode.ended(step)
            if episode.trajectory.stop_reason:
                self._end(run, slot)
        self._refill(run, again)
        if run.on_round is not None:
            run.on_round(run.state())

    def _ask(self, requests: Sequence[Request], sampling: Sampling) -> Sequence[Completion | PolicyError]:
        try:
            return self.policy.complete(requests, sampling)
        except SomeFailed as error:
            return error.answers

    def _refill(self, run: _Run, again: Sequence[int] = ()) -> None:
        """Start the next jobs in the free slots, and start over those that failed."""
        while True:
            starting = {slot: self._environments.submit(run.live[slot].env, run.live[slot].reset) for slot in again}
            for slot in range(run.slots):
                if slot not in run.live and run.next < len(run.jobs):
                    run.live[slot], starting[slot] = self._take(run)
                    self._begin(run.live[slot])
            if not starting:
                return
            failed: list[int] = []
            for slot, step in self._together(run, starting):
                if isinstance(step, Step):
                    run.live[slot].started(step)
                else:
                    self._failed(run, slot, step, failed)
                    if run.live[slot].trajectory.stop_reason:
                        self._end(run, slot)
            again = failed

    def _take(self, run: _Run) -> tuple[Episode, Future[Step]]:
        """The next job in line, and its task being laid out."""
        job, index = run.jobs[run.next], run.next
        run.next += 1
        opening = self._environments.open(job, run.lane)
        template = self._raw() if opening.env.raw_prompts else self.template
        name = f"{index}:{job.task.id}:{job.attempt}" + (f"/{run.lane}" if run.lane else "")
        return Episode(job, index, name, opening.env, template, run.label), opening.step

    def _raw(self) -> ChatTemplate:
        """For environments whose messages are one running text."""
        if self._raw_template is None:
            self._raw_template = ChatTemplate(self.policy.tokenizer, self.policy.eos_ids, raw=True)
        return self._raw_template

    def _begin(self, episode: Episode) -> None:
        if isinstance(self.policy, TaskAware):
            self.policy.begin(episode.name, episode.job.task)

    def _together(self, run: _Run, calls: dict[int, Future[Step]]) -> list[tuple[int, Step | Exception]]:
        """Wait for all calls; failures of the machinery come back as values.

        Whatever else a call raises is a defect and propagates, once every other call has come back.
        """
        clock = time.perf_counter()
        errors = {slot: call.exception() for slot, call in calls.items()}
        self._check()
        run.timing.sandbox_seconds += time.perf_counter() - clock
        out: list[tuple[int, Step | Exception]] = []
        for slot, call in calls.items():
            error = errors[slot]
            if error is None:
                out.append((slot, call.result()))
            elif isinstance(error, SandboxError | GradeError):
                out.append((slot, error))
            else:
                raise error
        return out

    def _failed(self, run: _Run, slot: int, error: Exception, again: list[int]) -> None:
        """Start the job over, once; after that the episode is over without a reward."""
        episode = run.live[slot]
        episode.failed()
        if episode.tries > RETRIES:
            episode.broken(error)
            return
        run.retries += 1
        self.policy.forget([episode.name])
        episode.restart()
        self._begin(episode)
        again.append(slot)

    def _end(self, run: _Run, slot: int) -> None:
        episode = run.live.pop(slot)
        self.policy.forget([episode.name])
        self._environments.give_back(episode.env)
        run.done[episode.index] = episode.trajectory
        run.ended += 1
        run.lost += episode.trajectory.reward is None
        if run.on_episode is not None:
            run.on_episode(episode.trajectory)


def _share(whole: int, parts: int, index: int) -> int:
    """Of `whole` things for `parts`, how many the one at `index` gets: as even as can be, the first ones more."""
    return whole // parts + (index < whole % parts)


def capped(policy: Policy, sampling: Sampling) -> Sampling:
    """The settings with the policy's own cap on a reply, where it has one (a wrapper's `cap(sampling)`)."""
    cap = getattr(policy, "cap", None)
    return sampling if cap is None else replace(sampling, max_tokens=int(cap(sampling)))
