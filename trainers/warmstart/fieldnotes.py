"""Episodes of field-notes as conversations of ours: what a policy learns from that another program's agent did.

Their records hold replies, commands and streams, and neither ids nor prompts. So the conversation is the one that our
environment would have had: the prompt of the task in one of our styles, each command, and what it did in that style's
words. What was trained on is then what the policy will see.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents.fieldnotes import Exchange, exchanges, from_bundle, from_record
from agents.trajectory import RecordError, Trajectory
from envs.actions import STOP_WORD, Command, Submit, fenced, parse
from envs.prompts import STYLES, listing
from sandboxes.sandbox import Snapshot
from tasks.task import Task


def is_field_notes(record: Mapping[str, Any]) -> bool:
    """A line of `trajectories.jsonl`, or of `trajectory_bundle.jsonl`."""
    return "rollouts" in record or ("turns" in record and "stopped" in record)


def episodes_of(record: dict[str, Any]) -> Iterator[tuple[dict[str, Any], Trajectory]]:
    """The episodes of a line, each with its own record; raises RecordError."""
    if "rollouts" not in record:
        yield record, from_record(record)
        return
    for place, episode in enumerate(from_bundle(record)):
        yield {"task_id": record["task_id"], **record["rollouts"][place]["trajectory"]}, episode


@dataclass(frozen=True, slots=True)
class Retold:
    """Tells episodes of text as conversations.

    Attributes:
        tasks: By id.
        style: Name of the prompt style: `standard` or `compact`.
    """

    tasks: Mapping[str, Task]
    style: str

    def messages(self, record: dict[str, Any]) -> list[dict[str, str]]:
        """Chat messages of one episode, from the prompt to the last reply.

        A reply stays as it is where our environment would do the same with it. Else (several blocks, of which the other
        program took one line; a text that was cut) the command that ran stands in its place. Replies that were refused
        changed nothing: they are left out with their answers.

        Raises:
            RecordError: The task is not at hand, the style is none of shell tasks, or what a command did is not
                recorded.
        """
        if self.style not in STYLES:
            raise RecordError(f"these are shell tasks, and prompt_style={self.style} is none of {', '.join(STYLES)}")
        task_id = record["task_id"]
        if task_id not in self.tasks:
            raise RecordError(
                f"task '{task_id}' is not at hand, and a record of text has no prompt: say where its tasks are with "
                "--tasks (such as fieldnotes:tasks.jsonl)"
            )
        style, task = STYLES[self.style], self.tasks[task_id]
        system = style.system(task)
        out = [{"role": "system", "content": system}] if system else []
        out.append({"role": "user", "content": style.first(task, listing(Snapshot(task.files())))})
        turns = exchanges(record)
        for number, turn in enumerate(turns):
            out.append({"role": "assistant", "content": _said(turn)})
            if number < len(turns) - 1:
                if turn.result is None:
                    raise RecordError(f"turn {number} of '{task_id}' has no observation")
                shown = style.observation(turn.result) if turn.shown is None else turn.shown
                out.append({"role": "user", "content": shown})
        return out


def _said(turn: Exchange) -> str:
    """The reply, or what it did where ours would read it otherwise."""
    action = parse(turn.reply) if turn.reply is not None else None
    if turn.command is None:
        return turn.reply if turn.reply is not None and isinstance(action, Submit) else STOP_WORD
    same = isinstance(action, Command) and action.text == turn.command and not action.then_submit
    return turn.reply if turn.reply is not None and same else fenced(turn.command)
