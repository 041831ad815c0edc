"""Token-in-token-out conversations for any chat template.

A conversation only ever grows by ids: what the policy sampled stays as sampled, and each message of the environment
adds the ids that the template puts between an assistant's reply and the next generation prompt. Nothing is decoded and
encoded again, and earlier turns are never re-rendered (templates that strip old thinking blocks would change them).

The template is rendered a few times per tokenizer, with place holders; after that a message costs one `encode`.
Text from outside (task, file names, command output) can hold literals such as `<|im_end|>`. Encoding them would put
control ids into the context, so the control ids of every message are compared with the template's own; where they
differ, the message is encoded in pieces that cut each literal in two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from agents.policy import FinishReason

_SYSTEM, _USER, _REPLY, _NEXT = "SLOT0SYSTEM", "SLOT1USER", "SLOT2REPLY", "SLOT3NEXT"

PLAIN_TEMPLATE = (
    "{{ bos_token or '' }}"
    "{% for message in messages %}"
    "{% if message.role == 'assistant' %}### Assistant\n{{ message.content }}{{ eos_token }}\n\n"
    "{% else %}### {{ message.role | capitalize }}\n{{ message.content }}\n\n{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}### Assistant\n{% endif %}"
)
"""For base models, whose tokenizer has no template: headed paragraphs, replies ended by the end-of-sequence token."""

RAW_TEMPLATE = "{{ bos_token or '' }}{% for message in messages %}{{ message.content }}{% endfor %}"
"""No template at all: one running text, for prompts of base models that bring their own headings."""


_BRACKETED = re.compile(r"<\S+>|\[\S+\]")


class ChatError(ValueError):
    """The tokenizer's chat template cannot carry a conversation."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Template text around one message's content: `before` + content + `after`, and the control ids of the two."""

    before: str
    after: str
    strips: bool
    controls: tuple[int, ...]


class ChatTemplate:
    """A tokenizer's template, taken apart once. Share one among the conversations of a tokenizer.

    Args:
        tokenizer: A Hugging Face tokenizer or compatible, with or without a chat template.
        eos_ids: Every id that ends a turn; default: the tokenizer's `eos_token_id`.
        raw: Leave the tokenizer's template out: messages and replies follow one another as they are.
        **settings: Passed to the template (for example `enable_thinking=False`).

    Raises:
        ChatError: The template loses or repeats a message's content.
    """

    def __init__(
        self, tokenizer: Any, eos_ids: Iterable[int] | None = None, *, raw: bool = False, **settings: Any
    ) -> None:
        self.tokenizer = tokenizer
        # Some templates print today's date when none is given; equal seeds must give equal bytes tomorrow.
        self._settings = {"date_string": "01 Jan 2025", **settings}
        if raw or not tokenizer.chat_template:
            self._settings["chat_template"] = RAW_TEMPLATE if raw else PLAIN_TEMPLATE
            if not _adds_bos(tokenizer):
                self._settings["bos_token"] = ""
        self.eos_ids = frozenset(eos_ids if eos_ids is not None else [tokenizer.eos_token_id])
        self.control_ids = _control_ids(tokenizer)
        self._literals = [text for text in _control_literals(tokenizer, self.control_ids) if len(text) > 1]
        self._takes_system = self._renders_system()
        self._first_plain = self._frame([_message("user", _USER)], _USER)
        self._first_system, self._first_user = self._split_first()
        self._next, self._closing = self._split_next()

    def first(self, system: str, user: str) -> list[int]:
        """Ids of a new conversation up to the first reply. `system` may be empty."""
        if system and not self._takes_system:
            system, user = "", f"{system}\n\n{user}"
        if not system:
            return self._encode([(self._first_plain, user)])
        return self._encode([(self._first_system, system), (self._first_user, user)])

    def following(self, content: str, *, ended: bool) -> list[int]:
        """Ids between a reply and the next one: the environment's message in the template's clothes.

        Args:
            content: The message.
            ended: The reply ended with an end-of-turn id; if not, the template's own is put in first.
        """
        ids = self._encode([(self._next, content)])
        return ids if ended else self._closing + ids

    def text(self, ids: Sequence[int]) -> str:
        """A reply as text for the environment, without end-of-turn ids at its end."""
        end = len(ids)
        while end and ids[end - 1] in self.eos_ids:
            end -= 1
        return self.tokenizer.decode(list(ids[:end]), skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _render(self, messages: list[dict[str, str]], generate: bool = True) -> str:
        try:
            text = self.tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=generate, **self._settings
            )
        except Exception as error:  # A template is a program; whatever it raises is reported with its messages.
            roles = ", ".join(message["role"] for message in messages)
            raise ChatError(f"the chat template fails on the roles {roles}: {error}") from error
        return str(text)

    def _renders_system(self) -> bool:
        try:
            text = self._render([_message("system", _SYSTEM), _message("user", _USER)])
        except ChatError:
            return False
        return text.count(_SYSTEM) == text.count(_USER) == 1 and text.index(_SYSTEM) < text.index(_USER)

    def _cut(self, text: str, slot: str) -> tuple[str, str]:
        if text.count(slot) != 1:
            raise ChatError(f"the chat template shows a message {text.count(slot)} times; expected once: {text!r}")
        before, _, after = text.partition(slot)
        return before, after

    def _frame(self, messages: list[dict[str, str]], slot: str) -> _Frame:
        before, after = self._cut(self._render(messages), slot)
        padded = [_message(m["role"], m["content"].replace(slot, f"\n {slot} \n")) for m in messages]
        wide_before, wide_after = self._cut(self._render(padded), slot)
        return self._framed(before, after, (wide_before, wide_after) == (before, after))

    def _framed(self, before: str, after: str, strips: bool) -> _Frame:
        return _Frame(before, after, strips, tuple(self._controls(self._ids(before) + self._ids(after))))

    def _split_first(self) -> tuple[_Frame, _Frame]:
        """Frames of the system message and of the user message behind it."""
        if not self._takes_system:
            return self._first_plain, self._first_plain
        text = self._render([_message("system", _SYSTEM), _message("user", _USER)])
        before, rest = self._cut(text, _SYSTEM)
        between, after = self._cut(rest, _USER)
        strips = self._first_plain.strips
        return self._framed(before, "", strips), self._framed(between, after, strips)

    def _split_next(self) -> tuple[_Frame, list[int]]:
        """Frame of a later user message, and the ids that close a reply which was cut."""
        messages = [_message("user", _USER), _message("assistant", _REPLY), _message("user", _NEXT)]
        frame = self._frame(messages, _NEXT)
        _, before = self._cut(frame.before, _REPLY)
        ids = self._ids(before)
        at = next((index for index, token in enumerate(ids) if token in self.eos_ids), None)
        if at is None:
            # The template writes nothing after a reply: the conversation goes on as it is.
            return self._framed(before, frame.after, frame.strips), []
        closing, rest = ids[: at + 1], ids[at + 1 :]
        opening = before
        # Drop characters up to the end-of-turn literal, so that what is left encodes to the rest.
        for cut in range(len(before) + 1):
            if self._ids(before[cut:]) == rest:
                opening = before[cut:]
                break
        else:
            raise ChatError(f"cannot separate the end-of-turn token from the rest of the template: {before!r}")
        return self._framed(opening, frame.after, frame.strips), closing

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _controls(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token in self.control_ids]

    def _encode(self, parts: list[tuple[_Frame, str]]) -> list[int]:
        """Encode messages in their frames; no control id comes from a message."""
        parts = [(frame, content.strip() if frame.strips else content) for frame, content in parts]
        ids = self._ids("".join(frame.before + content + frame.after for frame, content in parts))
        expected = [token for frame, _ in parts for token in frame.controls]
        if self._controls(ids) == expected:
            return ids
        ids = []
        for frame, content in parts:
            ids += self._ids(frame.before)
            for piece in self._pieces(content):
                # Normalisation can still turn odd characters into a literal: such an id is left out.
                ids += [token for token in self._ids(piece) if token not in self.control_ids]
            ids += self._ids(frame.after)
        return ids

    def _pieces(self, content: str) -> list[str]:
        """The content, cut after the first character of every control literal in it."""
        cuts = {0, len(content)}
        for literal in self._literals:
            at = content.find(literal)
            while at >= 0:
                cuts.add(at + 1)
                at = content.find(literal, at + 1)
        marks = sorted(cuts)
        return [content[a:b] for a, b in zip(marks, marks[1:], strict=False)]


class Conversation:
    """The ids of one conversation, append-only.

    Args:
        template: The tokenizer's template (or a tokenizer, which is taken apart here).
    """

    def __init__(self, template: ChatTemplate | Any) -> None:
        self.template = template if isinstance(template, ChatTemplate) else ChatTemplate(template)
        self.ids: list[int] = []
        self._open = False
        self._ended = True

    def start(self, system: str, user: str) -> list[int]:
        """Begin with the task; returns the prompt's ids."""
        self.ids = self.template.first(system, user)
        self._open = True
        return list(self.ids)

    def reply(self, ids: Sequence[int], finish: FinishReason) -> str:
        """Append a reply as sampled; returns its text."""
        if not self._open:
            raise ChatError("a reply comes after start() or observe()")
        self.ids += ids
        self._open = False
        self._ended = finish is FinishReason.STOP
        return self.template.text(ids)

    def observe(self, content: str) -> list[int]:
        """Append the environment's message; returns the ids added, up to the next generation prompt."""
        if self._open or not self.ids:
            raise ChatError("observe() comes after a reply")
        added = self.template.following(content, ended=self._ended)
        self.ids += added
        self._open = True
        return added


def _message(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _adds_bos(tokenizer: Any) -> bool:
    """Whether encoding a text normally puts a BOS id first."""
    bos = getattr(tokenizer, "bos_token_id", None)
    if bos is None:
        return False
    ids = list(tokenizer.encode("a", add_special_tokens=True))
    return bool(ids) and ids[0] == bos


def _control_ids(tokenizer: Any) -> frozenset[int]:
    """Ids that no message may contain: special tokens, and added tokens in brackets (`<think>`, `[INST]`)."""
    ids = {int(i) for i in tokenizer.all_special_ids}
    ids |= {int(i) for i, token in tokenizer.added_tokens_decoder.items() if _BRACKETED.fullmatch(str(token))}
    # Unknown characters are data, not control.
    return frozenset(ids - {getattr(tokenizer, "unk_token_id", None)})


def _control_literals(tokenizer: Any, control_ids: frozenset[int]) -> list[str]:
    known = {int(i): str(token) for i, token in tokenizer.added_tokens_decoder.items()}
    return [known[i] if i in known else tokenizer.decode([i]) for i in sorted(control_ids)]
