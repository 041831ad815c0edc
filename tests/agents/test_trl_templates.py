"""Every chat template that TRL ships carries a conversation of three turns, or is refused with a reason."""

from __future__ import annotations

import copy
import re
from functools import cache
from typing import Any

import pytest

from agents.chat import ChatError, ChatTemplate, Conversation
from agents.policy import FinishReason
from tests.agents.speakers import TRL_TEMPLATES, trl_template
from tests.agents.toys import tokenizer

NAMES = sorted(path.stem for path in TRL_TEMPLATES.glob("*.jinja"))
CONTROL = re.compile(r"<\|[\w.▁-]+\|>|<｜[\w▁]+｜>|<\|?[a-z_]+\|?>|</?think>|\[gMASK\]|<[a-z_]+>")
ENDS = [
    "<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<turn|>", "<|END_OF_TURN_TOKEN|>", "<｜end▁of▁sentence｜>", "<|eot|>",
    "<|return|>", "<|end|>", "<|user|>", "<end_of_utterance>", "</s>",
]  # fmt: skip
"""What ends a turn, the first that a template has."""
REFUSED = {"idefics3", "llava_next", "smolvlm"}
"""Of vision models; their templates read messages in parts only."""
DRESSED = {
    "cohere2", "deepseek_r1_distill", "deepseekv3", "glm4moe", "gptoss", "muse_glimmer", "nemotron_3_5_lightning",
    "nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "qwen3_5_nothink", "qwen3_5_think", "qwen3_6", "qwen3_8",
}  # fmt: skip
"""These write a header before a new reply and another one before an old reply (an opened thought, mostly)."""
DRESSED |= {f"{name}_training" for name in DRESSED - {"qwen3_5_nothink"}} | {"qwen3_training"}
CARRIED = [name for name in NAMES if name.removesuffix("_training") not in REFUSED]


@cache
def tokens_for(text: str) -> Any:
    """A small tokenizer that has the template's control tokens and ends turns as its model does."""
    made = copy.deepcopy(tokenizer(None, think=False))
    literals = sorted(set(CONTROL.findall(text)))
    made.add_tokens([word for word in literals if word not in ("<think>", "</think>")], special_tokens=True)
    made.add_tokens([word for word in literals if word in ("<think>", "</think>")])
    end = next((word for word in ENDS if word in text), ENDS[-1])
    made.add_tokens([end], special_tokens=True)
    made.eos_token = end
    made.chat_template = text
    return made


def talk_of(tokens: Any, replies: list[str]) -> tuple[Conversation, list[list[int]]]:
    """A conversation; the ids that were added, piece by piece."""
    talk = Conversation(ChatTemplate(tokens))
    pieces = [talk.start("Be good.", "Write hello.")]
    for index, reply in enumerate(replies):
        ids = [*tokens.encode(reply, add_special_tokens=False), tokens.eos_token_id]
        talk.reply(ids, FinishReason.STOP)
        pieces += [ids, talk.observe(f"ok {index}")]
    return talk, pieces


@pytest.mark.parametrize("name", CARRIED)
def test_three_turns(name: str) -> None:
    tokens = tokens_for(trl_template(name))
    replies = ["ls one", "<think>a thought</think>two", "three"]
    talk, pieces = talk_of(tokens, replies)
    # Append-only, and every reply as it was sampled.
    assert talk.ids == [token for piece in pieces for token in piece]
    for reply, ids in zip(replies, pieces[1::2], strict=True):
        assert tokens.decode(ids[:-1]) == reply and ids[-1] == tokens.eos_token_id
    # Every message stands there once, in order, and each context is the same but for its text.
    text = tokens.decode(talk.ids)
    said = ("Be good.", "Write hello.", "ls one", "ok 0", "a thought", "ok 1", "three", "ok 2")
    places = [text.index(word) for word in said]
    assert places == sorted(places) and all(text.count(word) == 1 for word in said)
    seams = {tokens.decode(ids).replace(f"ok {index}", "ok") for index, ids in enumerate(pieces[2::2])}
    assert len(seams) == 1


@pytest.mark.parametrize("name", CARRIED)
def test_plain_replies_give_what_the_template_renders(name: str) -> None:
    tokens = tokens_for(trl_template(name))
    template = ChatTemplate(tokens)
    talk, _ = talk_of(tokens, ["ls one", "two"])
    messages = [("system", "Be good."), ("user", "Write hello."), ("assistant", "ls one"), ("user", "ok 0"),
                ("assistant", "two"), ("user", "ok 1")]  # fmt: skip
    if not template._takes_system:
        messages[:2] = [("user", "Be good.\n\nWrite hello.")]
    rendered = template._render([{"role": role, "content": text} for role, text in messages])
    # Ids, not only text: a whole encoding gives the same where replies were encoded in one piece, as here.
    same = talk.ids == tokens.encode(rendered, add_special_tokens=False)
    assert same == (name not in DRESSED)


@pytest.mark.parametrize("name", sorted(set(NAMES) - set(CARRIED)))
def test_templates_of_vision_models_are_refused(name: str) -> None:
    with pytest.raises(ChatError, match="templates of vision models take messages in parts"):
        ChatTemplate(tokens_for(trl_template(name)))
