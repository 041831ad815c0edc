"""The environments in which attempts are played, the threads that call them, and tasks laid out before a slot is free.

An environment is used by one call at a time. In lockstep, which job meets which environment depends on the order of the
calls here alone, never on which thread was faster.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from gymnasium import Env

from agents.rollout.episode import Job, Step, lay_out
from envs.conversation import ConversationEnv
from envs.wrapping import WrappedConversation, as_conversation

YOUNG_SECONDS = 0.05
"""From there on a call is taken for one that waits (`Patient`)."""

AT_ONCE, AHEAD_AT_ONCE = 4, 2
"""Steps, and tasks laid out ahead, that have work at once beside a policy on a device (`Patient`).

More take the interpreter from the thread that launches what the device computes: with 16 each, a training step of 256
rows took 15 % longer on an H200.
"""

Played = ConversationEnv | WrappedConversation
"""An environment as a rollout plays it."""


_Call = tuple[Future[Step], Callable[[], Step]]
"""A call that somebody waits for."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A task that is being laid out, or has been: `step` brings the first observation, or the failure."""

    job: Job
    env: Played
    step: Future[Step]


class Patient:
    """Threads for calls of which some only wait: `at_once` work at the same time, and who takes long counts no more.

    Many threads that all have work hinder each other and the policy's thread; a command that waits hinders nobody. A
    call has work as long as it is young; from `YOUNG_SECONDS` on it is taken for one that waits, and the next begins.

    Args:
        threads: Calls under way at most.
        at_once: Of them, young ones.
        name: Of the threads.
    """

    def __init__(self, threads: int, at_once: int, name: str = "") -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._at_once = at_once
        self._lock = threading.Lock()
        self._waiting: deque[_Call] = deque()
        self._began: dict[Future[Step], float] = {}

    def submit(self, call: Callable[[], Step]) -> Future[Step]:
        """Have a thread make the call as soon as it is its turn."""
        future: Future[Step] = Future()
        with self._lock:
            self._waiting.append((future, call))
        self.look()
        return future

    def look(self) -> None:
        """Begin those whose turn it is; to be called now and then, since calls that take long make room."""
        with self._lock:
            self._begin()

    def _begin(self) -> None:
        """Have other threads make the calls whose turn it is. The lock is held."""
        while (turn := self._next()) is not None:
            self._pool.submit(self._run, turn)

    def _next(self) -> _Call | None:
        """Whose turn it is; it counts as begun. The lock is held."""
        if not self._waiting:
            return None
        young = time.monotonic() - YOUNG_SECONDS
        if sum(began > young for began in self._began.values()) >= self._at_once:
            return None
        future, call = self._waiting.popleft()
        self._began[future] = time.monotonic()
        return future, call

    def _run(self, turn: _Call | None) -> None:
        """Make a call, and those after it: to wake another thread for each takes longer than many calls do."""
        while turn is not None:
            future, call = turn
            try:
                step = call()
            except BaseException as error:
                turn = self._over(future)
                future.set_exception(error)
            else:
                turn = self._over(future)
                future.set_result(step)

    def _over(self, future: Future[Step]) -> _Call | None:
        with self._lock:
            del self._began[future]
            turn = self._next()
            self._begin()
        return turn

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads; calls that have not begun are cancelled, as far as asked for."""
        with self._lock:
            waiting, self._waiting = self._waiting, deque()
        for future, _ in waiting:
            future.cancel()
        self._pool.shutdown(wait, cancel_futures=cancel_futures)


class Environments:
    """Environments made when they are needed, and kept until `close`.

    Steps and tasks that are laid out ahead have threads of their own: no step ever waits behind the latter, not even
    where a pool has too few sandboxes for them.

    Args:
        make_env: Makes one environment, with wrappers of Gymnasium around it or without. The first one is made at once.
        count: How many there may be.
        workers: Threads that step environments; as many again lay tasks out ahead.
        patient: A command that waits keeps no other: see `Patient`, of which `look` is to be called now and then. No
            more than `AT_ONCE` steps have work, and `AHEAD_AT_ONCE` tasks that are laid out.

    Raises:
        ValueError: It makes something that cannot be played (see `envs.wrapping`).
    """

    def __init__(
        self, make_env: Callable[[], Env[str, str]], count: int, workers: int, *, patient: bool = False
    ) -> None:
        self.count = count
        self._patient = patient
        self._make_env = make_env
        self._workers = workers
        self._made: list[Played] = [as_conversation(make_env())]
        self._free: deque[Played] = deque(self._made)
        self._lines: dict[int, deque[Opening]] = {}
        """What is laid out ahead, for each list of jobs that is played at the same time."""
        self._steps: ThreadPoolExecutor | Patient | None = None
        self._ahead: ThreadPoolExecutor | Patient | None = None
        self._calls: dict[Future[Step], Played] = {}
        """Those under way."""

    # -- calls --------------------------------------------------------------------------------------------------------

    def submit(self, env: Played, call: Callable[[], Step]) -> Future[Step]:
        """Have a thread make a call of `env`."""
        if self._steps is None:
            self._steps = self._threads("turngym-env", AT_ONCE)
        return self._called(env, self._steps.submit(call))

    def _threads(self, name: str, at_once: int) -> ThreadPoolExecutor | Patient:
        if self._patient:
            return Patient(self.count, min(self._workers, at_once), name)
        return ThreadPoolExecutor(self._workers, thread_name_prefix=name)

    def look(self) -> None:
        """Begin calls that need not wait any longer (see `Patient`)."""
        for threads in (self._steps, self._ahead):
            if isinstance(threads, Patient):
                threads.look()

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

        Tasks with services do not wait in line: what those do depends on the clock.

        Args:
            jobs: The next ones in their order; the first are those in line.
            lane: Whose line: lists of jobs that are played at the same time have one each.
        """
        line = self._lines.setdefault(lane, deque())
        for job in _that_can_wait(jobs)[len(line) :]:
            if not self._free and len(self._made) == self.count:
                return
            if self._ahead is None:
                self._ahead = self._threads("turngym-ahead", AHEAD_AT_ONCE)
            env = self._take()
            step = self._called(env, self._ahead.submit(partial(lay_out, env, job)))
            line.append(Opening(job, env, step))

    def expect(self, jobs: Sequence[Job], lane: int = 0, most: int | None = None) -> None:
        """`jobs` come next: what stands in line for others is waited for, and its environments are free again.

        So is what is none of the first `most`: other lists that are played at the same time need environments, too.
        """
        line = self._lines.get(lane, deque())
        if [opening.job for opening in line] != _that_can_wait(jobs)[: len(line)]:
            most = 0
        elif most is not None:
            most = len(_that_can_wait(jobs[:most]))
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


def _that_can_wait(jobs: Sequence[Job]) -> list[Job]:
    return [job for job in jobs if not job.task.services]
