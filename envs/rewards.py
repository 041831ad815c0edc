"""How a grade becomes a reward; the anchor of a turn."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sandboxes.sandbox import CommandResult, FileEntry
from tasks.plugins import Registry

# -- The anchor: the state before a turn, as turn groups compare it ---------------------------------------------------
# Two turns of one task stand at the same anchor when the workspace is equal (paths, kinds, modes, contents, link
# targets) and the last observation was of the same class. Of the observation only the class enters, so volatile text
# (times, process ids, temporary names) needs no normalising. The shell's own state (directory, variables) does not
# enter. Anchors are compared within one task only; the method is GiGPO's (Feng et al., 2025, arXiv 2505.10978).


class ObservationClass(StrEnum):
    """What the last observation was."""

    START = "start"
    """The task; no turn yet."""
    OK = "ok"
    """A command with exit code 0."""
    FAIL = "fail"
    """A command with another exit code."""
    TIMEOUT = "timeout"
    """A command that ran out of time."""
    MALFORMED = "malformed"
    """Feedback on a reply that asked for nothing."""
    REVISE = "revise"
    """An answer that did not pass and may be revised."""
    USER = "user"
    """What the task's user said."""

    @classmethod
    def of(cls, result: CommandResult) -> ObservationClass:
        """The class of a command's result."""
        if result.timed_out:
            return cls.TIMEOUT
        return cls.OK if result.exit_code == 0 else cls.FAIL


def workspace_hash(files: Mapping[str, FileEntry]) -> str:
    """16 hex digits: equal workspaces, equal hashes, whatever the order of the paths.

    Every field is written with its length or as a number, so that no two workspaces spell the same bytes.
    """
    digest = hashlib.sha256()
    for path in sorted(files):
        entry = files[path]
        name = path.encode("utf-8", "surrogateescape")
        target = (entry.target or "").encode("utf-8", "surrogateescape")
        size = -1 if entry.content is None else len(entry.content)
        digest.update(f"{len(name)} {entry.kind} {entry.mode:o} {len(target)} {size} {entry.size}\n".encode())
        digest.update(name + target + (entry.content or b""))
    return digest.hexdigest()[:16]


def anchor(files_hash: str, last: ObservationClass) -> str:
    """The anchor as it stands in `info` and in trajectories: `<16 hex>:<class>`."""
    return f"{files_hash}:{last}"


# -- From grade and turns to a reward ---------------------------------------------------------------------------------
# `rate` is the weighted mean score of all assertions, `turns` the turns done. No other number enters, and an episode
# that could not be graded has no reward at all.
#
# * shaped: at the last turn `rate - turn_penalty * turns / max_turns`; 0 before.
# * binary: at the last turn 1 if every assertion passed, else 0; 0 before.
# * delta: at each turn the change of the rate; the sum is the final rate less the rate at the start. No turn penalty.
#
# With `subtract_baseline` the rate is `(rate - baseline) / (1 - baseline)`, where `baseline` is the rate of doing
# nothing: assertions that hold at the start (a file unchanged, a file absent) then earn nothing, and breaking them
# costs.
#
# A reward of your own is a subclass of `RewardRule`, registered in `REWARDS` or offered by an installed package under
# the entry-point group `turngym.rewards`; its name then goes wherever `shaped` does. docs/extending.md has an example.


class RewardKind(StrEnum):
    """How a grade becomes a reward."""

    SHAPED = "shaped"
    """Rate at the end, less a penalty for turns."""
    BINARY = "binary"
    """1 for a pass at the end."""
    DELTA = "delta"
    """Change of the rate at each turn."""


class BaselineError(ValueError):
    """A task on which doing nothing scores 1 has no rate above its baseline."""


@dataclass(frozen=True, slots=True)
class RewardRule:
    """How rewards are computed; see the module's text.

    A subclass overrides `final`. One that pays at every turn overrides `needs_every_turn` and `change` instead: then
    the last turn, too, is paid by `change`.

    Attributes:
        kind: Which of the three, or the name of a reward of the user's.
        turn_penalty: What all turns together cost, for `shaped`.
        subtract_baseline: Whether the rate is taken above the rate of doing nothing (`shaped` and `delta`).
    """

    kind: RewardKind | str = RewardKind.SHAPED
    turn_penalty: float = 0.2
    subtract_baseline: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that would have no effect."""
        if self.turn_penalty < 0:
            raise ValueError(f"turn_penalty is {self.turn_penalty}: it is subtracted, so it must not be negative")
        if self.subtract_baseline and self.kind is RewardKind.BINARY:
            raise ValueError("subtract_baseline has no effect on the binary reward: use shaped or delta")

    @property
    def needs_start(self) -> bool:
        """Whether the rate at the start enters."""
        return self.subtract_baseline or self.needs_every_turn

    @property
    def needs_every_turn(self) -> bool:
        """Whether the rate after each turn enters."""
        return self.kind is RewardKind.DELTA

    def above(self, rate: float, baseline: float | None) -> float:
        """The rate, above the baseline where the rule subtracts it.

        Raises:
            BaselineError: Doing nothing already scores 1.
        """
        if not self.subtract_baseline:
            return rate
        if baseline is None:
            raise ValueError("the rate at the start is needed to subtract it")
        if baseline >= 1.0:
            raise BaselineError("doing nothing already scores 1 on this task: subtract_baseline is undefined")
        return (rate - baseline) / (1.0 - baseline)

    def change(self, before: float, after: float, baseline: float | None) -> float:
        """Reward of one turn under `delta`, from the rates before and after it."""
        return self.above(after, baseline) - self.above(before, baseline)

    def final(self, *, rate: float, passed: bool, turns: int, max_turns: int, baseline: float | None) -> float:
        """Reward of the last turn under `shaped` and `binary`.

        Args:
            rate: Weighted mean score of the assertions, in [0, 1].
            passed: Whether every assertion passed.
            turns: Turns done.
            max_turns: The turn budget.
            baseline: Rate of the untouched workspace, where `needs_start`; else `None`.
        """
        if self.kind is RewardKind.BINARY:
            return 1.0 if passed else 0.0
        return self.above(rate, baseline) - self.turn_penalty * min(turns / max_turns, 1.0)


def _rule(name: str, thing: Any) -> type[RewardRule]:
    if not (isinstance(thing, type) and issubclass(thing, RewardRule)):
        raise ValueError("is no subclass of envs.rewards.RewardRule")
    return thing


REWARDS: Registry[type[RewardRule]] = Registry(
    "reward", "turngym.rewards", {kind.value: RewardRule for kind in RewardKind}, take=_rule
)
"""What `reward` may name."""


def reward_rule(name: str, turn_penalty: float = 0.2, subtract_baseline: bool = False) -> RewardRule:
    """The rule of a name.

    Raises:
        ValueError: There is none of that name, it cannot be used, or a setting would have no effect.
    """
    made = REWARDS.find(str(name))
    kind = RewardKind(name) if REWARDS.ships(str(name)) else str(name)
    return made(kind, turn_penalty, subtract_baseline)
