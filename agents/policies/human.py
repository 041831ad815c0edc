"""A person at a terminal, behind the same protocol as a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents.policies.scripted import ByteTokenizer, spoken
from agents.policy import Abilities, Completion, PolicyError, Request, Sampling
from envs.__main__ import incomplete
from envs.actions import STOP_WORD, Command, Submit, fenced, parse, without_stop_word
from envs.protocol import protocol

HELP = f"""Type a reply of any number of lines and end it with a line that holds only a full stop (".."
for a line that is meant to be "."). "$ ls" as the first line sends the command "ls" in a block of its own;
it goes on while a quote or a heredoc is open. Ctrl-D at the start of a reply gives up: {STOP_WORD} is sent.
Where the agent calls tools, a block and {STOP_WORD} become calls."""


class HumanPolicy:
    """Asks a person for every reply, one conversation at a time.

    The person sees what the conversation has gained since their last reply. The end of the input (Ctrl-D) inside a
    reply sends what was typed. At the start of one the person gives up: this reply and all later ones are the stop
    word, so the work is graded as it stands.

    Ids are those of `tokenizer`. Nobody knows a person's probabilities: there are none, and nothing can be trained on.

    Args:
        tokenizer: Makes ids of the text; default: one id a byte.
        read: Gives one line for a prompt; raises EOFError at the end, as `input` does.
        write: Shows a text.
    """

    abilities = Abilities(own_ids=False, logprobs=False, entropies=False, every_control=False)

    def __init__(
        self, tokenizer: Any = None, *, read: Callable[[str], str] = input, write: Callable[[str], object] = print
    ) -> None:
        self.tokenizer: Any = tokenizer if tokenizer is not None else ByteTokenizer()
        self.eos_ids: frozenset[int] = frozenset([self.tokenizer.eos_token_id])
        self._read, self._write = read, write
        self._shown: dict[str, list[int]] = {}
        self._helped = self._gave_up = False

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        """Ask for each reply, in order. Temperatures and seeds mean nothing to a person; the cap on tokens holds.

        Raises:
            PolicyError: A request brings a control: nobody can force a person's words.
        """
        return [self._complete(request, sampling) for request in requests]

    def forget(self, conversations: Sequence[str]) -> None:
        """These conversations are over."""
        for conversation in conversations:
            self._shown.pop(conversation, None)

    def _complete(self, request: Request, sampling: Sampling) -> Completion:
        if request.control is not None:
            raise PolicyError(f"conversation {request.conversation}: a person's reply takes no token control (T2PO)")
        ids = list(request.prompt_ids)
        known = self._shown.get(request.conversation, [])
        new = ids[len(known) :] if ids[: len(known)] == known else ids
        text = STOP_WORD
        if not self._gave_up:
            if not self._helped:
                self._write(HELP)
                self._helped = True
            self._write(self.tokenizer.decode(new, skip_special_tokens=True))
            text = self._typed()
        text = _as_calls(text, request.protocol)
        cap = request.cap(sampling)
        reply, finish = spoken(self.tokenizer, text, request.stops, cap)
        if finish == "length":
            self._write(f"(the reply was cut at {cap} tokens)")
        self._shown[request.conversation] = [*ids, *reply]
        return Completion(reply, None, None, None, [False] * len(reply), finish)

    def _typed(self) -> str:
        """One reply; the stop word where the person gives up."""
        try:
            first = self._read("reply> ")
        except EOFError:
            self._gave_up = True
            return STOP_WORD
        lines = [first]
        command = first.startswith("$ ")
        if command:
            lines[0] = first[2:]
        try:
            while incomplete(lines) if command else lines[-1] != ".":
                lines.append(self._read("> "))
        except EOFError:
            pass  # what was typed is the reply
        else:
            if not command:
                lines.pop()
        if command:
            return fenced("\n".join(lines))
        return "\n".join("." if line == ".." else line for line in lines)


def _as_calls(typed: str, name: str) -> str:
    """What a person typed, as calls of a protocol with tools; as it is without tools, or where it asks for nothing."""
    spoken_in = protocol(name)
    if not spoken_in.tools:
        return typed
    match parse(typed):
        case Command(command, then_submit=False):
            return spoken_in.command(command)
        case Submit(text):
            return spoken_in.submission(without_stop_word(text))
    return typed
