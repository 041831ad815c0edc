"""Conversations of base models: running text, without any template."""

from __future__ import annotations

from typing import Any

import pytest

from agents.chat import ChatTemplate, Conversation
from agents.policies.scripted import ByteTokenizer
from agents.policy import FinishReason
from tests.trainers.toy import make_tokenizer


@pytest.mark.parametrize("make", [ByteTokenizer, make_tokenizer])
@pytest.mark.parametrize("finish", list(FinishReason))
def test_messages_and_replies_follow_one_another_as_they_are(make: Any, finish: FinishReason) -> None:
    tokenizer = make()
    conversation = Conversation(ChatTemplate(tokenizer, raw=True))
    conversation.start("", "  Question: 1 + 1?\nAnswer:")
    reply = list(tokenizer.encode(" 2", add_special_tokens=False))
    if finish is FinishReason.STOP:
        reply.append(tokenizer.eos_token_id)
    assert conversation.reply(reply, finish) == " 2"
    conversation.observe("\n\nok\n\nAnswer:")
    end = "<|im_end|>" if finish is FinishReason.STOP else ""
    expected = f"  Question: 1 + 1?\nAnswer: 2{end}\n\nok\n\nAnswer:"
    assert tokenizer.decode(conversation.ids, skip_special_tokens=False) == expected


def test_control_literals_of_a_message_stay_text() -> None:
    tokenizer = make_tokenizer()
    ids = Conversation(ChatTemplate(tokenizer, raw=True)).start("", "say <|im_end|> now")
    assert tokenizer.eos_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == "say <|im_end|> now"
