"""Lockstep rollouts: many episodes at once, one batched call of the policy per turn, environments in parallel threads.

Every round samples one reply for each live episode, then steps all their environments together and waits for all of
them. Which episodes share a batch therefore depends on the jobs and the slots only, never on which thread was faster,
and each reply's seed depends on its job and turn only. A slot whose episode ends takes the next job in the same round.

The two clocks that matter are told apart: `model_seconds` is time inside the policy, `sandbox_seconds` time in which
the engine had nothing to do but wait for environments; the rest is our own overhead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial

from agents.chat import ChatTemplate
from agents.episode import Episode, Job, Step
from agents.policy import Policy, PolicyError, Sampling, TaskAware
from agents.trajectory import Trajectory
from envs.conversation import ConversationEnv, StopReason
from sandboxes.sandbox import SandboxError
from tasks.assertions.grade import GradeError

__all__ = ["Job", "RolloutEngine", "RolloutResult", "Timing"]

RETRIES = 1
"""How often a job starts over after the machinery failed."""


@dataclass(slots=True)
class Timing:
    """Where the time of a call went. Seconds of wall time.

    Attributes:
        wall_seconds: The whole call.
        model_seconds: Inside the policy.
        sandbox_seconds: Waiting for environments, and for nothing else.
        turns: Replies that were sampled and stepped (also those of episodes that started over).
        sampled_tokens: Their ids.
    """

    wall_seconds: float = 0.0
    model_seconds: float = 0.0
    sandbox_seconds: float = 0.0
    turns: int = 0
    sampled_tokens: int = 0

    @property
    def overhead_seconds(self) -> float:
        """What is neither: templates, tokens, records, threads."""
        return self.wall_seconds - self.model_seconds - self.sandbox_seconds


@dataclass(slots=True)
class RolloutResult:
    """What a call played.

    Attributes:
        trajectories: One per job, in the jobs' order.
        timing: Where the time went.
        retries: Jobs that started over because the machinery failed.
    """

    trajectories: list[Trajectory]
    timing: Timing
    retries: int = 0


@dataclass(slots=True)
class _Run:
    """One call while it runs."""

    jobs: Sequence[Job]
    sampling: Sampling
    on_episode: Callable[[Trajectory], None] | None
    done: list[Trajectory | None]
    next: int = 0
    timing: Timing = field(default_factory=Timing)
    retries: int = 0


class RolloutEngine:
    """Plays jobs with a policy.

    Environments and threads are made at first use and kept between calls; `close` ends them.

    Args:
        policy: Who acts.
        make_env: Makes one environment; called once per slot.
        slots: Episodes played at once.
        workers: Threads that step environments.
        max_context: Longest conversation, in ids, replies included; default: the policy's own `max_context`, if any.
        template: The tokenizer's chat template, taken apart; default: made here.
    """

    def __init__(
        self,
        policy: Policy,
        make_env: Callable[[], ConversationEnv],
        *,
        slots: int,
        workers: int,
        max_context: int | None = None,
        template: ChatTemplate | None = None,
    ) -> None:
        if slots < 1 or workers < 1:
            raise ValueError(f"slots is {slots} and workers is {workers}: both must be at least 1")
        self.policy = policy
        self.slots = slots
        self.max_context = max_context if max_context is not None else getattr(policy, "max_context", None)
        self.template = template or ChatTemplate(policy.tokenizer, policy.eos_ids)
        self._raw_template: ChatTemplate | None = None
        self._make_env = make_env
        self._workers = workers
        self._envs: list[ConversationEnv | None] = [None] * slots
        self._threads: ThreadPoolExecutor | None = None

    def run(
        self,
        jobs: Sequence[Job],
        sampling: Sampling,
        *,
        on_episode: Callable[[Trajectory], None] | None = None,
    ) -> RolloutResult:
        """Play every job once.

        Args:
            jobs: What to play.
            sampling: Decode settings.
            on_episode: Called with each trajectory as it ends (in a deterministic order).

        Returns:
            Trajectories in the order of the jobs. Where the machinery failed twice, the trajectory has stop reason
            `infrastructure`, no reward, and `error` says what failed.

        Raises:
            PolicyError: The policy failed. Before, every unfinished episode went to `on_episode` as `infrastructure`.
        """
        begin = time.perf_counter()
        run = _Run(jobs, sampling, on_episode, [None] * len(jobs))
        live: dict[int, Episode] = {}
        try:
            self._refill(run, live)
            while live:
                self._round(run, live)
        except PolicyError as error:
            for slot, episode in list(live.items()):
                episode.broken(error)
                self._end(run, live, slot)
            raise
        finally:
            self.policy.forget([episode.name for episode in live.values()])
            run.timing.wall_seconds = time.perf_counter() - begin
        return RolloutResult([trajectory for trajectory in run.done if trajectory is not None], run.timing, run.retries)

    def close(self) -> None:
        """Close environments and threads. Idempotent; a later `run` makes new ones."""
        envs = [env for env in self._envs if env is not None]
        self._envs = [None] * self.slots
        threads, self._threads = self._threads, None
        if threads is None:
            return
        for closing in [threads.submit(env.close) for env in envs]:
            closing.result()
        threads.shutdown()

    def __enter__(self) -> RolloutEngine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- one round ----------------------------------------------------------------------------------------------------

    def _round(self, run: _Run, live: dict[int, Episode]) -> None:
        """One reply of every live episode, and what the environments answer; then the free slots take new jobs."""
        wanted = {slot: episode.request(run.sampling, self.max_context) for slot, episode in live.items()}
        asking = {slot: request for slot, request in wanted.items() if request is not None}
        texts: dict[int, str] = {}
        if asking:
            clock = time.perf_counter()
            completions = self.policy.complete(list(asking.values()), run.sampling)
            seconds = time.perf_counter() - clock
            run.timing.model_seconds += seconds
            run.timing.turns += len(asking)
            for slot, completion in zip(asking, completions, strict=True):
                run.timing.sampled_tokens += len(completion.ids) + sum(len(c.ids) for c in completion.candidates)
                texts[slot] = live[slot].replied(completion, seconds / len(asking))
        calls: dict[int, Callable[[], Step]] = {}
        for slot, episode in live.items():
            if slot in texts:
                calls[slot] = partial(episode.step, texts[slot])
            else:
                calls[slot] = partial(episode.finish, StopReason.MAX_TOKENS)
        again: list[int] = []
        for slot, step in self._together(run, calls):
            episode = live[slot]
            if not isinstance(step, Step):
                self._failed(run, live, slot, step, again)
            elif slot in texts:
                episode.stepped(step)
            else:
                episode.ended(step)
            if slot in live and episode.trajectory.stop_reason:
                self._end(run, live, slot)
        self._refill(run, live, again)

    def _refill(self, run: _Run, live: dict[int, Episode], again: Sequence[int] = ()) -> None:
        """Start the next jobs in the free slots, and start over those that failed."""
        starting = {slot: live[slot] for slot in again}
        while True:
            for slot in range(self.slots):
                if slot not in live and run.next < len(run.jobs):
                    live[slot] = starting[slot] = self._episode(run, slot)
            if not starting:
                return
            failed: list[int] = []
            for slot, step in self._together(run, {slot: episode.reset for slot, episode in starting.items()}):
                if isinstance(step, Step):
                    live[slot].started(step)
                else:
                    self._failed(run, live, slot, step, failed)
                    if slot in live and live[slot].trajectory.stop_reason:
                        self._end(run, live, slot)
            starting = {slot: live[slot] for slot in failed}

    def _episode(self, run: _Run, slot: int) -> Episode:
        job, index = run.jobs[run.next], run.next
        run.next += 1
        env = self._envs[slot]
        if env is None:
            env = self._envs[slot] = self._make_env()
        name = f"{index}:{job.task.id}:{job.attempt}"
        template = self._raw() if env.raw_prompts else self.template
        episode = Episode(job, index, name, env, template, run.sampling.label())
        self._begin(episode)
        return episode

    def _raw(self) -> ChatTemplate:
        """For environments whose messages are one running text."""
        if self._raw_template is None:
            self._raw_template = ChatTemplate(self.policy.tokenizer, self.policy.eos_ids, raw=True)
        return self._raw_template

    def _begin(self, episode: Episode) -> None:
        if isinstance(self.policy, TaskAware):
            self.policy.begin(episode.name, episode.job.task)

    def _together(self, run: _Run, calls: dict[int, Callable[[], Step]]) -> list[tuple[int, Step | Exception]]:
        """Run the calls in the threads and wait for all; failures of the machinery come back as values.

        Whatever else a call raises is a defect and propagates, once every other call has come back.
        """
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self._workers, thread_name_prefix="turngym-env")
        futures: dict[int, Future[Step]] = {slot: self._threads.submit(call) for slot, call in calls.items()}
        clock = time.perf_counter()
        errors: dict[int, BaseException | None] = {slot: future.exception() for slot, future in futures.items()}
        run.timing.sandbox_seconds += time.perf_counter() - clock
        out: list[tuple[int, Step | Exception]] = []
        for slot, future in futures.items():
            error = errors[slot]
            if error is None:
                out.append((slot, future.result()))
            elif isinstance(error, SandboxError | GradeError):
                out.append((slot, error))
            else:
                raise error
        return out

    def _failed(self, run: _Run, live: dict[int, Episode], slot: int, error: Exception, again: list[int]) -> None:
        """Start the job over, once; after that the episode is over without a reward."""
        episode = live[slot]
        episode.tries += 1
        if episode.tries > RETRIES:
            episode.broken(error)
            return
        run.retries += 1
        self.policy.forget([episode.name])
        episode.restart()
        self._begin(episode)
        again.append(slot)

    def _end(self, run: _Run, live: dict[int, Episode], slot: int) -> None:
        episode = live.pop(slot)
        self.policy.forget([episode.name])
        run.done[episode.index] = episode.trajectory
        if run.on_episode is not None:
            run.on_episode(episode.trajectory)
