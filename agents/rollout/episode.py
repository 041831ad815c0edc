"""One attempt at one task, turn by turn, and the environments in which attempts are played."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from gymnasium import Env

from agents.chat import ChatTemplate, Conversation
from agents.policy import Completion, FinishReason, PolicyError, Request, Sampling
from agents.seeds import derive_seed
from agents.trajectory import FORGED, LOSSES, Trajectory, Turn, setting_of
from envs.conversation import ConversationEnv, StopReason
from envs.episode import CutReply
from envs.wrapping import WrappedConversation, as_conversation
from tasks.task import Task

# -- One episode in progress: its conversation, its environment, and the trajectory it writes -------------------------


@dataclass(frozen=True, slots=True)
class Job:
    """One attempt at one task.

    Attributes:
        task: The task.
        attempt: 0..K-1 within the task's group.
        seed: Decides every reply together with task, attempt and turn.
    """

    task: Task
    attempt: int
    seed: int


@dataclass(slots=True)
class Step:
    """What the environment answered, brought back from its thread."""

    observation: str
    reward: float | None
    over: bool
    info: dict[str, Any]
    seconds: float


def lay_out(env: ConversationEnv | WrappedConversation, job: Job) -> Step:
    """Lay the job's task out in an environment."""
    begin = time.perf_counter()
    observation, info = env.reset(seed=job.seed, options={"task": job.task})
    return Step(observation, 0.0, False, info, time.perf_counter() - begin)


@dataclass(slots=True)
class Episode:
    """State of one job while it is played.

    Attributes:
        job: The job; `index` its place in the call's list.
        name: Names the conversation for the policy.
        env: The slot's environment, used by one thread at a time.
        tries: Failures of the machinery so far.
        losses: Sandboxes that were lost in earlier tries; a job that starts over keeps them.
    """

    job: Job
    index: int
    name: str
    env: ConversationEnv | WrappedConversation
    template: ChatTemplate
    label: str
    conversation: Conversation = field(init=False)
    trajectory: Trajectory = field(init=False)
    context: list[int] = field(default_factory=list)
    anchor: str = ""
    asked: Request | None = None
    reward: float = 0.0
    tries: int = 0
    losses: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """An empty record, ready for `started`."""
        self.restart()

    def restart(self) -> None:
        """Forget what was played: the job starts over."""
        task = self.job.task
        self.conversation = Conversation(self.template)
        self.trajectory = Trajectory(
            task.id, task.content_hash, self.job.attempt, self.job.seed, [], sampling=self.label, family=task.family
        )
        self.trajectory.tokenizer = self.template.fingerprint
        self.context, self.anchor, self.reward = [], "", 0.0

    # -- on the environment's thread ----------------------------------------------------------------------------------

    def reset(self) -> Step:
        """Lay the task out once more."""
        return lay_out(self.env, self.job)

    def step(self, reply: str) -> Step:
        """Take a reply."""
        begin = time.perf_counter()
        observation, reward, terminated, truncated, info = self.env.step(reply)
        return Step(observation, float(reward), terminated or truncated, info, time.perf_counter() - begin)

    def finish(self, reason: StopReason) -> Step:
        """End it for a budget."""
        begin = time.perf_counter()
        reward, info = self.env.finish(reason)
        return Step("", reward, True, info, time.perf_counter() - begin)

    # -- on the engine's thread ---------------------------------------------------------------------------------------

    def started(self, step: Step) -> None:
        """The task is laid out: the conversation begins."""
        self.trajectory.environment = setting_of(self.env)
        keep = self.trajectory.keep_observations
        self.trajectory.prompt_ids = self.conversation.start(self.env.system_prompt, step.observation, keep)
        self.anchor = step.info["anchor"]

    def request(self, sampling: Sampling, max_context: int | None) -> Request | None:
        """The next reply wanted; `None` when it does not fit into the context any more.

        A reply may use the sampling's cap or the task's, the smaller; it is asked for only where all of it would fit.
        Only a first reply is given whatever room there is.

        Stop texts of the environment are passed on for running text alone, where a policy that ends there and the
        environment that cuts there agree. In a chat they differ: the environment cuts nothing inside a thought or a
        block of code, which may hold two blank lines.

        Raises:
            PolicyError: The task's first message alone fills the context.
        """
        turn = len(self.trajectory.turns)
        cap = min(sampling.max_tokens, self.job.task.budget.turn_tokens)
        if max_context is not None:
            room = max_context - len(self.conversation.ids)
            if turn == 0:
                if room < 1:
                    raise PolicyError(
                        f"task '{self.job.task.id}': its prompt has {len(self.conversation.ids)} ids and the context "
                        f"only {max_context}; use a model with a longer context, or leave this task out"
                    )
                cap = min(cap, room)
            elif room < cap:
                return None
        seed = derive_seed(self.job.seed, self.job.task.id, self.job.attempt, turn)
        stops = tuple(getattr(self.env, "stops", ())) if self.env.raw_prompts else ()
        self.asked = Request(self.name, self.conversation.ids, seed, max_tokens=cap, first_turn=turn == 0, stops=stops)
        return self.asked

    def replied(self, completion: Completion, seconds: float) -> str:
        """Record a reply; returns its text for the environment, marked where the token limit cut it."""
        text = self.conversation.reply(completion.ids, completion.finish)
        self.trajectory.turns.append(
            Turn(
                index=len(self.trajectory.turns),
                context_ids=self.context,
                ids=completion.ids,
                logprobs=completion.logprobs,
                entropies=completion.entropies,
                forced=completion.forced,
                finish=completion.finish,
                reply=text,
                anchor=self.anchor,
                uncertainty=completion.signal,
                candidates=completion.candidates,
                notes=completion.notes,
                model_seconds=seconds,
                max_logprobs=completion.max_logprobs,
                entropy_bounds=completion.entropy_bounds,
                seed=_used(completion.seed, self.asked.seed if self.asked else None),
                max_tokens=_used(completion.max_tokens, self.asked.max_tokens if self.asked else None),
                uncertainty_bounds=completion.signal_bounds,
                short_ids=self.conversation.short,
            )
        )
        return CutReply(text) if completion.finish is FinishReason.LENGTH else text

    def stepped(self, step: Step) -> None:
        """Record what the environment answered to the last reply."""
        turn = self.trajectory.turns[-1]
        turn.answered(step.observation, step.info)
        turn.sandbox_seconds = step.seconds
        if step.over:
            self.ended(step)
        else:
            assert step.reward is not None
            self.reward += step.reward
            self.anchor = step.info["anchor"]
            older = None if self.trajectory.keep_observations is None else self.env.summary(step.observation)
            self.context = self.conversation.observe(step.observation, older)

    def ended(self, step: Step) -> None:
        """Record the grade."""
        info, trajectory = step.info, self.trajectory
        assert step.reward is not None
        trajectory.graded(self.reward + step.reward, info)
        if forged := info.get(FORGED, 0) + self.conversation.forged:
            trajectory.notes[FORGED] = forged
        self._note(self.losses + info.get(LOSSES, []))

    def failed(self) -> None:
        """A try failed: keep what its environment says about lost sandboxes, before the next one begins."""
        self.tries += 1
        self.losses += getattr(self.env, LOSSES, [])

    def broken(self, error: BaseException) -> None:
        """Record that the machinery failed: no reward."""
        trajectory = self.trajectory
        self._note(self.losses)
        trajectory.stop_reason = StopReason.INFRASTRUCTURE.value
        trajectory.reward = trajectory.passed = trajectory.rate = None
        trajectory.assertions = []
        trajectory.error = f"{type(error).__name__}: {error}"

    def _note(self, losses: list[dict[str, Any]]) -> None:
        if losses:
            self.trajectory.notes[LOSSES] = losses


def _used(changed: int | None, asked: int | None) -> int | None:
    """What a reply was sampled with: a wrapper may have changed what was asked for."""
    return asked if changed is None else changed


# -- The environments of a rollout engine, the threads that call them, and tasks laid out before a slot is free -------
# An environment is used by one call at a time. Which job meets which environment depends on the order of the calls
# here alone, never on which thread was faster.

Played = ConversationEnv | WrappedConversation
"""An environment as a rollout plays it."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A task that is being laid out, or has been: `step` brings the first observation, or the failure."""

    job: Job
    env: Played
    step: Future[Step]


class Environments:
    """Environments made when they are needed, and kept until `close`.

    Steps and tasks that are laid out ahead have threads of their own: no step ever waits behind the latter, not even
    where a pool has too few sandboxes for them.

    Args:
        make_env: Makes one environment, with wrappers of Gymnasium around it or without. The first one is made at once.
        count: How many there may be.
        workers: Threads that step environments; as many again lay tasks out ahead.
        patient: As many threads as environments step them instead, so that a command that waits keeps no other.

    Raises:
        ValueError: It makes something that cannot be played (see `envs.wrapping`).
    """

    def __init__(
        self, make_env: Callable[[], Env[str, str]], count: int, workers: int, *, patient: bool = False
    ) -> None:
        self.count = count
        self._steppers = count if patient else workers
        self._make_env = make_env
        self._workers = workers
        self._made: list[Played] = [as_conversation(make_env())]
        self._free: deque[Played] = deque(self._made)
        self._lines: dict[int, deque[Opening]] = {}
        """What is laid out ahead, for each list of jobs that is played at the same time."""
        self._steps: ThreadPoolExecutor | None = None
        self._ahead: ThreadPoolExecutor | None = None
        self._calls: dict[Future[Step], Played] = {}
        """Those under way."""

    # -- calls --------------------------------------------------------------------------------------------------------

    def submit(self, env: Played, call: Callable[[], Step]) -> Future[Step]:
        """Have a thread make a call of `env`."""
        if self._steps is None:
            self._steps = ThreadPoolExecutor(self._steppers, thread_name_prefix="turngym-env")
        return self._called(env, self._steps.submit(call))

    def _called(self, env: Played, call: Future[Step]) -> Future[Step]:
        self._calls[call] = env
        call.add_done_callback(self._calls.pop)
        return call

    def open(self, job: Job, lane: int = 0) -> Opening:
        """The job's task, laid out now: the first in the lane's line if it is this one, else in a free environment."""
        line = self._lines.get(lane)
        if line and line[0].job == job:
            return line.popleft()
        env = self._take()
        return Opening(job, env, self.submit(env, partial(lay_out, env, job)))

    def give_back(self, env: Played) -> None:
        """Its episode is over."""
        self._free.append(env)

    # -- ahead --------------------------------------------------------------------------------------------------------

    def open_ahead(self, jobs: Sequence[Job], lane: int = 0) -> None:
        """Begin to lay out those of `jobs` that do not stand in line yet, while environments are free.

        Args:
            jobs: The next ones in their order; the first are those in line.
            lane: Whose line: lists of jobs that are played at the same time have one each.
        """
        line = self._lines.setdefault(lane, deque())
        for job in jobs[len(line) :]:
            if not self._free and len(self._made) == self.count:
                return
            if self._ahead is None:
                self._ahead = ThreadPoolExecutor(self._workers, thread_name_prefix="turngym-ahead")
            env = self._take()
            step = self._called(env, self._ahead.submit(partial(lay_out, env, job)))
            line.append(Opening(job, env, step))

    def expect(self, jobs: Sequence[Job], lane: int = 0, most: int | None = None) -> None:
        """`jobs` come next: what stands in line for others is waited for, and its environments are free again.

        So is what stands behind the first `most`: other lists that are played at the same time need environments, too.
        """
        line = self._lines.get(lane, deque())
        if [opening.job for opening in line] != list(jobs[: len(line)]):
            most = 0
        while line and most is not None and len(line) > most:
            line[-1].step.exception()  # whatever it is, nobody plays this task now
            self._free.append(line.pop().env)

    def _take(self) -> Played:
        """The environment that has been free for longest; a new one where none is."""
        if self._free:
            return self._free.popleft()
        assert len(self._made) < self.count
        env: Played = as_conversation(self._make_env())
        self._made.append(env)
        return env

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End every call that is under way, then every environment and thread. Idempotent; later calls make new ones.

        A call under way loses its sandbox, so that nobody waits for a command to end. What cannot be ended keeps
        nothing else from its end; the first such error is raised afterwards.
        """
        threads = [pool for pool in (self._steps, self._ahead) if pool is not None]
        made = self._made
        self._steps = self._ahead = None
        self._made, self._free, self._lines = [], deque(), {}
        for pool in threads:
            pool.shutdown(wait=False, cancel_futures=True)
        if not made:
            return
        errors: list[Exception] = []

        def end(how: Callable[[], None]) -> None:
            try:
                how()
            except Exception as error:
                errors.append(error)

        with ThreadPoolExecutor(min(len(made), 2 * self._workers), thread_name_prefix="turngym-close") as closers:
            list(closers.map(end, [env.abort for env in list(self._calls.values())]))
            for pool in threads:
                pool.shutdown()
            list(closers.map(end, [env.close for env in made]))
        if errors:
            raise errors[0]
