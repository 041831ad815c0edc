"""The words of an episode: why it stopped, where it stands, what one reply did."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gymnasium import Env
from gymnasium.wrappers import TimeLimit

from envs.actions import ActionKind, MalformedKind


class StopReason(StrEnum):
    """Why an episode ended."""

    SUBMITTED = "submitted"
    """The agent said that it is done (`terminated`)."""
    MAX_TURNS = "max_turns"
    """The turn budget is spent (`truncated`)."""
    MAX_SECONDS = "max_seconds"
    """The wall time of the episode is spent (`truncated`)."""
    MAX_TOKENS = "max_tokens"
    """The caller's token budget is spent (`finish`)."""
    LOST = "lost"
    """The agent's command, or what it left to its graders, ended the sandbox twice (`truncated`): a fail."""
    INFRASTRUCTURE = "infrastructure"
    """The machinery failed: no grade and no reward."""


class AgentErrors(StrEnum):
    """What counts where the agent kept itself from being judged: a check broke on what it made, a sandbox was lost."""

    FAIL = "fail"
    """A fail, like any other."""
    ERROR = "error"
    """An error: no grade and no reward, as if the machinery had failed. For those who study such episodes."""


class LostTwice(Exception):
    """The agent ended its sandbox, and the one in which everything was done again. Ends the episode as a fail.

    Attributes:
        command: During which; `None` while it was graded.
    """

    def __init__(self, command: str | None, detail: str) -> None:
        super().__init__(detail)
        self.command = command


class Phase(StrEnum):
    """Where the environment stands between calls."""

    NEW = "new"
    """No episode yet."""
    RUNNING = "running"
    """An episode that takes replies."""
    OVER = "over"
    """The episode has ended, with a grade or as `infrastructure`."""
    FAILED = "failed"
    """The episode broke: only `reset`, `finish(StopReason.INFRASTRUCTURE)` and `close` make sense."""
    CLOSED = "closed"
    """`close` was called; `reset` opens again."""


class OptionalInt(int):
    """A number in `info` that is `None` in other turns or slots.

    A plain `int` would let Gymnasium's vector environments choose an integer array for it, which cannot hold `None`.
    Equal to, and written as, the number it is.
    """


class ExitCode(OptionalInt):
    """An exit code in `info`; `None` for a turn without a command."""


class CutReply(str):
    """A reply that the sampler cut at its token limit, where `step` takes any reply.

    What stands in it whole (a closed block, text before a stop sequence) counts as in any reply; its last words are
    never taken for an answer.
    """


class Ending(str):
    """No reply: the caller ends the episode for a budget, where `step` takes any reply.

    `step` then does what `finish(reason)` does and returns its reward, so that wrappers around the environment act on
    that reward as on any other. `reason` is `max_turns` or `max_tokens`.
    """

    reason: StopReason

    def __new__(cls, reason: StopReason | str) -> Ending:
        """An empty text that carries the reason."""
        self = super().__new__(cls, "")
        self.reason = StopReason(reason)
        return self


@dataclass(frozen=True, slots=True)
class Exchange:
    """What one reply did.

    Attributes:
        observation: What the agent is shown.
        action: What the reply was.
        final_message: The submitting reply without its thoughts; `None` where the agent goes on.
        command: The command that ran.
        exit_code: Its exit code.
        timed_out: It ran out of time.
        signal: What the turn earned by itself; `None` where it has no signal.
        malformed: Why the reply asked for nothing.
    """

    observation: str
    action: ActionKind
    final_message: str | None = None
    command: str | None = None
    exit_code: int | None = None
    timed_out: bool = False
    signal: float | None = None
    malformed: MalformedKind | None = None


def time_limit(env: Env[str, str]) -> int | None:
    """Steps after which a `TimeLimit` around `env` cuts the episode whose `reset` is running; `None` without one.

    Gymnasium tells an environment nothing of its wrappers: `make` keeps `max_episode_steps` for itself, writes
    `unwrapped.spec` before it puts them on, and `TimeLimit` cuts after `step` has returned, too late for a grade. But a
    wrapper resets what it wraps by calling it, so during `reset` its own frame is on this thread's stack.
    """
    limits: list[int] = []
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is TimeLimit.reset.__code__:
            wrapper = frame.f_locals["self"]
            if wrapper.unwrapped is env:
                limits.append(wrapper._max_episode_steps)
        frame = frame.f_back  # type: ignore[assignment]  # None behind the last one
    return min(limits, default=None)


def choice(kind: Any, value: Any, what: str) -> Any:
    """The member of an enumeration that a setting names.

    Raises:
        ValueError: There is none; the message lists all.
    """
    try:
        return kind(value)
    except ValueError:
        raise ValueError(f"unknown {what} '{value}': choose one of {', '.join(kind)}") from None
