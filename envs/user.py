"""ClawGym-v1: shell tasks given by a person who answers.

The protocol is that of `ClawGym-v0` but for this: a reply without a command and without the stop word is a message to
the task's user (`tasks.user`), and what they answer is the observation. They may also speak up after any turn, and
before a submission is taken; then it is not taken, and the episode goes on. A message is a turn.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, ClassVar

from envs.actions import ActionKind, Message, Submit, without_stop_word
from envs.clawgym import ClawGymEnv
from envs.episode import CutReply, Exchange
from envs.headers import Header, Headers
from envs.prompts import Compact, PromptStyle, Standard, in_a_line, in_words
from envs.rewards import ObservationClass, anchor
from envs.sandboxed import TaskSource
from sandboxes.sandbox import CommandResult
from tasks.assertions.base import Outcome
from tasks.task import Task
from tasks.user import Dialogue, Said, Speaker

# -- What the agent is shown where a user answers: the styles of shell tasks, and the user's words under a heading ----
# Output of a command that holds a line like the heading gets a backslash into it (`envs.headers`): a file cannot speak
# as the user.


class UserStyle(PromptStyle):
    """What both styles share.

    Attributes:
        heading: The line above what the user says.
    """

    heading: ClassVar[str]

    def user(self, words: str) -> str:
        """What the user said."""
        return f"{self.heading}\n{words}"

    def observation(self, result: CommandResult) -> str:
        """As without a user, and no line of it is a heading."""
        return self.headers.neutral(super().observation(result))  # type: ignore[safe-super]

    def line(self, observation: str) -> str:
        """What a command did on one line; what the user said stays whole, for it belongs to the task."""
        did, mark, words = f"\n{observation}".rpartition(f"\n{self.heading}\n")
        if not mark:
            return in_a_line(observation)
        return "\n".join([*([in_a_line(did.strip("\n"))] if did.strip() else []), self.user(words)])

    def forged(self, message: str) -> int:
        """See `PromptStyle.forged`."""
        return self.headers.forged(message)

    def further(self) -> list[str]:
        """What the user said, and what becomes of a heading."""
        return [*super().further(), self.user("words"), self.headers.neutral(self.heading)]

    @property
    def headers(self) -> Headers:
        """What says here that the user speaks."""
        return Headers([Header(self.heading, starts_line=True)])


class StandardUser(UserStyle, Standard):
    """Instructions with a paragraph on the user."""

    heading = "The user says:"

    def system(self, task: Task) -> str:
        """The protocol of shell tasks, and who answers."""
        return (
            f"{super().system(task)}\n"
            "\n"
            f"The person who gave you the task is there and answers. A reply without {self.words.nothing} is a message "
            f'to them: ask what you need to know, one thing at a time. Their words stand under "{self.heading}". They '
            "may also speak up by themselves, and ask for more before they take your work; what they say then belongs "
            f"to the task, and you {self.words.again} again when it is done. A message takes a turn."
        )

    def feedback(self, reason: str) -> str:
        """The reason, and the three forms that are understood."""
        return f"Nothing was run: {reason}.\n{self.words.remind_with_user}"


class CompactUser(UserStyle, Compact):
    """The fewest words."""

    heading = "user says:"


USER_STYLES: dict[str, UserStyle] = {style.name: style for style in (StandardUser(), CompactUser())}
"""The styles by name."""


def user_style(style: str | PromptStyle) -> UserStyle:
    """A style by its name; a style is returned as it is.

    Raises:
        ValueError: There is no style of that name, or it has no words for a user.
    """
    if isinstance(style, UserStyle):
        return style
    if isinstance(style, PromptStyle) or style not in USER_STYLES:
        given = style.name if isinstance(style, PromptStyle) else style
        raise ValueError(f"there is no prompt style '{given}' with a user: choose one of {', '.join(USER_STYLES)}")
    return USER_STYLES[style]


# -- The environment --------------------------------------------------------------------------------------------------


class ClawGymUserEnv(ClawGymEnv):
    """Shell tasks with a user: a bash block is a command, the stop word submits, anything else is a message.

    A message has the signal 0 (on a task without file assertions none), as a malformed reply has. The anchor of a turn
    tells apart what the user has said by then. `info["user"]` lists everything that they said, as `tasks.user.Said`
    records it.
    """

    default_tasks: ClassVar[str | None] = "library:dialogues"
    style: UserStyle

    def __init__(
        self,
        tasks: TaskSource = "library:dialogues",
        task: str | Task | None = None,
        *,
        user: Speaker | None = None,
        **settings: Any,
    ) -> None:
        """Load the tasks; the sandbox is opened at the first `reset`.

        Args:
            tasks: Where tasks come from; each needs `user:`.
            task: A task, or the id of one of `tasks`, for every episode.
            user: Answers messages in the place of the patterns of a task's rules, such as a model: for evaluation, as
                its answers may differ from one episode to the next.
            **settings: As in `ClawGymEnv`.

        Raises:
            tasks.task.TaskError: The tasks could not be loaded.
            ValueError: A setting is not among its choices, or has no effect.
        """
        super().__init__(tasks, task=task, **settings)
        self.speaker = user

    @classmethod
    def unfit(cls, task: Task) -> str | None:
        """See `ConversationEnv.unfit`: somebody must answer."""
        return "has no user (the key `user`): ClawGym-v0 plays it" if task.user is None else None

    def _style(self, style: str | PromptStyle) -> PromptStyle:
        return in_words(user_style(style), self.protocol.words)

    def _choose(self, seed: int | None, options: dict[str, Any] | None) -> None:
        super()._choose(seed, options)
        if why := self.unfit(self.task):
            raise ValueError(f"task '{self.task.id}' {why}")
        assert self.task.user is not None
        self._dialogue = Dialogue(self.task.user, self.task.intent, self.speaker, self._seed)

    def _exchange(self, reply: str) -> Exchange:
        action = self.protocol.parse_with_user(reply, whole=not isinstance(reply, CutReply))
        if isinstance(action, Message):
            self._last = ObservationClass.USER
            did, words = Exchange("", ActionKind.MESSAGE, signal=self._no_change), action.text
        else:
            did = self._do(action)
            words = without_stop_word(action.text) if isinstance(action, Submit) else ""
        submits = did.final_message is not None
        said = self._dialogue.after(self._turns + 1, self._files, words or None, submits=submits)
        return self._told(did, said) if said else did

    def _told(self, did: Exchange, said: tuple[Said, ...]) -> Exchange:
        """What the reply did, with what the user says to it; a submission is not taken then."""
        words = self.style.user("\n".join(item.text for item in said))
        held = did.action is ActionKind.SUBMIT
        if held:
            self._last = ObservationClass.USER
        return replace(
            did,
            observation=f"{did.observation}\n\n{words}" if did.observation else words,
            action=ActionKind.MESSAGE if held else did.action,
            signal=self._no_change if held else did.signal,
            final_message=None,
        )

    @property
    def _no_change(self) -> float | None:
        """The signal of a turn that leaves the workspace as it is."""
        return None if self._file_rate is None else 0.0

    def _outcome(self) -> Outcome:
        return replace(super()._outcome(), heard=self._dialogue.heard)

    def _anchor(self) -> str:
        spent = ",".join(map(str, sorted(self._dialogue.spent)))
        known = hashlib.sha256(f"{self._hash} {spent}".encode()).hexdigest()[:16]
        return anchor(known, self._last)

    def _info(self, exchange: Exchange | None) -> dict[str, Any]:
        """As everywhere, and what the user has said."""
        return {**super()._info(exchange), "user": [item.record() for item in self._dialogue.said]}
