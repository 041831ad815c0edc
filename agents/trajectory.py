"""The record of one attempt, token for token, and of the environment it was played in; JSON lines in and out."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, TextIO

from pydantic import AllowInfNan, ConfigDict, StrictBool, StrictFloat, StrictInt, TypeAdapter, ValidationError

from agents.chat import Exchanged, shown
from agents.policy import Candidate, FinishReason
from envs.conversation import ConversationEnv
from envs.episode import StopReason
from envs.mixed import MixedEnv, kind_of_env
from envs.questions import AnswerEnv
from envs.registry import BUILT_IN, environment, id_of
from envs.rewards import RewardRule
from envs.sandboxed import Place
from envs.user import ClawGymUserEnv
from envs.wrapping import WrappedConversation
from tasks.model import unknown_key
from tasks.task import Task
from tasks.user import Speaker

# -- Records of a JSONL file, one at a time, each with the line it stands on ------------------------------------------

log = logging.getLogger(__name__)


class RecordError(ValueError):
    """A file holds something else than the records it should; the message names file, line and key."""


def read_records(
    path: str | Path, *, allow_cut: bool = False, warn: Callable[[str], object] = log.warning
) -> Iterator[tuple[int, dict[str, Any]]]:
    """JSON objects of a file with their line numbers (from 1); blank lines are passed over. Nothing is read ahead.

    Args:
        path: The file, UTF-8.
        allow_cut: Leave out a last line that was never written to its end (a crash), with a warning.
        warn: Takes the warning; default: the log.

    Raises:
        RecordError: A line is no JSON object.
        OSError: The file cannot be read.
    """
    with open(path, "rb") as file:
        yield from parse_records(file, path, allow_cut=allow_cut, warn=warn)


def parse_records(
    lines: Iterable[bytes],
    path: str | Path,
    *,
    first: int = 1,
    allow_cut: bool = False,
    warn: Callable[[str], object] = log.warning,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The same of lines of a file that stands open, for a reader that goes on where it stopped.

    Args:
        lines: With their ends, as bytes: a crash cuts between bytes, also in the middle of a character.
        path: For messages.
        first: Number of the first line.
        allow_cut: See `read_records`, also for what it raises.
        warn: See `read_records`.
    """
    for number, line in enumerate(lines, start=first):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode())
        except (ValueError, RecursionError) as error:
            if line.endswith(b"\n"):
                kind = "UTF-8 text" if isinstance(error, UnicodeDecodeError) else "JSON"
                raise RecordError(f"{path}:{number}: is no {kind} ({error})") from error
            if not allow_cut:
                raise RecordError(
                    f"{path}:{number}: the last line is cut: whoever wrote the file stopped in the middle of it. "
                    "The lines before it are whole: remove it, or leave it out with allow_cut=True (--allow-cut of "
                    "python -m agents)"
                ) from error
            warn(f"{path}:{number}: left out the last line, which is cut: its writer stopped in the middle of it")
            return
        if not isinstance(record, dict):
            raise RecordError(f"{path}:{number}: must be a JSON object, is {type(record).__name__}")
        yield number, record


def check_lengths(place: str, lists: Mapping[str, Sized | None], count: int, what: str) -> None:
    """Every list that is there has an entry for each id of a reply.

    Args:
        place: Stands before the keys in the message.
        lists: By key.
        count: Of the ids.
        what: What the record calls them.

    Raises:
        RecordError: One has more or fewer.
    """
    for key, values in lists.items():
        if values is not None and len(values) != count:
            raise RecordError(f"{place}{key}: has {len(values)} entries for {count} {what}")


# -- What must be the same in two environments so that they show an agent the same: written with every trajectory -----

OWN_REWARD = "own_reward"
"""The key that says that the reward is not the one `reward` names: a subclass, a rule or a wrapper of the
user's pays another."""
_SHIPPED: list[type[ConversationEnv]] = [AnswerEnv, *map(environment, BUILT_IN)]
_BY_CLASS = {kind.__name__: kind for kind in _SHIPPED if kind is not MixedEnv}
"""Those that ship stand in records under the names of their classes."""
_KEYS = ("env", "prompt_hash", "prompt_style", "max_turns", "reward", "turn_penalty", "subtract_baseline",
         "agent_errors", "allow_exposed_judges", "allow_shared_judges", "verifier_network",
         "keep_observations", "tools", "revise", "stops", "protocol", "shots")  # fmt: skip
KEEP = "keep_observations"
"""The key that says how many observations stand in full in a prompt; without it all of them."""
PROTOCOL = "protocol"
"""The key that says how replies said what to do; without it as text."""
WRAPPERS = "wrappers"
"""The key that names wrappers of Gymnasium that may have changed rewards or observations, the outermost first."""
USER = "user"
"""The key that says which model answered as the task's user; without it the task's own rules did."""
_SHOWN = ("env", "prompt_hash", OWN_REWARD, WRAPPERS, USER)
"""Keys that tell of an environment and that none is made with."""
_PAYS = ("step", "finish", "_end", "_progress", "_step_to")
"""Methods of an environment that a reward comes out of."""


def setting_of(env: ConversationEnv | WrappedConversation) -> dict[str, Any]:
    """The settings of an environment whose task is laid out, JSON-able; of one that is none of ours only `KEEP`."""
    wrapped = env if isinstance(env, WrappedConversation) else None
    if wrapped is not None:
        env = wrapped.conversation
    if not isinstance(env, ConversationEnv):
        keep = getattr(env, KEEP, None)
        return {} if keep is None else {KEEP: keep}  # without it nobody could rebuild a prompt
    own = pays_otherwise(env) or (wrapped is not None and wrapped.pays_otherwise)
    if isinstance(env, MixedEnv):
        env = env._member  # who carries the task out
    setting: dict[str, Any] = {
        "env": _name(type(env)),
        "prompt_hash": env.prompt_hash if wrapped is None else wrapped.hash_of(env.prompt_hash),
        "prompt_style": env.style.name,
        "max_turns": env.max_turns,
        "reward": str(env.rule.kind),
        "turn_penalty": env.rule.turn_penalty,
        "subtract_baseline": env.rule.subtract_baseline,
        "agent_errors": env.agent_errors.value,
        **({"allow_exposed_judges": True} if env.allow_exposed_judges else {}),
        **({"allow_shared_judges": True} if env.allow_shared_judges else {}),
        **({"verifier_network": env.verifier_network} if env.verifier_network is not None else {}),
        **({KEEP: env.keep_observations} if env.keep_observations is not None else {}),
        **({OWN_REWARD: True} if own else {}),
        **({WRAPPERS: wrapped.acting} if wrapped is not None and wrapped.acting else {}),
    }
    if env.protocol.tools:
        setting[PROTOCOL] = env.protocol.name
    if isinstance(env, ClawGymUserEnv) and env.speaker is not None:
        setting[USER] = env.speaker.label
    if isinstance(env, AnswerEnv):
        setting |= {"tools": env.tools, "revise": env.revisions, "stops": list(env.stops)}
        setting |= {"shots": [list(example) for example in env.shots]} if env.shots else {}
    return setting


def _name(kind: type[ConversationEnv]) -> str:
    """What stands for a class in a record: its own name or its nearest base's that ships, or its registered id."""
    for base in kind.__mro__:
        if base in _BY_CLASS.values():
            return base.__name__
        if issubclass(base, ConversationEnv) and (name := id_of(base)) is not None:
            return name
    return kind.__name__


def pays_otherwise(env: ConversationEnv) -> bool:
    """Whether a subclass or a rule of somebody else's stands between grade and reward, so that no one here knows it."""
    ours = next((kind for kind in type(env).__mro__ if kind in _BY_CLASS.values() or kind is MixedEnv), None)
    same = ours is not None and all(getattr(type(env), name) is getattr(ours, name) for name in _PAYS)
    return not same or type(env.rule) is not RewardRule


def env_for(
    task: Task, setting: dict[str, Any], sandbox: Place = "auto", *, user: Speaker | None = None
) -> ConversationEnv:
    """An environment of a task as `setting_of` described it; what the setting does not say has its default.

    Args:
        task: Of the episode.
        setting: Of the environment.
        sandbox: Where its commands run.
        user: Who answers as the task's user where a model did; the setting only names it.

    Raises:
        ValueError: A setting is unknown, or the environment takes no such value.
    """
    for key in setting:
        if key not in (*_KEYS, *_SHOWN):
            raise ValueError(unknown_key(key, _KEYS, "setting of an environment"))
    settings = {key: value for key, value in setting.items() if key not in _SHOWN}
    name = setting.get("env")
    kind = kind_of_env(task) if name is None else _BY_CLASS.get(name) or environment(name)
    made: Any = kind
    answers = {} if user is None else {USER: user}
    return made([task], task=task.id, sandbox=sandbox, **settings, **answers)


# -- Turn and Trajectory: the record of one attempt at one task, token for token; JSONL in and out --------------------

SCHEMA = 2
"""Version of the records, under the key `schema`; records without one are version 1 (release 0.4.0)."""


Finite = Annotated[StrictFloat, AllowInfNan(False)]
"""A number that enters means."""

_STOPS = frozenset(["", *StopReason])

LOSSES = "losses"
"""The note that lists the sandboxes lost in all tries at an episode, as `envs.recovery.Loss` records them."""
FORGED = "forged_headers"
"""The note that counts headers of the template in what the agent was shown, each with a backslash in it; none for 0."""


NOTED = ("judge_isolation", "answers", "text_after_stop", "text_after_answer", LOSSES, USER)
"""Keys of `info` at the end that go into a trajectory's notes, where an environment has them."""


@dataclass(slots=True)
class Turn:
    """One reply of the policy and what the environment answered.

    Attributes:
        index: 0 for the first turn.
        context_ids: Ids the chat added before this reply (environment message and template), mask 0. Empty for the
            first turn, whose context is the trajectory's `prompt_ids`.
        ids: The reply's ids as sampled (see `Completion` for the lists beside it). Empty in records of text.
        finish: Why the reply ended; `None` where a foreign record does not say it.
        reply: The reply as text, for people and for the environment.
        action: `command`, `message`, `submit` or `malformed` (see `envs.actions.ActionKind`).
        command: The command that ran, when one did.
        observation: What the environment answered, as text.
        exit_code: The command's, when one ran.
        signal: What the turn earned by itself (change of the file assertions' rate); `None` for none.
        anchor: The state before this turn, as turn groups compare it.
        uncertainty: The turn's uncertainty from the T2PO wrapper; `None` means not known.
        sandbox_seconds: Wall time of the environment's step.
        model_seconds: This turn's share of the batched call that sampled it.
        max_logprobs: See `Completion`, as for `entropy_bounds`.
        seed: Of this reply alone; `None` where nobody recorded it, as for the next two.
        max_tokens: Cap of this reply.
        timed_out: The command ran out of time.
        uncertainty_bounds: `(lower, upper)` of `uncertainty`, where only these are known.
        short_ids: What stands in later prompts for `context_ids`, once that observation is not among the last that are
            shown in full (`keep_observations`); `None` where it stays as it is.
    """

    index: StrictInt
    context_ids: list[StrictInt]
    ids: list[StrictInt]
    logprobs: list[StrictFloat] | None
    entropies: list[StrictFloat] | None
    forced: list[StrictBool]
    finish: FinishReason | None
    reply: str
    action: str = ""
    command: str | None = None
    observation: str = ""
    exit_code: StrictInt | None = None
    signal: StrictFloat | None = None
    anchor: str = ""
    uncertainty: StrictFloat | None = None
    candidates: list[Candidate] = field(default_factory=list)
    notes: dict[str, StrictFloat] = field(default_factory=dict)
    sandbox_seconds: StrictFloat = 0.0
    model_seconds: StrictFloat = 0.0
    max_logprobs: list[StrictFloat] | None = None
    entropy_bounds: list[tuple[StrictFloat, StrictFloat]] | None = None
    seed: StrictInt | None = None
    max_tokens: StrictInt | None = None
    timed_out: StrictBool | None = None
    uncertainty_bounds: tuple[StrictFloat, StrictFloat] | None = None
    short_ids: list[StrictInt] | None = None

    def answered(self, observation: str, info: Mapping[str, Any]) -> None:
        """Record what the environment answered to the reply: the observation and `info` of its `step`."""
        code = info["exit_code"]
        self.action, self.command, self.observation = info["action"], info["command"], observation
        self.exit_code = None if code is None else int(code)
        self.signal, self.timed_out = info["signal"], info["timed_out"]


@dataclass(slots=True)
class Flat:
    """A trajectory as one completion for a trainer. All lists have one entry per completion id.

    Attributes:
        ids: Replies and the environment's messages between them; nothing after the last reply. Of an episode whose
            prompts show older observations as lines, the replies alone: `Trajectory.prompts` has what is before each.
        mask: 1 where the id was sampled; 0 for environment, template and forced ids.
        logprobs: The sampler's; 0.0 where `mask` is 0.
        entropies: The sampler's; 0.0 where `mask` is 0. `None` where the engine knew none.
        turn_ids: Index of the turn that sampled the id; -1 where `mask` is 0.
    """

    ids: list[int]
    mask: list[int]
    logprobs: list[float]
    entropies: list[float] | None
    turn_ids: list[int]


@dataclass(slots=True)
class Trajectory:
    """One attempt at one task.

    Attributes:
        task_id: The task; `task_hash` its content hash.
        attempt: 0..K-1 within the group.
        seed: The episode's seed; `None` where a foreign record does not say it.
        prompt_ids: Ids before the first reply.
        stop_reason: `submitted`, `max_turns`, `max_seconds`, `max_tokens`, `lost` or `infrastructure` (see
            `envs.episode`).
        reward: `None` when the episode has none (infrastructure): it enters no mean.
        passed: All assertions pass; `None` without a grade.
        rate: Mean assertion score in [0, 1]; `None` without a grade.
        assertions: The grade, one record per assertion (name, kind, verdict, score, detail; `broke` where it is true).
        error: What failed, for `infrastructure`.
        sampling: The decode settings, as a label.
        family: Family of the task (or its set).
        notes: What only some environments or formats say, JSON-able: `answers`, `text_after_stop`, `text_after_answer`,
            `user` (what the task's user said); and `losses`, the sandboxes that were lost in it.
        tokenizer: Fingerprint of tokenizer and chat template (`ChatTemplate.fingerprint`); other ids, other hash.
        environment: Settings of the environment that another one needs to show the same (see `agents.trajectory`).
        source: Format of the file that it came from, where that is not ours (`fieldnotes`, `retrain`).
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    task_id: str
    task_hash: str
    attempt: StrictInt
    seed: StrictInt | None
    prompt_ids: list[StrictInt]
    turns: list[Turn] = field(default_factory=list)
    stop_reason: str = ""
    reward: Finite | None = None
    passed: StrictBool | None = None
    rate: Finite | None = None
    assertions: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None
    sampling: str = ""
    family: str | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    tokenizer: str | None = None
    environment: dict[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def text_only(self) -> bool:
        """Text without ids (most foreign records): it can be shown and replayed, not trained on."""
        return any(not turn.ids for turn in self.turns)

    @property
    def keep_observations(self) -> int | None:
        """How many of the last observations its prompts showed in full; `None`: all, the conversation only grew."""
        keep: int | None = self.environment.get(KEEP)
        return keep

    def prompts(self) -> list[list[int]]:
        """All ids before each reply, one list per turn: exactly what was sampled from."""
        past: list[Exchanged] = []
        out = []
        for turn, after in zip_longest(self.turns, self.turns[1:]):
            out.append(shown(self.prompt_ids, past, self.keep_observations))
            if after is not None:
                past.append(Exchanged(turn.ids, after.context_ids, after.short_ids))
        return out

    def graded(self, reward: float, info: Mapping[str, Any]) -> None:
        """Record the grade: the reward of all turns, and `info` at the end of the episode."""
        self.reward, self.stop_reason = reward, info["stop_reason"]
        self.passed, self.rate, self.assertions = info["passed"], info["rate"], list(info["assertions"])
        self.notes |= {key: info[key] for key in NOTED if key in info}

    def flat(self) -> Flat:
        """The episode as one completion: sampled ids with mask 1, everything between them with mask 0.

        Where older observations are shown as lines no one sequence holds all that was seen: then there is nothing
        between the replies, and who computes on them takes the prompt of each from `prompts`.

        Raises:
            ValueError: Nothing can be trained on it: a turn has no ids or no log-probabilities (it was read from a
                record of text, or a policy of text alone played it), or the ids before the first reply are unknown.
        """
        self._refuse_untrainable()
        known = all(turn.entropies is not None for turn in self.turns)
        out = Flat([], [], [], [] if known else None, [])
        for turn in self.turns:
            assert turn.logprobs is not None
            context = turn.context_ids if turn.index and self.keep_observations is None else []
            between, sampled = len(context), [not forced for forced in turn.forced]
            out.ids += context + turn.ids
            out.mask += [0] * between + [int(on) for on in sampled]
            out.logprobs += [0.0] * between + _where(sampled, turn.logprobs)
            if out.entropies is not None and turn.entropies is not None:
                out.entropies += [0.0] * between + _where(sampled, turn.entropies)
            out.turn_ids += [-1] * between + [turn.index if on else -1 for on in sampled]
        return out

    def _refuse_untrainable(self) -> None:
        place = f"task '{self.task_id}', attempt {self.attempt}"
        for turn in self.turns:
            if not turn.ids:
                raise ValueError(
                    f"{place}, turn {turn.index}: a record of text without ids ({self.source or 'source unknown'}), so "
                    "it cannot be trained on"
                )
            if turn.logprobs is None:
                raise ValueError(
                    f"{place}, turn {turn.index}: no log-probabilities were recorded (a policy at text level played "
                    "it), so it cannot be trained on"
                )
        if self.source and self.turns and not self.prompt_ids:
            raise ValueError(f"{place}: the ids before its first reply are unknown, so it cannot be trained on")

    def to_json(self) -> dict[str, Any]:
        """A JSON-able record; `from_json` gives the same trajectory back."""
        record = {"schema": SCHEMA, **_adapter().dump_python(self)}
        for key in ("notes", "environment", "source"):
            if not record[key]:
                del record[key]
        for turn in record["turns"]:
            if turn["short_ids"] is None:
                del turn["short_ids"]
        return record

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Trajectory:
        """Rebuild a trajectory from `to_json`'s record, of this release or an earlier one.

        Raises:
            RecordError: A key is unknown, missing or has a value of the wrong type; names the key. Turns count from 0,
                and a stop reason is known or empty.
        """
        record = dict(record)
        schema = record.pop("schema", 1)
        if schema not in range(1, SCHEMA + 1):
            raise RecordError(f"schema: {schema!r} is unknown here (a newer release wrote it); known: 1 to {SCHEMA}")
        try:
            trajectory = _adapter().validate_python(record)
        except ValidationError as error:
            raise RecordError(_complaint(error)) from None
        if trajectory.stop_reason not in _STOPS:
            known = ", ".join(StopReason)
            raise RecordError(f"stop_reason: '{trajectory.stop_reason}' is unknown; known are {known}")
        keep = trajectory.keep_observations
        if keep is not None and (type(keep) is not int or keep < 1):
            raise RecordError(f"environment.{KEEP}: is {keep!r}, must be a whole number of at least 1")
        for place, turn in enumerate(trajectory.turns):
            if turn.short_ids is not None and keep is None:
                raise RecordError(f"turns[{place}].short_ids: environment.{KEEP} does not say when they are shown")
            if turn.index != place:
                raise RecordError(f"turns[{place}].index: is {turn.index}, must be {place}")
            lists = ("logprobs", "entropies", "forced", "max_logprobs", "entropy_bounds")
            check_lengths(f"turns[{place}].", {name: getattr(turn, name) for name in lists}, len(turn.ids), "ids")
        return trajectory


def write_jsonl(trajectories: Iterable[Trajectory], file: TextIO) -> None:
    """Append one line per trajectory; each line is written whole and flushed, so a crash loses at most one."""
    for trajectory in trajectories:
        record = trajectory.to_json()
        try:
            line = _records().dump_json(record).decode()  # five times as fast as `json`
        except ValueError:  # half a character: the file's own way with such ones may write it
            line = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
        file.write(line + "\n")
        file.flush()


def read_jsonl(path: str | Path, *, allow_cut: bool = False) -> Iterator[Trajectory]:
    """Trajectories of a file, in order, one at a time. `agents.records` reads other formats, too.

    Args:
        path: A file that `write_jsonl` wrote, of this release or an earlier one.
        allow_cut: Leave out a last line that was never written to its end (a crash), with a warning.

    Raises:
        RecordError: A line is no trajectory; the message names file, line and key.
        OSError: The file cannot be read.
    """
    for number, record in read_records(path, allow_cut=allow_cut):
        try:
            yield Trajectory.from_json(record)
        except RecordError as error:
            raise RecordError(f"{path}:{number}: not a trajectory ({error})") from error


Attempt = tuple[str, int]
"""A task, and the number of an attempt at it."""


def attempt_of(episode: Trajectory) -> Attempt:
    """Which attempt an episode is."""
    return episode.task_id, episode.attempt


def groups(trajectories: Sequence[Trajectory]) -> dict[str, list[Trajectory]]:
    """Trajectories by task, in order of first appearance."""
    out: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        out.setdefault(trajectory.task_id, []).append(trajectory)
    return out


def _where(sampled: Sequence[bool], values: list[float]) -> list[float]:
    """One value for each id, and 0.0 for those that were not sampled."""
    return values if all(sampled) else [value if on else 0.0 for value, on in zip(values, sampled, strict=True)]


@cache
def _adapter() -> TypeAdapter[Trajectory]:
    return TypeAdapter(Trajectory)


@cache
def _records() -> TypeAdapter[dict[str, Any]]:
    return TypeAdapter(dict[str, Any], config=ConfigDict(ser_json_inf_nan="constants"))


def _complaint(error: ValidationError) -> str:
    """The first problem in words, an unknown key before all others (a missing one is often the same, misspelt)."""
    problems = error.errors(include_url=False)
    unknown = [item for item in problems if item["type"] == "unexpected_keyword_argument"]
    item = (unknown or problems)[0]
    *above, last = item["loc"]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in item["loc"]).lstrip(".")
    if unknown:
        kind = {0: Trajectory, 2: Turn}.get(len(above), Candidate)
        return f"{key}: {unknown_key(last, [f.name for f in fields(kind)])}"
    if item["type"] == "missing_argument" or item["type"] == "missing":
        return f"{key}: is missing"
    return f"{key}: {item['msg'][0].lower()}{item['msg'][1:]}"
