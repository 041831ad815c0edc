"""Escalation: another policy takes over the conversations that a monitor calls stuck.

Episodes that one policy has played are looked at turn by turn (`stuck_turns`). Those that got stuck are played again
with `Continued`: the replies up to there are given as they were, then the other policy replies. So both ways to the end
of an episode are known, each policy may have a tokenizer of its own, and only what is stuck is played twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.monitor import Monitor
from agents.policies.openai import reply_ids
from agents.policy import (
    Answer,
    Around,
    Completion,
    FinishReason,
    Policy,
    Request,
    Sampling,
    SomeFailed,
    Stream,
    TaskAware,
    abilities,
    answers_of,
    decode_label,
    stream_of,
)
from agents.seeds import derive_seed
from agents.trajectory import Attempt, Trajectory, Turn, attempt_of
from envs.episode import StopReason

if TYPE_CHECKING:
    from tasks.task import Task

GIVEN = "given"
"""Note of a turn whose reply another policy had given before."""


@dataclass(frozen=True, slots=True)
class Watched:
    """What a monitor said to episodes.

    Attributes:
        stuck: Index of the turn after which an episode was called stuck; only where it went on then.
        reasons: Why, for each of them.
        eta: Least change that counted as a move; `None` where too few changes were seen to calibrate it.
        changes: Changes of a signal that were seen while eta was calibrated; 0 where it was given.
        signals: Turns whose uncertainty was known.
    """

    stuck: dict[Attempt, int]
    reasons: dict[Attempt, str]
    eta: float | None
    changes: int
    signals: int


def stuck_turns(episodes: Sequence[Trajectory], *, turns: int = 3, eta: float | None = None) -> Watched:
    """Where each episode got stuck.

    Args:
        episodes: As they were played; those that the machinery ended are left out.
        turns: Turns in a row without a move that make an episode stuck.
        eta: Least change of the mean entropy that counts as a move (nats); `None` calibrates it on these episodes
            before any is judged.

    Raises:
        ValueError: As `Monitor`.
    """
    usual = [episode for episode in episodes if episode.stop_reason != StopReason.INFRASTRUCTURE]
    changes = 0
    if eta is None:
        eta, changes = _calibrated(usual, turns)
    if eta is None:
        return Watched({}, {}, None, changes, 0)
    stuck: dict[Attempt, int] = {}
    reasons: dict[Attempt, str] = {}
    signals = 0
    monitor = Monitor(turns=turns, eta=eta)
    for number, episode in enumerate(usual):
        for turn in episode.turns[:-1]:  # nothing follows the last one
            verdict = monitor.see(str(number), _completion(turn))
            signals += verdict.signal is not None or turn.entropy_bounds is not None
            if verdict.stuck:
                stuck[attempt_of(episode)], reasons[attempt_of(episode)] = turn.index, verdict.reason
                break
        monitor.forget(str(number))
    return Watched(stuck, reasons, eta, changes, signals)


def _calibrated(episodes: Iterable[Trajectory], turns: int) -> tuple[float | None, int]:
    """Eta, and how many changes were looked at."""
    monitor = Monitor(turns=turns)
    for number, episode in enumerate(episodes):
        for turn in episode.turns:
            monitor.see(str(number), _completion(turn))
            if monitor.eta is not None:
                return monitor.eta, monitor.changes
    return None, monitor.changes


def _completion(turn: Turn) -> Completion:
    """What the policy reported of a recorded reply."""
    return Completion(
        turn.ids,
        turn.logprobs,
        turn.entropies,
        turn.max_logprobs,
        turn.forced,
        turn.finish or FinishReason.STOP,
        entropy_bounds=turn.entropy_bounds,
    )


class Continued(Around):
    """A policy that goes on where others stopped: the first replies of an episode are given, all later ones its own.

    A reply is told by its seed, which job and turn decide. Given replies carry no log-probabilities and count as
    forced, so nothing is trained on them.

    Args:
        policy: Goes on.
        episodes: That were begun, as they were played.
        until: Index of the last turn of each that is given.
    """

    def __init__(self, policy: Policy, episodes: Iterable[Trajectory], until: dict[Attempt, int]) -> None:
        self.policy = policy
        self._given: dict[int, Turn] = {}
        for episode in episodes:
            last = until.get(attempt_of(episode))
            if last is None or episode.seed is None:
                continue
            for turn in episode.turns[: last + 1]:
                self._given[derive_seed(episode.seed, episode.task_id, episode.attempt, turn.index)] = turn

    def label(self, sampling: Sampling) -> str:
        """The policy's."""
        return decode_label(self.policy, sampling)

    def begin(self, conversation: str, task: Task) -> None:
        """Pass the task on to a policy that wants to know it."""
        if isinstance(self.policy, TaskAware):
            self.policy.begin(conversation, task)

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over."""
        self.policy.forget(conversations)

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """One completion per request, in order; raises what the policy does."""
        own = [request for request in requests if not self.gives(request)]
        asked = iter(answers_of(self.policy, own, sampling) if own else ())
        answers = [self.given(request, sampling) if self.gives(request) else next(asked) for request in requests]
        completions = [answer for answer in answers if isinstance(answer, Completion)]
        if len(completions) < len(answers):
            raise SomeFailed(answers)
        return completions

    def stream(self, sampling: Sampling, wake: Callable[[], None]) -> Stream:
        """Replies one by one; given ones at once."""
        return _Stream(self, sampling, stream_of(self.policy, sampling, wake))

    def gives(self, request: Request) -> bool:
        """Whether the reply is there already."""
        return request.seed in self._given

    def given(self, request: Request, sampling: Sampling) -> Completion:
        """The reply that is there already, in the ids of this policy."""
        turn = self._given[request.seed]
        finish = turn.finish or FinishReason.STOP
        if abilities(self.policy).own_ids:
            ids = list(self.tokenizer.encode(turn.reply, add_special_tokens=False))
            ids += [self.tokenizer.eos_token_id] if finish is FinishReason.STOP or not ids else []
        else:
            ids = reply_ids(turn.reply, ended=finish is FinishReason.STOP)
        cap = max(len(ids), request.cap(sampling))
        return Completion(ids, None, None, None, [True] * len(ids), finish, notes={GIVEN: 1.0}, max_tokens=cap)


class _Stream:
    """The stream of a `Continued`: what is given leaves with the next look."""

    def __init__(self, policy: Continued, sampling: Sampling, inner: Stream) -> None:
        self._policy, self._sampling, self._inner = policy, sampling, inner
        self._ready: list[tuple[str, Answer]] = []

    @property
    def working(self) -> bool:
        return bool(self._ready) or self._inner.working

    def ask(self, requests: Sequence[Request]) -> None:
        own = []
        for request in requests:
            if self._policy.gives(request):
                self._ready.append((request.conversation, self._policy.given(request, self._sampling)))
            else:
                own.append(request)
        if own:
            self._inner.ask(own)

    def advance(self) -> list[tuple[str, Answer]]:
        ready, self._ready = self._ready, []
        return ready or self._inner.advance()

    def close(self) -> None:
        self._inner.close()
