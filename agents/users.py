"""Who answers as a task's user in the place of its patterns: a model at an endpoint, or a record of what one said.

The model decides which rule a message asks for, in whatever words it is asked; the words of a rule, its conditions and
requests stay the task's, so what the user promised can be checked as in a scripted episode. Only where no rule answers
are the words the model's own. Its answers may differ from one run to the next, so they are for evaluation, and are
recorded: a replay asks nobody.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agents.chat import ChatTemplate, Conversation
from agents.models.card import ModelError
from agents.policies.openai import Unanswered
from agents.policies.opening import EXAMPLES, PolicyKind, PolicyName, read_name
from agents.policy import Policy, PolicyError, PromptTooLong, Request, Sampling, SomeFailed
from agents.seeds import derive_seed
from envs.fences import take_apart
from sandboxes.sandbox import SandboxError
from tasks.user import READ, Asked, Said

ROLE = """\
You play a person who gave an assistant a task, and you answer the assistant's messages. You are not the assistant.

The task: {intent}

What you can say, by number:
{lines}

Read the conversation. If one of these lines answers the assistant's last message, reply with its number alone. If none
does, reply with 0, and on the next line a short answer in your own words. You know nothing beside these lines: you
neither allow, forbid nor ask for anything that they do not hold; where you do not know, say: {otherwise}"""
"""What the model is told."""

NOTHING = "(none of it fits now: reply with 0 and an answer)"
SHOWN = 40
"""Messages of the conversation that the model is shown, the last ones."""
SAMPLING = Sampling(0.0, 512)

_NUMBER = re.compile(r"\s*(\d{1,3})\b[.:)]?\s*")


def read_user(text: str) -> PolicyName:
    """The endpoint that a name means; opens nothing.

    Raises:
        ModelError: It names none, or a policy that is no chat endpoint.
    """
    named = read_name(text)
    if named.kind is not PolicyKind.OPENAI:
        raise ModelError(f"the user {text!r} is no chat endpoint; name one, such as {EXAMPLES['openai']}")
    return named


class ModelUser:
    """A model that answers as the user of tasks, behind any policy. Its calls may come from several threads.

    Args:
        policy: Of the model; it takes calls from several threads, as chat endpoints do.
        label: Stands for it in records.
        sampling: Decode settings.
    """

    def __init__(self, policy: Policy, label: str, sampling: Sampling = SAMPLING) -> None:
        self.label = label
        self._policy, self._sampling = policy, sampling
        self._template = ChatTemplate(policy.tokenizer, policy.eos_ids)
        self._numbers = itertools.count()

    def answer(self, asked: Asked) -> Said:
        """See `tasks.user.Speaker`. A message that the server refuses to answer is one that no rule answers.

        Raises:
            SandboxError: The endpoint failed.
        """
        talk = Conversation(self._template)
        prompt = talk.start(_role(asked), _shown(asked))
        name = f"user {next(self._numbers)}"
        seed = derive_seed(asked.seed, "user", asked.intent, asked.turn)
        try:
            (completion,) = self._policy.complete([Request(name, prompt, seed, first_turn=True)], self._sampling)
        except PolicyError as error:
            why = error.answers[0] if isinstance(error, SomeFailed) else error
            if isinstance(why, Unanswered | PromptTooLong):  # the agent's words may cause it: no way out of a bad grade
                return Said(asked.turn, asked.user.otherwise)
            raise SandboxError(f"the user ({self.label}) did not answer: {why}") from error
        finally:
            self._policy.forget([name])
        return read_answer(talk.reply(completion.ids, completion.finish), asked)


def read_answer(reply: str, asked: Asked) -> Said:
    """What a model's reply says: the words of the rule that it names, or its own."""
    text = take_apart(reply).visible
    number = _NUMBER.match(text)
    chosen = int(number[1]) if number else 0
    if 1 <= chosen <= len(asked.open):
        rule = asked.open[chosen - 1]
        return Said(asked.turn, asked.user.rules[rule].say, rule)
    own = text[number.end() if number else 0 :].strip()[:READ]
    return Said(asked.turn, own or asked.user.otherwise)


def _role(asked: Asked) -> str:
    lines: list[str] = []
    for number, position in enumerate(asked.open, start=1):
        rule = asked.user.rules[position]
        lines.append(f"{number}. (to a message like /{rule.when.says}/) {rule.say}")
    return ROLE.format(intent=asked.intent, lines="\n".join(lines) or NOTHING, otherwise=asked.user.otherwise)


def _shown(asked: Asked) -> str:
    speakers = {"agent": "Assistant", "user": "You"}
    return "\n\n".join(f"{speakers[line.speaker]}: {line.text}" for line in asked.past[-SHOWN:])


class UnlikeThen(ValueError):
    """What was recorded cannot have been said now: the task is another one."""


class RecordedUser:
    """Says again what a model said in a recorded episode.

    Args:
        label: Of the model.
        records: The note `user` of the episode.
    """

    def __init__(self, label: str, records: Sequence[Mapping[str, Any]]) -> None:
        self.label = label
        self._said = [Said(**record) for record in records]

    def answer(self, asked: Asked) -> Said:
        """See `tasks.user.Speaker`; where nothing was recorded nobody understood.

        Raises:
            UnlikeThen: The rule that answered then is none that may answer now.
        """
        rules = asked.user.rules
        for said in self._said:
            if said.turn != asked.turn:
                continue
            if said.rule is None or said.rule in asked.open:
                return said
            if said.rule >= len(rules) or rules[said.rule].when.says is not None:
                raise UnlikeThen(f"turn {said.turn}: rule {said.rule} of the user answered then, and cannot now")
        return Said(asked.turn, asked.user.otherwise)
