"""Play a stored episode again in a fresh sandbox, and grade it again.

Replies are sent as they were recorded. Records of text from elsewhere are played by their commands, for another parser
read the replies (see `agents.fieldnotes`); a turn that asked for nothing is an empty reply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from agents.chat import ChatTemplate, Conversation
from agents.chat_tools import template_of
from agents.policy import FinishReason
from agents.trajectory import NOTED, OWN_REWARD, PROTOCOL, USER, Trajectory, Turn, env_for, setting_of
from agents.users import RecordedUser, UnlikeThen
from envs.actions import STOP_WORD, ActionKind, fenced
from envs.clawgym import ClawGymEnv
from envs.conversation import ConversationEnv
from envs.episode import CutReply, StopReason
from envs.mixed import kind_of_env
from envs.protocol import DEFAULT_PROTOCOL, protocol
from envs.sandboxed import Place
from sandboxes.sandbox import SandboxError
from tasks.assertions.grade import GradeError
from tasks.task import Task


class ReplayError(ValueError):
    """An episode cannot be played again; the message says why."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where the world is another than it was.

    Attributes:
        turn: Index of the turn; -1 for what stood before the first.
        what: What differs: `observation`, `exit_code`, `context_ids`, ...
        recorded: As it was.
        now: As it is.
    """

    turn: int
    what: str
    recorded: object
    now: object


@dataclass(slots=True)
class Replayed:
    """An episode, played again.

    Attributes:
        recorded: The stored episode.
        now: The same replies with today's answers and today's grade, notes and settings of the environment.
        differences: Of the turns; grades are compared by `same_grade`.
        ids_compared: The ids of prompt and context were computed again (else only texts were compared).
        old_hash: Content hash of the task when it was recorded, where the task has changed since.
    """

    recorded: Trajectory
    now: Trajectory
    differences: list[Difference] = field(default_factory=list)
    ids_compared: bool = False
    old_hash: str | None = None

    @property
    def same_grade(self) -> bool:
        """Passed, rate and every verdict are equal, and the reward, where the environment's own rule gave it."""
        old, new = self.recorded, self.now
        theirs = bool(old.source or old.environment.get(OWN_REWARD))  # what paid it is not played again
        if old.passed != new.passed or _rounded(old.rate) != _rounded(new.rate):
            return False
        if old.reward is not None and not theirs and _rounded(old.reward) != _rounded(new.reward):
            return False
        return all(then == now for _, then, now in self.verdicts())

    def verdicts(self) -> Iterator[tuple[str, str | None, str | None]]:
        """Name, recorded verdict and verdict now of every assertion; `None` where it was not judged."""
        old, new = _by_name(self.recorded), _by_name(self.now)
        for name in [*old, *(name for name in new if name not in old)]:
            yield name[0], old.get(name), new.get(name)


def replay(
    recorded: Trajectory,
    task: Task,
    *,
    template: ChatTemplate | None = None,
    any_task: bool = False,
    sandbox: Place = "auto",
    setting: dict[str, Any] | None = None,
) -> Replayed:
    """Play an episode again.

    Args:
        recorded: The stored episode.
        task: The task it was about.
        template: Tokenizer and template it was recorded with: the ids of prompt and context are then compared, too.
        any_task: Take a task whose content has changed (another grade is the point of it then).
        sandbox: A backend by name, or an open sandbox.
        setting: Settings of the environment that replace recorded ones (see `agents.trajectory`).

    Raises:
        ReplayError: It has no end to be graded at, the task or the tokenizer is another one, or the machinery failed.
    """
    _check(recorded, task, template, any_task)
    merged = {**recorded.environment, **(setting or {})}
    if recorded.source and "max_turns" not in merged:
        merged["max_turns"] = max(task.budget.max_turns, len(recorded.turns))
    label = merged.get(USER)
    user = None if label is None else RecordedUser(label, recorded.notes.get(USER, []))
    try:
        env = env_for(task, merged, sandbox, user=user)
    except ValueError as error:
        raise ReplayError(f"no environment can be made as it was: {error}") from error
    try:
        out = _play(recorded, task, env, template)
    except (SandboxError, GradeError) as error:
        raise ReplayError(f"the machinery failed: {error}") from error
    except UnlikeThen as error:
        raise ReplayError(f"a model answered as the user, in a task that was another: {error}") from error
    finally:
        env.close()
    if recorded.task_hash and recorded.task_hash != task.content_hash:
        out.old_hash = recorded.task_hash
    return out


def template_for(recorded: Trajectory, tokenizer: Any) -> ChatTemplate:
    """The tokenizer's template as it was used in an episode.

    Raises:
        ChatError: It cannot carry the episode's protocol, or no conversation at all.
        ReplayError: The record names a protocol that there is not.
    """
    ends = {turn.ids[-1] for turn in recorded.turns if turn.ids and turn.finish is FinishReason.STOP}
    eos = getattr(tokenizer, "eos_token_id", None)
    raw = recorded.environment.get("prompt_style") == "base"
    try:
        spoken = protocol(recorded.environment.get(PROTOCOL, DEFAULT_PROTOCOL))
    except ValueError as error:
        raise ReplayError(f"no environment can be made as it was: {error}") from error
    return template_of(tokenizer, ends | ({eos} if eos is not None else set()), spoken, raw=raw)


def _check(recorded: Trajectory, task: Task, template: ChatTemplate | None, any_task: bool) -> None:
    if recorded.task_id != task.id:
        raise ReplayError(f"the episode is about the task '{recorded.task_id}', not '{task.id}'")
    if recorded.stop_reason == StopReason.INFRASTRUCTURE:
        raise ReplayError(f"it broke off and has no grade ({recorded.error})")
    if not recorded.stop_reason:
        raise ReplayError("the record does not say how it ended")
    if not any_task and recorded.task_hash and recorded.task_hash != task.content_hash:
        raise ReplayError(
            f"the task has changed since (content hash {recorded.task_hash[:12]} then, {task.content_hash[:12]} now): "
            "replay with the tasks of then, or rescore it with those of today"
        )
    if template is not None and recorded.tokenizer not in (None, template.fingerprint):
        raise ReplayError(
            f"it was recorded with another tokenizer or chat template (fingerprint {recorded.tokenizer}, this one has "
            f"{template.fingerprint}): ids would mean something else"
        )


def _play(recorded: Trajectory, task: Task, env: ConversationEnv, template: ChatTemplate | None) -> Replayed:
    now = replace(recorded, turns=[], task_hash=task.content_hash, assertions=[], passed=None, rate=None, reward=None)
    compare_ids = template is not None and not recorded.text_only
    out = Replayed(recorded, now, ids_compared=compare_ids)
    talk = Conversation(template) if compare_ids else None
    seed = 0 if recorded.seed is None else recorded.seed
    observation, info = env.reset(seed=seed, options={"task": task})
    then_hash = recorded.environment.get("prompt_hash")
    if then_hash is not None and then_hash != env.prompt_hash:
        out.differences.append(Difference(-1, "prompt_hash", then_hash, env.prompt_hash))
    if talk is not None:
        now.prompt_ids = talk.start(env.system_prompt, observation, recorded.keep_observations)
        _differ(out, -1, "prompt_ids", recorded.prompt_ids, now.prompt_ids)
    reward, over, context = 0.0, False, list[int]()
    for turn in recorded.turns:
        if over:
            out.differences.append(Difference(turn.index, "end", "the episode went on", "it is over"))
            break
        anchor = info["anchor"]
        observation, gained, terminated, truncated, info = env.step(_reply(turn, recorded, task))
        reward += float(gained)
        over = terminated or truncated
        fresh = replace(turn, anchor=anchor)
        if talk is not None:
            fresh.context_ids, fresh.short_ids = context, talk.short
        fresh.answered(observation, info)
        now.turns.append(fresh)
        _compare(out, turn, fresh, bool(recorded.source))
        if talk is not None:
            assert turn.finish is not None
            talk.reply(turn.ids, turn.finish)
            older = None if recorded.keep_observations is None else env.summary(observation)
            context = [] if over else talk.observe(observation, older)
    if not over:
        ended = StopReason(recorded.stop_reason)
        if ended in (StopReason.SUBMITTED, StopReason.LOST):
            out.differences.append(Difference(len(now.turns) - 1, "end", ended.value, "it goes on"))
            ended = StopReason.MAX_TURNS
        gained_at_end, info = env.finish(ended)
        reward += float(gained_at_end or 0.0)
    now.environment = setting_of(env)
    now.notes = {key: value for key, value in recorded.notes.items() if key not in NOTED}
    now.graded(reward, info)
    return out


def _reply(turn: Turn, recorded: Trajectory, task: Task) -> str:
    """What to send: the reply as it was, or what a foreign record says that it did."""
    if not recorded.source:
        return CutReply(turn.reply) if turn.finish is FinishReason.LENGTH else turn.reply
    submits = recorded.stop_reason == StopReason.SUBMITTED and turn is recorded.turns[-1]
    if turn.command is not None:
        return f"{fenced(turn.command)}\n{STOP_WORD}" if submits else fenced(turn.command)
    if kind_of_env(task) is not ClawGymEnv:
        return turn.reply  # an answer, or words to a user
    return STOP_WORD if turn.action == ActionKind.SUBMIT else ""


def _compare(out: Replayed, then: Turn, now: Turn, foreign: bool) -> None:
    """Note what differs. Other programs word observations otherwise: of theirs, only facts are compared."""
    names = (
        ["action", "exit_code"] if foreign else ["action", "command", "exit_code", "observation", "signal", "anchor"]
    )
    if then.timed_out is not None:
        names.append("timed_out")
    if out.ids_compared and then.index:
        names += ["context_ids", "short_ids"]
    for name in names:
        _differ(out, then.index, name, getattr(then, name), getattr(now, name))


def _differ(out: Replayed, turn: int, what: str, recorded: object, now: object) -> None:
    if recorded != now:
        out.differences.append(Difference(turn, what, recorded, now))


def _by_name(episode: Trajectory) -> dict[tuple[str, int], str]:
    """Verdicts by name, and by the how-manieth of that name."""
    seen: Counter[str] = Counter()
    out: dict[tuple[str, int], str] = {}
    for record in episode.assertions:
        name = str(record.get("name"))
        out[name, seen[name]] = str(record.get("verdict"))
        seen[name] += 1
    return out


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 9)
