"""Episodes of field-notes, both ways: `trajectories.jsonl` and `trajectory_bundle.jsonl`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from agents.policy import FinishReason
from agents.trajectory import RecordError, Trajectory, Turn, check_lengths
from envs.actions import ActionKind
from envs.episode import StopReason
from sandboxes.sandbox import CommandResult
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
# * No ids: such turns have empty `ids`, and `Trajectory.flat` refuses them. Records that we wrote have the ids beside
#   the text, and come back with them. `python -m trainers.sft` makes conversations of the text (`exchanges`).
# * `agent_response`, `stdout` and `stderr` are cut to about 4,000 characters, with a marker in the middle. A reply that
#   was cut is noted on its turn (`text_cut`); its command is whole, for it has a key of its own.
# * A reply is recorded as its one command: their parser takes the first line of the first block, and drops a command
#   that stands beside the stop word. Replay plays what ran, not the reply.
# * The attempts at a task are not numbered in `trajectories.jsonl`: they are counted as they come.
# * `advantage` is rounded to 4 decimals. It stays in the notes, and is used for nothing.
# * `agent_error` is a failure of their engine: the episode ends as `infrastructure`, without reward and grade (those of
#   the record stay in the notes), and the empty reply that stands for the failed call is no turn.
# * A grade with nothing to check passes there. Here it does not.

FIELDNOTES = "fieldnotes"
ATTEMPTS = "attempts"
"""Note of a turn: samples that were drawn for it, of which the last one was kept."""
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
    attempts: int | None = None


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


class Episodes:
    """Reads the records of one `trajectories.jsonl` in order, and numbers the attempts at a task."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def read(self, record: dict[str, Any]) -> list[Trajectory]:
        """The episode of one record; raises what `from_record` does."""
        episode = from_record(record)
        episode.attempt = self._seen[episode.task_id]
        self._seen[episode.task_id] += 1
        return [episode]


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
    if given.attempts is not None and given.attempts > 1:
        turn.notes[ATTEMPTS] = float(given.attempts)  # their texts are not recorded
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
        "attempts": 1 + len(turn.candidates) if turn.candidates else int(turn.notes.get(ATTEMPTS, 1)),
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


# -- Bundles: the attempts at a task as one record, with their rewards and advantages ---------------------------------

_TEMPERATURE = re.compile(r"T=([0-9.eE+-]+)")
_FLAT = 1e-8
"""Added to the deviation of rewards, as field-notes do."""


def to_bundles(episodes: Iterable[Trajectory]) -> Iterator[dict[str, Any]]:
    """Attempts at one task that follow each other, as lines of `trajectory_bundle.jsonl`.

    A repeated number of an attempt begins a new group. Advantages are field-notes' own, `(r - mean) / std` with the
    deviation of the population, rounded to 4 decimals: not those that a run trained on. A broken episode has neither
    reward nor advantage (`null`), and enters no mean.

    Raises:
        RecordError: As `to_records`.
    """
    group: list[Trajectory] = []
    for episode in episodes:
        if group and (group[0].task_id != episode.task_id or episode.attempt in {one.attempt for one in group}):
            yield _bundle(group)
            group = []
        group.append(episode)
    if group:
        yield _bundle(group)


def _bundle(group: list[Trajectory]) -> dict[str, Any]:
    trajectories = list(to_records(group))
    rewards = [None if one.stop_reason == StopReason.INFRASTRUCTURE else one.reward for one in group]
    known = [reward for reward in rewards if reward is not None]
    mean, spread = (fmean(known), pstdev(known)) if known else (0.0, 0.0)
    advantages = [None if r is None else round((r - mean) / (spread + _FLAT), 4) for r in rewards]
    first = group[0]
    drawn = _TEMPERATURE.fullmatch(first.sampling)
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    stats = {"mean": mean, "stdev": spread, "min": low, "max": high, "spread": high - low}
    return {
        "task_id": first.task_id,
        "k": len(group),
        "temperature": float(drawn[1]) if drawn else None,
        "reward_mode": first.environment.get("reward") or first.notes.get("reward_mode"),
        "rewards": rewards,
        "advantages": advantages,
        "n_turns": [record["n_turns"] for record in trajectories],
        "stops": [record["stopped"] for record in trajectories],
        "rewards_stats": stats if known else None,
        "rollouts": [
            {
                "rollout_idx": episode.attempt,
                **{key: record[key] for key in ("n_turns", "stopped", "wall_seconds")},
                **{key: (record["final_grade"] or {}).get(key) for key in ("n_passed", "n_total", "passed")},
                "reward": reward,
                "advantage": advantage,
                "tds_regen_attempts": sum(turn["attempts"] - 1 for turn in record["turns"]),
                "trajectory": record,
            }
            for episode, record, reward, advantage in zip(group, trajectories, rewards, advantages, strict=True)
        ],
    }


# -- A record of text as exchanges, for who trains on what was said ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exchange:
    """A reply that was carried out, and what came of it.

    Attributes:
        reply: As it is recorded; `None` where it was cut.
        command: What ran.
        result: What the command did; `None` where nothing ran.
        shown: What the agent was shown, where the record has that itself (we wrote it).
    """

    reply: str | None
    command: str | None
    result: CommandResult | None
    shown: str | None


def exchanges(record: dict[str, Any]) -> list[Exchange]:
    """The turns of an episode that did something; those that were refused changed nothing and are left out.

    Raises:
        RecordError: As `from_record`.
    """
    given = _Episode.of(record)
    episode = from_record(record)
    out = []
    for turn, said in zip(episode.turns, given.turns, strict=False):
        if turn.action not in (ActionKind.COMMAND, ActionKind.SUBMIT):
            continue
        seen, result = said.observation, None
        if seen is not None and seen.exit_code is not None:
            streams = (seen.stdout.encode(errors="replace"), seen.stderr.encode(errors="replace"))
            result = CommandResult(seen.exit_code, *streams, timed_out=seen.timed_out)
        ours = "context_ids" in record["turns"][turn.index]
        out.append(
            Exchange(
                None if "text_cut" in turn.notes else turn.reply,
                turn.command,
                result,
                seen.stdout if ours and seen is not None else None,
            )
        )
    return out
