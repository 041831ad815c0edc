"""The environments in which attempts are played, the threads that call them, and tasks laid out before a slot is free.

An environment is used by one call at a time. In lockstep, which job meets which environment depends on the order of the
calls here alone, never on which thread was faster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from gymnasium import Env

from agents.rollout.episode import Job, Step, lay_out
from envs.conversation import ConversationEnv
from envs.wrapping import WrappedConversation, as_conversation

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
