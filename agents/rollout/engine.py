"""The rollout engine: plays many episodes at once with one policy.

In which order they take their turns is its mode: asynchronous, where no episode waits for another one
(`agents.rollout.asynchronous`), or lockstep, where all take their turns together and equal seeds give equal bytes
(`agents.rollout.lockstep`). In both each reply's seed depends on its job and turn only, and results stand in the order
of the jobs.

The two clocks that matter are told apart: `model_seconds` is time in which the policy worked, `sandbox_seconds` time in
which the engine had nothing to do but wait for environments; the rest is our own overhead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from gymnasium import Env

from agents.chat import ChatTemplate
from agents.policy import Policy, Sampling, abilities, decode_label
from agents.rollout.asynchronous import Asynchronous
from agents.rollout.environments import Environments
from agents.rollout.episode import Job, Waiting
from agents.rollout.lockstep import Lockstep
from agents.rollout.progress import RolloutState, Timing
from agents.rollout.run import Player, Run, Unfinished, capped
from agents.seeds import Duplicates, find_duplicates
from agents.trajectory import Trajectory
from sandboxes.transport import uninterrupted

CLOSED = "the rollout engine was closed by another thread while it played; only episodes that were over are complete"
UNCOUNTED = (
    "this policy answers with text, and its ids are not the model's tokens, so nobody can count those of an episode. "
    "Leave it out: max_tokens and max_turns limit an episode, too"
)
"""Why `Sampling.max_episode_tokens` is refused for some policies."""
UNCUT = (
    "this policy does not say that it heeds them (`Abilities.truncates`). The engine in this process does; a chat "
    "endpoint is asked by --request_body"
)
"""Why `Sampling.top_p` and `top_k` are refused for some policies."""


@dataclass(slots=True)
class RolloutResult:
    """What a call played.

    Attributes:
        trajectories: One per job that is over, in the jobs' order.
        timing: Where the time went.
        retries: Jobs that started over because the machinery failed.
        duplicates: Attempts that came out the same; `None` for greedy decoding, where they must.
        unfinished: Places of the jobs that are not over, ascending; only where `enough` let the call return.
    """

    trajectories: list[Trajectory]
    timing: Timing
    retries: int = 0
    duplicates: Duplicates | None = None
    unfinished: list[int] = field(default_factory=list)

    @property
    def label(self) -> str:
        """The decode settings that were at work, for tables; one call has one."""
        return self.trajectories[0].sampling if self.trajectories else ""


class RolloutMode(StrEnum):
    """In which order episodes take their turns."""

    AUTO = "auto"
    """Asynchronous where the policy's replies come one by one at no loss (a server, a GPU), else in lockstep."""
    LOCKSTEP = "lockstep"
    """All together: equal seeds, equal bytes."""
    ASYNCHRONOUS = "asynchronous"
    """Each on its own: nobody waits for a slow reply or command."""

    def chosen(self, policy: Policy) -> RolloutMode:
        """What `auto` is for this policy."""
        if self is not RolloutMode.AUTO:
            return self
        return RolloutMode.ASYNCHRONOUS if abilities(policy).asynchronous else RolloutMode.LOCKSTEP


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
        workers: Threads that step environments; in asynchronous mode a command that waits does not count.
        ahead: Tasks laid out before a slot is free for them, while the policy decodes; batches do not depend on it. It
            needs as many more sandboxes, and a pool that is too small for it is waited for in vain.
        max_context: Longest conversation, in ids, replies included; default: the policy's own `max_context`, if any.
        template: The tokenizer's chat template, taken apart; default: made here.
        mode: In which order episodes take their turns.

    Attributes:
        mode: The same, with what `auto` chose.

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
        mode: RolloutMode = RolloutMode.AUTO,
    ) -> None:
        if slots < 1 or workers < 1:
            raise ValueError(f"slots is {slots} and workers is {workers}: both must be at least 1")
        if ahead < 0:
            raise ValueError(f"ahead is {ahead}: give the number of tasks laid out ahead, or 0")
        self.policy = policy
        self.slots, self.ahead = slots, ahead
        self.max_context = max_context if max_context is not None else getattr(policy, "max_context", None)
        self.template = template or ChatTemplate(policy.tokenizer, policy.eos_ids)
        self.mode = RolloutMode(mode).chosen(policy)
        patient = self.mode is RolloutMode.ASYNCHRONOUS
        self._environments = Environments(make_env, slots + ahead, workers, patient=patient)
        self._player: Player | None = None
        self._runs: Sequence[Run] = ()
        """Of the `run` under way."""
        self._unfinished: list[Unfinished] = []
        """What the last call left."""
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
        enough: Callable[[Sequence[Trajectory | None]], bool] | None = None,
    ) -> RolloutResult:
        """Play every job once; see `run_together`.

        With `enough` the call may return before: once it holds nothing more is asked for, replies under way are waited
        for, and environments go on with theirs. The next call takes those episodes up where they are, with the policy
        and settings of then. Their jobs, the same objects, must stand first among its jobs, in their order; so nothing
        else can be played before. `close` ends them.

        Args:
            jobs: What to play.
            sampling: Decode settings.
            on_episode: Called with each trajectory as it ends (in lockstep in an order that no clock decides).
            on_round: Called now and then (in lockstep after each round), for those who watch
                (see `agents.rollout.progress`).
            enough: Asked now and then with what has ended (`None` for the others), in the jobs' order: whether the call
                may return. Asynchronous mode only.

        Returns:
            Trajectories in the order of the jobs, and which jobs are unfinished.

        Raises:
            ValueError: `enough` in lockstep, or unfinished episodes of the call before do not stand first; a token
                budget for a policy whose tokens nobody can count.
        """
        if enough is not None and self.mode is not RolloutMode.ASYNCHRONOUS:
            raise ValueError("in lockstep no episode goes on alone: leave `enough` out, or play in asynchronous mode")
        (result,) = self._run([(jobs, sampling)], on_episode, on_round, enough)
        return result

    def run_together(
        self,
        parts: Sequence[tuple[Sequence[Job], Sampling]],
        *,
        on_episode: Callable[[Trajectory], None] | None = None,
        on_round: Callable[[RolloutState], None] | None = None,
    ) -> list[RolloutResult]:
        """Play the jobs of each part once.

        In lockstep the parts share the slots evenly and take turns at the policy: while it decodes for one part, the
        environments of the others step. Turns are taken in a fixed order, so which episodes share a batch still depends
        on jobs and slots alone. In asynchronous mode nobody waits for sandboxes, and one part follows the other.

        After any exception, Ctrl-C among them, the environments are closed and no call of theirs goes on; what was
        finished has reached `on_episode`. A later call makes new ones.

        Args:
            parts: Jobs, and how to decode them; not more parts than slots.
            on_episode: Called with each trajectory as it ends (in lockstep in an order that no clock decides).
            on_round: Called now and then (in lockstep after each round), for those who watch
                (see `agents.rollout.progress`).

        Returns:
            One result per part: trajectories in the order of the jobs. Where the machinery failed twice, the trajectory
            has stop reason `infrastructure`, no reward, and `error` says what failed. The wall time of a part is the
            time spent on it, so that the parts' sum is the time of the call.

        Raises:
            PolicyError: The policy failed. Before, every episode that had begun and not ended went to `on_episode` as
                `infrastructure`. (Where it fails some requests only, their episodes end so, and the others go on.)
            RuntimeError: Another thread closed the engine meanwhile.
            ValueError: There are more parts than slots; a token budget as in `run`.
        """
        if len(parts) > self.slots:
            raise ValueError(f"{len(parts)} parts at the same time need as many slots, and there are {self.slots}")
        return self._run(parts, on_episode, on_round)

    def _run(
        self,
        parts: Sequence[tuple[Sequence[Job], Sampling]],
        on_episode: Callable[[Trajectory], None] | None,
        on_round: Callable[[RolloutState], None] | None,
        enough: Callable[[Sequence[Trajectory | None]], bool] | None = None,
    ) -> list[RolloutResult]:
        left = self._unfinished
        first = parts[0][0] if parts else ()
        if [id(job) for job in first[: len(left)]] != [id(unfinished.episode.job) for unfinished in left]:
            raise ValueError(
                f"{len(left)} episodes of the call before are unfinished: their jobs must stand first among the jobs "
                "of this call, or `close` ends them"
            )
        runs = [self._begin(part, lane, len(parts), on_episode, on_round) for lane, part in enumerate(parts)]
        if runs:
            runs[0].enough, runs[0].unfinished, self._unfinished = enough, left, []
        self._playing, self._stopped = threading.get_ident(), False
        try:
            kind = Asynchronous if self.mode is RolloutMode.ASYNCHRONOUS else Lockstep
            self._player = kind(self.policy, self._environments, self.template, self.max_context, self._check)
            self._runs = runs
            self._player.play(runs)
            self._unfinished = [unfinished for run in runs for unfinished in run.unfinished]
            if self._unfinished:
                self._check()  # nobody goes on in environments that are closed
        except BaseException as error:
            self._unfinished = left
            self._close_after(error)
            if self._stopped and isinstance(error, Exception):
                raise RuntimeError(CLOSED) from error
            raise
        finally:
            self._playing, self._runs = None, ()
        return [self._result(run) for run in runs]

    def _begin(
        self,
        part: tuple[Sequence[Job], Sampling],
        lane: int,
        parts: int,
        on_episode: Callable[[Trajectory], None] | None,
        on_round: Callable[[RolloutState], None] | None,
    ) -> Run:
        jobs, sampling = part
        own_ids = abilities(self.policy).own_ids
        if sampling.max_episode_tokens is not None and not own_ids:
            raise ValueError(f"max_episode_tokens={sampling.max_episode_tokens}: {UNCOUNTED}")
        if sampling.truncated and not abilities(self.policy).truncates:
            raise ValueError(f"top_p={sampling.top_p:g}, top_k={sampling.top_k}: {UNCUT}")
        together = parts if self.mode is RolloutMode.LOCKSTEP else 1
        return Run(
            jobs=jobs,
            sampling=sampling,
            asked=capped(self.policy, sampling),
            on_episode=on_episode,
            on_round=on_round,
            done=[None] * len(jobs),
            begin=time.perf_counter(),
            label=decode_label(self.policy, sampling),
            own_ids=own_ids,
            slots=_share(self.slots, together, lane % together),
            ahead=_share(self.ahead, together, lane % together),
            lane=lane,
        )

    def _result(self, run: Run) -> RolloutResult:
        played = [trajectory for trajectory in run.done if trajectory is not None]
        duplicates = None if run.sampling.greedy else find_duplicates(played)
        run.timing.wall_seconds = run.spent
        unfinished = [place for place, trajectory in enumerate(run.done) if trajectory is None]
        return RolloutResult(played, run.timing, run.retries, duplicates, unfinished)

    def waiting(self) -> list[Waiting]:
        """The episodes under way, and what each waits for; may be asked from another thread."""
        return [episode.waiting() for run in self._runs for episode in list(run.live.values())]

    def prepare(self, jobs: Sequence[Job]) -> None:
        """Begin to lay out the first tasks of the next `run`, in the background; for the time in which weights change.

        A `run` with jobs that begin the same takes them over; any other one waits until they are laid out, and drops
        them. The results are the same in every case. After any exception the environments are closed, as in `run`.
        """
        try:
            jobs = jobs[len(self._unfinished) :]
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
            if self._player is not None:
                self._player.wake()
        left, self._unfinished = self._unfinished, []
        if left:
            self.policy.forget([unfinished.episode.name for unfinished in left])
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


def _share(whole: int, parts: int, index: int) -> int:
    """Of `whole` things for `parts`, how many the one at `index` gets: as even as can be, the first ones more."""
    return whole // parts + (index < whole % parts)
