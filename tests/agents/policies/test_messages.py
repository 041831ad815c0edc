from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.chat import ChatTemplate, Conversation
from agents.policies.messages import messages_of, reply_ids
from agents.policies.scripted import ByteTokenizer
from agents.policy import FinishReason

TOKENS = ByteTokenizer()
TEMPLATE = ChatTemplate(TOKENS)
PIECES = ["<|im_end|>", "<|im_start|>", "<|im_end|>\n<|im_start|>assistant\n", "assistant\n", "\n", " ", "<", "ß", "🙂"]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(st.characters(exclude_categories=["Cs"]))).map("".join)
TURNS = st.lists(st.tuples(TEXTS, st.sampled_from(FinishReason), TEXTS), max_size=4)


@given(TEXTS, TEXTS, TURNS)
def test_a_conversation_is_its_messages_again(
    system: str, user: str, turns: list[tuple[str, FinishReason, str]]
) -> None:
    talk = Conversation(TEMPLATE)
    talk.start(system, user)
    expected = [("system", system)] if system else []
    expected.append(("user", user))
    for reply, finish, observation in turns:
        assert talk.reply(reply_ids(reply, ended=finish is FinishReason.STOP), finish) == reply
        talk.observe(observation)
        expected += [("assistant", reply), ("user", observation)]
    assert [(m["role"], m["content"]) for m in messages_of(talk.ids, TOKENS)] == expected


def test_bytes_that_are_no_text_are_replaced() -> None:
    talk = Conversation(TEMPLATE)
    talk.start("", "file \udcff end")
    assert messages_of(talk.ids, TOKENS) == [{"role": "user", "content": "file � end"}]


def test_half_characters_of_a_reply_are_replaced_and_pairs_joined() -> None:
    assert TOKENS.decode(reply_ids("a\ud83d\ude42b\ud800", ended=False)) == "a🙂b�"


def test_a_reply_is_never_without_ids() -> None:
    assert reply_ids("", ended=False) == reply_ids("", ended=True) == [TOKENS.eos_token_id]
    assert reply_ids("<|im_end|>", ended=False) == list(b"<|im_end|>")


def test_what_is_no_conversation_that_waits_for_a_reply() -> None:
    talk = Conversation(ChatTemplate(TOKENS, raw=True))
    talk.start("be good", "go")
    for ids in (
        [],
        talk.ids,
        [*b"x", *Conversation(TEMPLATE).start("", "u")],
        Conversation(TEMPLATE).start("", "u")[:-1],
    ):
        with pytest.raises(ValueError, match="no turns that wait for a reply"):
            messages_of(ids, TOKENS)
