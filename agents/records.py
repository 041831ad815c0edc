"""Formats of trajectory files: ours, field-notes episodes both ways, Retrain's generations."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from agents.policy import FinishReason
from agents.trajectory import RecordError, Trajectory, Turn, check_lengths, parse_records
from envs.actions import ActionKind
from envs.episode import StopReason
from tasks.sources.fieldnotes import KINDS

# -- Foreign records as pydantic models: known keys are checked, others are kept --------------------------------------


class Shape(BaseModel):
    """A part of a record. A key that the format does not know is kept under its name in `other`."""

    model_config = ConfigDict(extra="allow")

    @classmethod
    def of(cls, record: dict[str, Any]) -> Self:
        """Check a record.

        Raises:
            RecordError: A key is missing or its value has the wrong type; names the key.
        """
        try:
            return cls.model_validate(record)
        except ValidationError as error:
            item = error.errors(include_url=False)[0]
            key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
            raise RecordError(f"{key}: {item['msg'][0].lower()}{item['msg'][1:]}") from None

    @property
    def other(self) -> dict[str, Any]:
        """Keys that the format does not know."""
        return dict(self.model_extra or {})


# -- Field-notes episodes, both ways: `trajectories.jsonl` and `trajectory_bundle.jsonl` ------------------------------
# The format holds text. What it lost before we read it, and what that means here:
#
# * No ids, so nothing can be trained on: such turns have empty `ids`, and `Trajectory.flat` refuses them. Records
# that we
#   wrote have the ids beside the text, and come back with them.
# * `agent_response`, `stdout` and `stderr` are cut to about 4,000 characters, with a marker in the middle. A reply
# that
#   was cut is noted on its turn (`text_cut`); its command is whole, for it has a key of its own.
# * A reply is recorded as its one command: their parser takes the first line of the first block, and drops a command
# that
#   stands beside the stop word. Replay plays what ran, not the reply.
# * `advantage` is rounded to 4 decimals. It stays in the notes, and is used for nothing.
# * `agent_error` is a failure of their engine: the episode ends as `infrastructure`, without reward and grade (those
# of
#   the record stay in the notes), and the empty reply that stands for the failed call is no turn.
# * A grade with nothing to check passes there. Here it does not.

FIELDNOTES = "fieldnotes"
_AGENT_ERROR = "agent_error"
_STOPS = {
    "task_complete": StopReason.SUBMITTED,
    "max_turns": StopReason.MAX_TURNS,
    _AGENT_ERROR: StopReason.INFRASTRUCTURE,
    "max_tokens": StopReason.MAX_TOKENS,  # ours, like those that follow: their rollouts know no such ends
    "max_seconds": StopReason.MAX_SECONDS,
    "lost": StopReason.LOST,
}
_BACK = {ours: theirs for theirs, ours in _STOPS.items()}
_ACTIONS = {"shell": ActionKind.COMMAND, "done": ActionKind.SUBMIT}
_CUT = re.compile(r"\[truncated \d+ chars?\]")


class _Action(Shape):
    kind: str
    cmd: str | None = None


class _Observation(Shape):
    exit_code: int | None = None
    stdout: str = ""
    stderr: str = ""
    timed_out: bool = False


class _Turn(Shape):
    turn: int
    agent_response: str | None
    action: _Action | None = None
    observation: _Observation | None = None
    parse_error: str | bool | None = None
    # Ours, beside the text.
    token_ids: list[int] | None = None
    context_ids: list[int] | None = None
    logprobs: list[float] | None = None
    entropy: list[float] | None = None
    forced: list[bool] | None = None
    truncated: bool | None = None
    seed: int | None = None


class _Check(Shape):
    kind: str
    path: str = ""
    passed: bool
    detail: str | None = ""
    name: str | None = None  # ours, where an assertion was given one


class _Grade(Shape):
    passed: bool
    n_passed: int
    n_total: int
    assertions: list[_Check] = []


class _Episode(Shape):
    task_id: str
    turns: list[_Turn]
    stopped: str
    n_turns: int | None = None
    model: str | None = None
    wall_seconds: float | None = None
    final_grade: _Grade | None = None
    prompt_ids: list[int] | None = None
    error: Any = None  # ours, in words


class _Rollout(Shape):
    rollout_idx: int
    reward: float | None
    trajectory: dict[str, Any]
    advantage: float | None = None
    tds_regen_attempts: float | None = None


class _Bundle(Shape):
    task_id: str
    k: int
    rollouts: list[_Rollout]
    rewards: list[float | None]
    temperature: float | None = None
    reward_mode: str | None = None


def from_record(record: dict[str, Any]) -> Trajectory:
    """One line of `trajectories.jsonl`. It has a grade and no reward.

    Raises:
        RecordError: A key is missing or has a value of the wrong type, or a word is unknown; names the key.
    """
    given = _Episode.of(record)
    if given.stopped not in _STOPS:
        raise RecordError(f"stopped: '{given.stopped}' is unknown; known are {', '.join(_STOPS)}")
    out = Trajectory(given.task_id, "", 0, None, given.prompt_ids or [], source=FIELDNOTES)
    out.stop_reason = _STOPS[given.stopped].value
    kept = {"model": given.model, "wall_seconds": given.wall_seconds, **given.other}
    ours = given.stopped == _AGENT_ERROR and isinstance(given.error, str)
    if not ours:
        kept["error"] = given.error
    out.notes = {key: value for key, value in kept.items() if value is not None}
    turns = given.turns
    if given.stopped == _AGENT_ERROR:
        out.error = f"{_AGENT_ERROR}: the engine of the recorded run failed"
        if turns and not turns[-1].agent_response:
            detail = turns[-1].parse_error
            out.error += f" at turn {len(turns) - 1}" + (f": {detail}" if isinstance(detail, str) else "")
            turns = turns[:-1]
        if ours:
            out.error = given.error
        if given.final_grade is not None:
            out.notes["grade_of_a_broken_episode"] = given.final_grade.model_dump()
    elif given.final_grade is not None:
        _grade(out, given.final_grade)
    whole = given.prompt_ids is not None and all(
        turn.token_ids is not None and turn.context_ids is not None for turn in turns
    )
    out.turns = [_turn(index, turn, whole) for index, turn in enumerate(turns)]
    return out


def from_bundle(record: dict[str, Any]) -> list[Trajectory]:
    """One line of `trajectory_bundle.jsonl`: the episodes of a group, with their rewards.

    Raises:
        RecordError: As in `from_record`, or the group has not as many episodes and rewards as it says.
    """
    given = _Bundle.of(record)
    if not given.k == len(given.rollouts) == len(given.rewards):
        raise RecordError(f"k: is {given.k}, with {len(given.rollouts)} rollouts and {len(given.rewards)} rewards")
    out: list[Trajectory] = []
    for place, rollout in enumerate(given.rollouts):
        try:
            one = from_record({"task_id": given.task_id, **rollout.trajectory})
        except RecordError as error:
            raise RecordError(f"rollouts[{place}].trajectory.{error}") from error
        if one.task_id != given.task_id:
            raise RecordError(f"rollouts[{place}].trajectory.task_id: is '{one.task_id}' in '{given.task_id}'s group")
        one.attempt = rollout.rollout_idx
        one.sampling = "" if given.temperature is None else f"T={given.temperature:g}"
        broken = one.stop_reason == StopReason.INFRASTRUCTURE
        one.reward = None if broken else rollout.reward
        kept = {
            "reward_mode": given.reward_mode,
            "advantage": rollout.advantage,
            "tds_regen_attempts": rollout.tds_regen_attempts,
            "reward_of_a_broken_episode": rollout.reward if broken else None,
        }
        one.notes |= {key: value for key, value in kept.items() if value is not None}
        out.append(one)
    return out


def to_record(episode: Trajectory) -> dict[str, Any]:
    """An episode as a line of `trajectories.jsonl`, with ids, logprobs, entropy, attempts, `truncated` and seed beside.

    What the format has no place for is left out: signals, anchors, rejected samples, replies' bounds. An assertion's
    name stands beside its kind and path, for kinds and paths do not tell all of them apart. Nor is there a place for
    prompts that show older observations as lines: such an episode is written without their ids, and reads back as text.
    `stdout` holds the whole observation, as the agent saw it first. An `infrastructure` episode is an `agent_error`
    there, without a grade.
    `max_tokens`, `max_seconds` and `lost` are stops of ours. Their grade counts every assertion alike, so weights are
    lost.
    """
    checks = [_their_check(item) for item in episode.assertions]
    grade = None
    if episode.passed is not None:
        grade = {
            "task_id": episode.task_id,
            "passed": episode.passed,
            "n_passed": sum(check["passed"] for check in checks),
            "n_total": len(checks),
            "assertions": checks,
        }
    return {
        "task_id": episode.task_id,
        "model": episode.notes.get("model"),
        "n_turns": len(episode.turns),
        "stopped": _BACK[StopReason(episode.stop_reason)],
        "wall_seconds": round(sum(turn.model_seconds + turn.sandbox_seconds for turn in episode.turns), 3),
        "turns": [_their_turn(turn) for turn in episode.turns],
        "final_grade": grade,
        **({"prompt_ids": episode.prompt_ids} if episode.prompt_ids and episode.keep_observations is None else {}),
        "error": episode.error,
    }


def _turn(index: int, given: _Turn, with_ids: bool) -> Turn:
    reply = given.agent_response or ""
    finish = None if given.truncated is None else FinishReason.LENGTH if given.truncated else FinishReason.STOP
    turn = Turn(index, [], [], None, None, [], finish, reply)
    if given.token_ids is not None:
        lists = {"logprobs": given.logprobs, "entropy": given.entropy, "forced": given.forced}
        check_lengths(f"turns[{index}].", lists, len(given.token_ids), "token_ids")
    if with_ids and given.token_ids is not None and given.context_ids is not None:
        turn.ids, turn.context_ids, turn.logprobs, turn.entropies = (
            given.token_ids, given.context_ids, given.logprobs, given.entropy,
        )  # fmt: skip
        turn.forced = given.forced if given.forced is not None else [False] * len(turn.ids)
    turn.seed = given.seed
    if _CUT.search(reply):
        turn.notes["text_cut"] = 1.0
    seen = given.observation
    if given.action is None and not given.parse_error and seen is None:
        pass  # it was never carried out
    elif given.action is None or given.parse_error:
        turn.action = ActionKind.MALFORMED.value
        turn.observation = given.parse_error if isinstance(given.parse_error, str) else "parse error"
    elif given.action.kind not in _ACTIONS:
        raise RecordError(f"turns[{index}].action.kind: '{given.action.kind}' is unknown; known: {', '.join(_ACTIONS)}")
    else:
        turn.action, turn.command = _ACTIONS[given.action.kind].value, given.action.cmd
    if seen is not None:
        turn.exit_code, turn.timed_out = seen.exit_code, seen.timed_out
        streams = [("stdout", seen.stdout), ("stderr", seen.stderr)]
        if seen.exit_code is not None:
            turn.observation = "\n".join(f"{name}:\n{text}" for name, text in streams if text)
    return turn


def _grade(out: Trajectory, grade: _Grade) -> None:
    if not 0 <= grade.n_passed <= grade.n_total:
        raise RecordError(f"final_grade.n_passed: is {grade.n_passed} of {grade.n_total}")
    out.passed = grade.passed and grade.n_total > 0
    out.rate = grade.n_passed / grade.n_total if grade.n_total else None
    for item in grade.assertions:
        kind = KINDS[item.kind][0] if item.kind in KINDS else item.kind
        out.assertions.append(
            {
                "name": f"{kind}:{item.path}" if item.name is None else item.name,
                "kind": kind,
                "verdict": "pass" if item.passed else "fail",
                "score": float(item.passed),
                "detail": item.detail or "",
            }
        )


def _their_turn(turn: Turn) -> dict[str, Any]:
    malformed = turn.action == ActionKind.MALFORMED
    kind = "shell" if turn.command is not None else "done"
    carried_out = turn.action and not malformed
    action = {"kind": kind, "cmd": turn.command} if carried_out else None
    ran = turn.exit_code is not None
    seen = {
        "exit_code": turn.exit_code,
        "stdout": turn.observation,
        "stderr": "",
        "timed_out": bool(turn.timed_out),
    }
    return {
        "turn": turn.index,
        "agent_response": turn.reply,
        "action": action,
        "observation": seen if ran else None,
        "parse_error": turn.observation if malformed else None,
        "token_ids": turn.ids or None,
        "context_ids": turn.context_ids if turn.ids else None,
        "logprobs": turn.logprobs,
        "entropy": turn.entropies,
        "forced": turn.forced if any(turn.forced) else None,
        "attempts": 1 + len(turn.candidates),
        "truncated": None if turn.finish is None else turn.finish is FinishReason.LENGTH,
        "seed": turn.seed,
    }


_THEIR_KINDS = {ours: theirs for theirs, (ours, _) in KINDS.items()}


def _their_check(record: dict[str, Any]) -> dict[str, Any]:
    kind, name = str(record.get("kind")), str(record.get("name"))
    return {
        "kind": _THEIR_KINDS.get(kind, kind),
        "path": name.partition(":")[2] or name,
        "passed": record.get("verdict") == "pass",
        "detail": record.get("detail") or "",
        "name": record.get("name"),
    }


def to_records(episodes: Iterable[Trajectory]) -> Iterable[dict[str, Any]]:
    """Every episode as a record.

    Raises:
        RecordError: An episode does not say how it ended, or has messages to a user.
    """
    for place, episode in enumerate(episodes):
        if any(turn.action == ActionKind.MESSAGE for turn in episode.turns):
            raise RecordError(
                f"episode {place} (task '{episode.task_id}') has messages to a user: the format has no place for them"
            )
        if not episode.stop_reason:
            raise RecordError(f"episode {place} (task '{episode.task_id}') has no stop reason: the format needs one")
        yield to_record(episode)


# -- Retrain's `emergence/generations.jsonl`, one reply a line, and the variant of textpolicy -------------------------
# What the format lost before we read it:
#
# * `prompt` is cut at 200 characters and `completion` at 500 (noted as `text_cut` where it has that length), and
# neither
#   a task nor a group is named: an episode gets the id `retrain:` and a hash of its prompt, and counts its attempts
#   within a step. Two prompts that begin alike look the same.
# * There are no ids (textpolicy has those of the reply, with log-probabilities and entropies, but none of the
# prompt), no
#   stop reason and no grade. Nothing can be trained on or replayed; rewards and lengths can be looked at.

RETRAIN = "retrain"
COMPLETION_CHARACTERS = 500


class _Generation(Shape):
    step: int
    prompt: str
    completion: str
    reward: float | None
    num_tokens: int | None = None
    tokens: list[int] | None = None
    logprobs: list[float] | None = None
    entropy_per_token: list[float] | None = None


class Reader:
    """Reads the records of one file in order; it counts the attempts."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[int, str]] = Counter()

    def read(self, record: dict[str, Any]) -> list[Trajectory]:
        """The episode of one record.

        Raises:
            RecordError: A key is missing or has a value of the wrong type; names the key.
        """
        given = _Generation.of(record)
        ids = given.tokens or []
        lists = {"logprobs": given.logprobs, "entropy_per_token": given.entropy_per_token}
        if given.tokens is not None:
            check_lengths("", lists, len(ids), "tokens")
        task = f"{RETRAIN}:{hashlib.sha256(given.prompt.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
        attempt = self._seen[given.step, task]
        self._seen[given.step, task] += 1
        turn = Turn(
            0,
            [],
            ids,
            given.logprobs if ids else None,
            given.entropy_per_token if ids else None,
            [False] * len(ids),
            None,
            given.completion,
        )
        if len(given.completion) >= COMPLETION_CHARACTERS:
            turn.notes["text_cut"] = 1.0
        if given.num_tokens is not None:
            turn.notes["num_tokens"] = float(given.num_tokens)
        episode = Trajectory(task, "", attempt, None, [], [turn], reward=given.reward, source=RETRAIN)
        episode.notes = {"step": given.step, "prompt": given.prompt, **given.other}
        return [episode]


# -- Trajectories of any format this package knows, told apart by the keys of the first record ------------------------
# | format | file |
# |---|---|
# | `turngym` | our own, token for token |
# | `fieldnotes` | `trajectories.jsonl`, one episode a line |
# | `bundle` | `trajectory_bundle.jsonl`, one group of episodes a line |
# | `retrain` | `emergence/generations.jsonl`, one reply a line |
#
# A format is a row of `FORMATS`. Ours is `agents.trajectory`; the others are read by modules of this folder.

Read = Callable[[dict[str, Any]], Iterable[Trajectory]]
"""The episodes of one record."""


@dataclass(frozen=True, slots=True)
class Format:
    """How files of a format are known and read.

    Attributes:
        keys: Every record has them.
        reader: What reads the records of one file, in order.
    """

    keys: tuple[str, ...]
    reader: Callable[[], Read]


FORMATS = {
    "turngym": Format(
        ("prompt_ids", "turns", "task_hash"),
        lambda: lambda record: [Trajectory.from_json(record)],
    ),
    "bundle": Format(("rollouts", "task_id"), lambda: from_bundle),
    "fieldnotes": Format(("task_id", "turns", "stopped"), lambda: lambda record: [from_record(record)]),
    "retrain": Format(("prompt", "completion", "reward"), lambda: Reader().read),
}
"""The formats by name; a record is of the first whose keys it has."""


def format_of(record: dict[str, Any]) -> str:
    """The format of a record.

    Raises:
        RecordError: It has the keys of none.
    """
    for name, row in FORMATS.items():
        if all(key in record for key in row.keys):
            return name
    wanted = "; ".join(f"{name}: {', '.join(row.keys)}" for name, row in FORMATS.items())
    raise RecordError(f"is no record of a known format: its keys are {', '.join(record) or 'none'} (needed: {wanted})")


def read_trajectories(path: str | Path, *, allow_cut: bool = False) -> Iterator[Trajectory]:
    """Trajectories of a file in any known format, one at a time.

    Args:
        path: The file; the first record decides about its format.
        allow_cut: Leave out a last line that was never written to its end (a crash), with a warning.

    Raises:
        RecordError: A line is no record of the file's format; the message names file, line and key.
        OSError: The file cannot be read.
    """
    yield from RecordFile(path, allow_cut=allow_cut).read()


_LOGPROBS = re.compile(rb'("(?:max_)?logprobs": )\[[^\]]*\]')
"""Lists of numbers under these keys. In a text of JSON a quote has a backslash before it, so none looks like a key."""


class RecordFile:
    """One file of trajectories in any known format, read as far as it goes, and later on from there.

    Args:
        path: The file; its first record decides about its format.
        allow_cut: See `read_trajectories`.
        growing: Somebody may be writing it: a last line without its end is left for the next `read`.
        logprobs: False leaves log-probabilities out, for those who only look: half of the numbers to be read.
    """

    def __init__(
        self, path: str | Path, *, allow_cut: bool = False, growing: bool = False, logprobs: bool = True
    ) -> None:
        self.path, self._allow_cut, self._growing, self._logprobs = path, allow_cut, growing, logprobs
        self._offset = self._lines = 0
        self._read: Read | None = None
        self._kind = ""

    def read(self) -> Iterator[Trajectory]:
        """Trajectories that no call gave before; raises what `read_trajectories` does."""
        with open(self.path, "rb") as file:
            file.seek(self._offset)
            records = parse_records(self._new(file), self.path, first=self._lines + 1, allow_cut=self._allow_cut)
            for number, record in records:
                try:
                    if self._read is None:
                        name = format_of(record)
                        self._read, self._kind = FORMATS[name].reader(), f"no record of the format {name}: "
                    yield from self._read(record)
                except RecordError as error:
                    raise RecordError(f"{self.path}:{number}: not a trajectory ({self._kind}{error})") from error

    def _new(self, file: BinaryIO) -> Iterator[bytes]:
        for line in file:
            if self._growing and not line.endswith(b"\n"):
                return
            self._offset += len(line)
            self._lines += 1
            yield line if self._logprobs else _LOGPROBS.sub(rb"\1null", line)
