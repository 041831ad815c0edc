"""Token-in-token-out conversations for any chat template.

A conversation only ever grows by ids: what the policy sampled stays as sampled, and each message of the environment
adds the ids that the template puts between an assistant's reply and the next generation prompt. Nothing is decoded and
encoded again, and earlier turns are never re-rendered (templates that strip old thinking blocks would change them):
the model sees its own earlier thoughts, in training as in sampling. A system message stays where it was put first.

For tasks of many turns there is a second way: of the observations only the last N are shown in full, and each older one
as a line (`shown`). Each of the two forms is encoded once, when the observation comes; replies stay as sampled.

The template is rendered a few times per tokenizer, with place holders; after that a new message costs one `encode`.
What follows a reply is encoded behind an end-of-turn literal, whose id is then dropped: no merge reaches into the
reply, and tokenizers that put a space before every text do not put one in the middle of a conversation.

Text from outside (task, file names, command output) can hold literals such as `<|im_end|>`. Encoding them would put
control ids into the context, so the control ids of every message are compared with the template's own; where they
differ, the message is encoded in pieces that cut each literal in two. Headers that the template makes of ordinary ids
(all of them for base models) are kept out of messages as `envs.headers` says.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from agents.policy import FinishReason
from envs.headers import Header, HeaderError, Headers

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


_TODAY = datetime.date(2025, 1, 1)
"""What templates take for today, unless the settings say otherwise."""
_CLOCK = re.compile(r"""strftime_now\(\s*(?P<quote>["'])(?P<format>[^"']*)(?P=quote)\s*\)""")
_SAMPLE = "Don't re-encode: naïve  words,\n\t12345 <b> 日本 🙂"
"""Its ids tell tokenizers of one vocabulary apart."""
_BRACKETED = re.compile(r"<\S+>|\[\S+\]")
_REMEMBERED, _LONG = 1024, 16_384
"""Messages whose ids are kept at a time, and the characters of one at most."""


class ChatError(ValueError):
    """The tokenizer's chat template cannot carry a conversation."""


@dataclass(frozen=True, slots=True)
class _Frame:
    """Template text around one message's content: `before` + content + `after`, and the control ids of the two.

    `strips`: whether the template strips white space at the left and at the right of this content.
    """

    before: str
    after: str
    strips: tuple[bool, bool]
    controls: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Seam:
    """What stands between a reply and the next one.

    Attributes:
        closing: Ids that end a reply, for one that was cut.
        frame: The environment's message, behind the end of the reply.
        shared: The id that ends the reply also begins the message (GLM's `<|user|>`): no other end id can stand for it.
    """

    closing: tuple[int, ...]
    frame: _Frame
    shared: bool


def without_clock(tokenizer: Any) -> dict[str, Any]:
    """Arguments of `apply_chat_template` under which a template that prints today's date says the same tomorrow."""
    settings: dict[str, Any] = {"date_string": f"{_TODAY:%d %b %Y}"}
    if isinstance(tokenizer.chat_template, str) and _CLOCK.search(tokenizer.chat_template):
        fixed = _CLOCK.sub(lambda call: repr(_TODAY.strftime(call["format"])), tokenizer.chat_template)
        settings["chat_template"] = fixed
    return settings


class ChatTemplate:
    """A tokenizer's template, taken apart once. Share one among the conversations of a tokenizer.

    Args:
        tokenizer: A Hugging Face tokenizer or compatible, with or without a chat template.
        eos_ids: Every id that ends a turn; default: the tokenizer's `eos_token_id`.
        raw: Leave the tokenizer's template out: messages and replies follow one another as they are.
        **settings: Passed to the template (for example `enable_thinking=False`).

    Attributes:
        headers: Of the template's headers those that are ordinary text; a message that holds one is shown with a
            backslash in it.

    Raises:
        ChatError: The template loses or repeats a message's content, nothing says which id ends a turn, or ordinary
            text is full of its headers.
    """

    def __init__(
        self, tokenizer: Any, eos_ids: Iterable[int] | None = None, *, raw: bool = False, **settings: Any
    ) -> None:
        self.tokenizer = tokenizer
        self._settings = {**without_clock(tokenizer), **settings}
        if raw or not tokenizer.chat_template:
            self._settings["chat_template"] = RAW_TEMPLATE if raw else PLAIN_TEMPLATE
            if not _adds_bos(tokenizer):
                self._settings["bos_token"] = ""
        self.eos_ids = frozenset(eos_ids if eos_ids is not None else [tokenizer.eos_token_id])
        if None in self.eos_ids:
            raise ChatError("the tokenizer names no end-of-sequence token: give eos_ids, the ids that end a turn")
        self.control_ids = _control_ids(tokenizer)
        self._literals = [text for text in _control_literals(tokenizer, self.control_ids) if len(text) > 1]
        self._remembered: dict[tuple[object, ...], tuple[int, ...]] = {}
        self._takes_system = self._renders_system()
        self._first_plain = self._frame([_message("user", _USER)], _USER)
        self._first_system, self._first_user = self._split_first()
        self._seams: dict[int, _Seam] = {0: self._seam(0)}
        self._numbered = self._seam(1) != self._seams[0]
        self.headers = self._headers(self._text_headers())

    @cached_property
    def overrun(self) -> str | None:
        """Why replies would run on behind the end that the template writes; `None` where they end there.

        A model that speaks the template ends its reply with the template's own token. Where that is no id that ends a
        turn, sampling goes on into the next message, and the text of the token stands in the reply.
        """
        _, behind = self._cut(self._render([_message("user", _USER), _message("assistant", _REPLY)], False), _REPLY)
        ids = self._ids(behind)
        if not ids or ids[0] not in self.control_ids or ids[0] in self.eos_ids:
            return None
        written = self.tokenizer.decode([ids[0]], skip_special_tokens=False)
        ends = ", ".join(repr(self.tokenizer.decode([end], skip_special_tokens=False)) for end in sorted(self.eos_ids))
        return (
            f"the chat template ends a reply with {written!r} ({ids[0]}), and the ids that end a turn are {ends} "
            f"({', '.join(map(str, sorted(self.eos_ids)))}): replies would run on into the next message. Put {ids[0]} "
            "into eos_token_id of the model's generation_config.json, or make it the tokenizer's eos_token."
        )

    @cached_property
    def fingerprint(self) -> str:
        """16 hex digits: other vocabulary, other merges, another template or other settings, another fingerprint."""
        vocabulary = self.tokenizer.get_vocab() if hasattr(self.tokenizer, "get_vocab") else len(self.tokenizer)
        template = self._settings.get("chat_template", self.tokenizer.chat_template)
        facts = [vocabulary, self._ids(_SAMPLE), template, self._settings]
        text = json.dumps(facts, sort_keys=True, default=str)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def first(self, system: str, user: str) -> list[int]:
        """Ids of a new conversation up to the first reply. `system` may be empty."""
        if system and not self._takes_system:
            system, user = "", f"{system}\n\n{user}"
        system, user = self._neutral(system), self._neutral(user)
        if not system:
            return self._encode([(self._first_plain, user)])
        return self._encode([(self._first_system, system), (self._first_user, user)])

    def following(self, content: str, *, ended: bool, turn: int = 0, reply: str = "") -> list[int]:
        """Ids between a reply and the next one: the environment's message in the template's clothes.

        Args:
            content: The message.
            ended: The reply ended with an end-of-turn id; if not, the template's own is put in first.
            turn: Index of the reply, for templates that number their turns.
            reply: Its text, where the message depends on it (`agents.chat_tools`).
        """
        return self._joined(self._at(turn), self._neutral(content), ended=ended)

    def forged(self, *messages: str) -> int:
        """How many headers of the template messages from outside hold: each is shown with a backslash in it."""
        return sum(self.headers.forged(self._neutral(message)) for message in messages) if self.headers else 0

    def ends(self, token: int, turn: int = 0, reply: str = "") -> bool:
        """Whether a reply that was sampled up to `token` needs no end-of-turn id of the template any more."""
        return self._closed_by(token, self._at(turn))

    def text(self, ids: Sequence[int]) -> str:
        """A reply as text for the environment, without end-of-turn ids at its end."""
        end = len(ids)
        while end and ids[end - 1] in self.eos_ids:
            end -= 1
        return self.tokenizer.decode(list(ids[:end]), skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def _joined(self, seam: _Seam, content: str, *, ended: bool) -> list[int]:
        ids = self._encode([(seam.frame, content)], behind=True)
        return ids if ended else [*seam.closing, *ids]

    def _closed_by(self, token: int, seam: _Seam) -> bool:
        return token in self.eos_ids and (not seam.shared or token == seam.closing[-1])

    def _headers(self, found: Iterable[Header]) -> Headers:
        try:
            return Headers(found)
        except HeaderError as error:
            raise ChatError(
                f"the chat template says in ordinary text who speaks: {error}. What a command prints could speak as "
                "the assistant. Make its headers special tokens of the tokenizer (additional_special_tokens), or give "
                "the tokenizer another chat template."
            ) from error

    def _neutral(self, message: str) -> str:
        """A message without headers of the template, also where only the tokenizer's normalising makes them."""
        if not self.headers:
            return message
        shown = self.headers.neutral(message)
        normaliser = getattr(getattr(self.tokenizer, "backend_tokenizer", None), "normalizer", None)
        if normaliser is not None:
            normal = self.headers.neutral(normaliser.normalize_str(message))
            if self.headers.forged(normal) > self.headers.forged(shown):
                return normal
        return shown

    def _render(self, messages: list[dict[str, Any]], generate: bool = True) -> str:
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
        if (times := text.count(slot)) != 1:
            hint = " (templates of vision models take messages in parts, not as text)" if times == 0 else ""
            raise ChatError(f"the chat template shows a message {times} times; expected once{hint}: {text!r}")
        before, _, after = text.partition(slot)
        return before, after

    def _frame(self, messages: list[dict[str, Any]], slot: str) -> _Frame:
        before, after = self._cut(self._render(messages), slot)
        padded = [{**message, "content": message["content"].replace(slot, _wide(slot))} for message in messages]
        wide_before, wide_after = self._cut(self._render(padded), slot)
        return self._framed(before, after, (wide_before == before, wide_after == after))

    def _framed(self, before: str, after: str, strips: tuple[bool, bool]) -> _Frame:
        return _Frame(before, after, strips, tuple(self._controls(self._ids(before) + self._ids(after))))

    def _split_first(self) -> tuple[_Frame, _Frame]:
        """Frames of the system message and of the user message behind it."""
        if not self._takes_system:
            return self._first_plain, self._first_plain
        before, between, after = self._around(_SYSTEM, _USER)
        left, right, _ = self._around(_wide(_SYSTEM), _USER)
        _, user_left, user_right = self._around(_SYSTEM, _wide(_USER))
        system = self._framed(before, "", (left == before, right == between))
        return system, self._framed(between, after, (user_left == between, user_right == after))

    def _around(self, system: str, user: str) -> tuple[str, str, str]:
        """What the template puts before, between and behind a first system message and user message."""
        before, rest = self._cut(self._render([_message("system", system), _message("user", user)]), _SYSTEM)
        return before, *self._cut(rest, _USER)

    def _at(self, turn: int) -> _Seam:
        """The seam behind a reply; one for all, unless the template numbers its turns."""
        if not self._numbered:
            return self._seams[0]
        if turn not in self._seams:
            self._seams[turn] = self._seam(turn)
        return self._seams[turn]

    def _seam(self, turn: int) -> _Seam:
        earlier = [_message("user", _USER), _message("assistant", "SLOT4OLD")] * turn
        frame = self._frame(
            [*earlier, _message("user", _USER), _message("assistant", _REPLY), _message("user", _NEXT)], _NEXT
        )
        _, before = self._cut(frame.before, _REPLY)
        ids = self._ids(before)
        at = next((index for index, token in enumerate(ids) if token in self.eos_ids), None)
        if at is None:
            # The template writes no end-of-turn id after a reply: what it writes follows whatever was sampled.
            return _Seam((), self._framed(before, frame.after, frame.strips), False)
        opening = self._opening(before, ids[at + 1 :], frame)
        return _Seam(tuple(ids[: at + 1]), opening, self._first_plain.before.endswith(before))

    def _opening(self, before: str, rest: list[int], frame: _Frame) -> _Frame:
        """The frame of a message that stands behind the end-of-turn id of a reply.

        Args:
            before: What the template puts between reply and message.
            rest: Its ids behind the end-of-turn id.
            frame: Of the message, with all that stands before it.
        """
        # Drop characters up to the end-of-turn literal, so that what is left encodes to the rest.
        for cut in range(len(before) + 1):
            if self._behind(before[cut:]) == rest:
                return self._framed(before[cut:], frame.after, frame.strips)
        raise ChatError(f"cannot separate the end-of-turn token from the rest of the template: {before!r}")

    def _text_headers(self) -> Iterator[Header]:
        """The template's headers without a control id: one with a control id in it cannot come from a message.

        Those before a reply, before a message behind one, and around a system message.
        """
        seams = [self._seams[0], *([self._seam(1)] if self._numbered else [])]
        for text in dict.fromkeys([self._first_plain.after, *(seam.frame.after for seam in seams)]):
            yield from self._headers_in(text, behind=True)
        for seam in seams:
            yield from self._headers_in(seam.frame.before, attached=bool(seam.closing))
        if self._takes_system:
            yield from self._headers_in(self._first_user.before, behind=True, needed=False)
            # A template may put words of its own before the system message; its header is the last line that says
            # anything, and where that holds a control id (but the first of all) nothing can come before it.
            before, bos = self._first_system.before, getattr(self.tokenizer, "bos_token", None)
            line = before.rstrip().rpartition("\n")[2]
            if not self._controls(self._ids(line)) or line.startswith(bos or "\0"):
                yield from self._headers_in(f"\n{line}{before[len(before.rstrip()) :]}", needed=False)

    def _headers_in(
        self, text: str, *, behind: bool = False, attached: bool = False, needed: bool = True
    ) -> Iterator[Header]:
        """Headers of ordinary text in a template's text before a message, up to the control id that opens the message.

        Args:
            text: Of the template.
            behind: It stands behind a message, so that a control id it begins with closes that one.
            attached: It stands behind the control id that ends a reply.
            needed: Something in it must say who speaks.
        """
        ends = [self.tokenizer.decode([end], skip_special_tokens=False) for end in self.eos_ids]
        closers = {*ends, getattr(self.tokenizer, "bos_token", None)}
        literals = "|".join(map(re.escape, sorted(self._literals, key=len, reverse=True)))
        found: list[Header] = []
        opened = False
        for number, piece in enumerate(re.split(f"({literals})", text) if literals else [text]):
            if number % 2:
                if opened := piece not in closers and not (behind and text.startswith(piece) and not found):
                    break
                attached = True
                continue
            lines = piece.split("\n")
            for at, line in enumerate(lines):
                word = all(c.isalnum() or c in "_ " for c in line)
                if line.strip() and not (word and attached and at == 0):
                    header = Header(line.strip(), at > 0, at < len(lines) - 1, self._numbered)
                    found += self._headers_of(header, word=word, needed=needed)
            attached = attached and not piece
        spoken = [header for header in found if any(map(str.isalnum, header.text))]
        yield from spoken if spoken or opened or not needed else found

    def _headers_of(self, line: Header, *, word: bool, needed: bool) -> list[Header]:
        """The headers of one line: the line, or each of its parts where all of them are in brackets."""
        if self._controls(self._ids(line.text)):
            return []
        if self._numbered:
            line = replace(line, text=re.sub(r"\d+", "1", line.text))
        if word and not (line.starts_line and line.ends_line):
            if not needed:
                return []
            raise HeaderError(f"the word {line.text!r} inside a line is a header, and any text may hold that")
        parts = line.text.split()
        if all(part[0] in "<[{(|" and part[-1] in ">]})|" for part in parts):
            return [Header(part, numbered=self._numbered) for part in parts]
        return [line]

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    @cached_property
    def _anchor(self) -> str:
        """Text of an end-of-turn id, which stands for the reply that a text follows; empty where there is none."""
        added = self.tokenizer.added_tokens_decoder
        for token in sorted(self.eos_ids & self.control_ids):
            text = str(self.tokenizer.decode([token], skip_special_tokens=False))
            # One that takes the spaces behind it along would take them from the message.
            if self._ids(text) == [token] and getattr(added.get(token), "rstrip", None) is not True:
                return text
        return ""

    def _behind(self, text: str) -> list[int]:
        """Ids of a text that follows a reply."""
        if not text or not self._anchor:
            return self._ids(text)
        return self._ids(self._anchor + text)[1:]

    def _controls(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token in self.control_ids]

    def _encode(self, parts: Sequence[tuple[_Frame, str]], behind: bool = False) -> list[int]:
        """Encode messages in their frames, at the start or `behind` a reply; no control id comes from a message.

        Attempts at one task begin alike, and often get the same answers: ids of the latest messages are kept.
        """
        key = (*parts, behind)
        if (known := self._remembered.get(key)) is not None:
            return list(known)
        ids = self._encode_anew(parts, behind)
        if sum(len(content) for _, content in parts) <= _LONG:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[key] = tuple(ids)
        return ids

    def _encode_anew(self, parts: Sequence[tuple[_Frame, str]], behind: bool) -> list[int]:
        encode = self._behind if behind else self._ids
        parts = [(frame, _stripped(content, *frame.strips)) for frame, content in parts]
        ids = encode("".join(frame.before + content + frame.after for frame, content in parts))
        expected = [token for frame, _ in parts for token in frame.controls]
        if self._controls(ids) == expected:
            return ids
        ids = []
        for index, (frame, content) in enumerate(parts):
            ids += encode(frame.before) if index == 0 else self._behind(frame.before)
            for piece in self._pieces(content):
                # Normalisation can still turn odd characters into a literal: such an id is left out.
                ids += [token for token in self._behind(piece) if token not in self.control_ids]
            ids += self._behind(frame.after)
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


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A reply, and what the environment answered.

    Attributes:
        reply: As sampled.
        full: Ids from there to the next reply, with the whole observation.
        short: The same with a line in the place of the observation; `None` where it always stays whole.
    """

    reply: Sequence[int]
    full: Sequence[int]
    short: Sequence[int] | None = None


def shown(prompt_ids: Sequence[int], past: Sequence[Exchanged], keep: int | None) -> list[int]:
    """The prompt of the next reply: the task, and every exchange before it.

    Args:
        prompt_ids: Ids before the first reply; they always stay.
        past: The exchanges so far.
        keep: How many of the last observations are shown in full; `None`: all.
    """
    first = 0 if keep is None else len(past) - keep
    ids = list(prompt_ids)
    for number, one in enumerate(past):
        ids += one.reply
        ids += one.full if number >= first or one.short is None else one.short
    return ids


class Conversation:
    """The ids of one conversation: append-only, or with older observations as lines (see the module's text).

    Args:
        template: The tokenizer's template (or a tokenizer, which is taken apart here).

    Attributes:
        ids: The prompt of the next reply; behind a reply all ids up to its end.
        short: Ids that will stand for the last observation when it is older; `None` where it will stay as it is.
        forged: Headers of the template that messages held (see `ChatTemplate.headers`).
    """

    def __init__(self, template: ChatTemplate | Any) -> None:
        self.template = template if isinstance(template, ChatTemplate) else ChatTemplate(template)
        self.ids: list[int] = []
        self.short: list[int] | None = None
        self._prompt: list[int] = []
        self._past: list[Exchanged] = []
        self._reply: list[int] = []
        self._said = ""
        self._keep: int | None = None
        self._turn = 0
        self.forged = 0
        self._open = False
        self._ended = True

    def start(self, system: str, user: str, keep: int | None = None) -> list[int]:
        """Begin with the task; returns the prompt's ids. `keep`: how many observations stay in full, default all."""
        self.ids = self.template.first(system, user)
        self._prompt, self._past, self._keep, self.short = list(self.ids), [], keep, None
        self.forged = self.template.forged(system, user)
        self._turn = 0
        self._open = True
        return list(self.ids)

    def reply(self, ids: Sequence[int], finish: FinishReason) -> str:
        """Append a reply as sampled; returns its text."""
        if not self._open:
            raise ChatError("a reply comes after start() or observe()")
        self.ids += ids
        self._reply = list(ids)
        self._open = False
        self._said = self.template.text(ids)
        stopped = finish is FinishReason.STOP and bool(ids)
        self._ended = stopped and self.template.ends(ids[-1], self._turn, self._said)
        return self._said

    def observe(self, content: str, line: str | None = None) -> list[int]:
        """Append the environment's message; returns its ids in full, up to the next generation prompt.

        Args:
            content: The message.
            line: What stands for it when it is older; needed where `start` was told how many stay in full.
        """
        if self._open or not self.ids:
            raise ChatError("observe() comes after a reply")
        added = self._following(content)
        if self._keep is None:
            self.ids += added
        else:
            if line is None:
                raise ChatError("this conversation shows older observations as lines: observe() needs the line, too")
            cut = self._following(line)
            self.short = cut if len(cut) < len(added) else None  # a line that is no shorter gains nothing
            self._past.append(Exchanged(self._reply, added, self.short))
            self.ids = shown(self._prompt, self._past, self._keep)
        self.forged += self.template.forged(content)
        self._turn += 1
        self._open = True
        return added

    def _following(self, content: str) -> list[int]:
        return self.template.following(content, ended=self._ended, turn=self._turn, reply=self._said)


def _wide(slot: str) -> str:
    return f"\n {slot} \n"


def _stripped(content: str, left: bool, right: bool) -> str:
    content = content.lstrip() if left else content
    return content.rstrip() if right else content


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
