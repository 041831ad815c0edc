from __future__ import annotations

import numpy as np
import pytest

from agents.chat import Conversation
from agents.policy import FinishReason
from tasks.families.quickstart import ALL_WORDS
from tests.trainers.toy import make_tokenizer
from trainers.warmstart.corpus import Batches, ConversationEncoder, Corpus, CorpusError, train_tokenizer

COPY = "```bash\ncp notes.txt readme.md\n```"


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(ALL_WORDS)


def conversation(*contents: str) -> list[dict[str, str]]:
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(contents)]


def test_ids_are_those_that_a_rollout_meets(tokenizer):
    ids, trained = ConversationEncoder(tokenizer)(conversation("copy notes.txt", COPY, "ok", "TASK_COMPLETE"))
    met = Conversation(tokenizer)
    met.start("", "copy notes.txt")
    eos = tokenizer.eos_token_id
    first = [*tokenizer.encode(COPY), eos]
    met.reply(first, FinishReason.STOP)
    met.observe("ok")
    last = [*tokenizer.encode("TASK_COMPLETE"), eos]
    met.reply(last, FinishReason.STOP)
    assert ids[: len(met.ids)] == met.ids
    assert [i for i, on in zip(ids, trained, strict=True) if on] == first + last
    assert not any(trained[len(met.ids) :])


def test_a_general_template_gives_the_same_ids_as_the_fast_way(tokenizer):
    messages = conversation("copy notes.txt", COPY, "ok", "TASK_COMPLETE")
    fast = ConversationEncoder(tokenizer)(messages)
    general = ConversationEncoder(tokenizer)
    general._chatml = False
    assert general(messages) == fast


DEFAULT_SYSTEM = (
    "{% for m in messages %}"
    "{% if loop.first and m.role != 'system' %}<|im_start|>system\nI help.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DATED = "{{ strftime_now('%d %b %Y') }}\n" + DEFAULT_SYSTEM


@pytest.mark.parametrize("template", [DEFAULT_SYSTEM, DATED], ids=["a system message of its own", "today's date"])
def test_the_ids_of_any_model_are_those_that_its_rollouts_meet(template):
    """SmolLM2 has a system message of its own; Llama 3 writes the date, which must be the rollout's."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    ids, trained = ConversationEncoder(tokenizer)(conversation("copy notes.txt", COPY, "ok", "TASK_COMPLETE"))
    met = Conversation(tokenizer)
    met.start("", "copy notes.txt")
    replies = [[*tokenizer.encode(text), tokenizer.eos_token_id] for text in (COPY, "TASK_COMPLETE")]
    met.reply(replies[0], FinishReason.STOP)
    met.observe("ok")
    met.reply(replies[1], FinishReason.STOP)
    assert ids[: len(met.ids)] == met.ids
    assert [i for i, on in zip(ids, trained, strict=True) if on] == replies[0] + replies[1]


def test_messages_after_the_last_reply_are_left_out(tokenizer):
    encode = ConversationEncoder(tokenizer)
    assert encode(conversation("copy notes.txt", COPY, "ok")) == encode(conversation("copy notes.txt", COPY))


def test_a_template_that_rewrites_the_past_is_refused():
    tokenizer = train_tokenizer(ALL_WORDS)
    tokenizer.chat_template = "{{ messages|length }}{% for m in messages %}<|im_start|>{{ m.content }}{% endfor %}"
    with pytest.raises(CorpusError, match="rewrites earlier text"):
        ConversationEncoder(tokenizer)(conversation("a", "b", "c", "d"))


def test_no_reply_and_no_template_are_refused(tokenizer):
    with pytest.raises(CorpusError, match="no assistant message"):
        ConversationEncoder(tokenizer)(conversation("a"))
    bare = train_tokenizer(ALL_WORDS)
    bare.chat_template = None
    with pytest.raises(CorpusError, match="no chat template"):
        ConversationEncoder(bare)


def numbered(lengths: list[int]) -> Corpus:
    return Corpus.of(
        ([100 * row + i for i in range(n)], [i % 2 == 1 for i in range(n)]) for row, n in enumerate(lengths)
    )


def test_batches_hold_every_sequence_once_within_the_budget():
    lengths = [5, 3, 9, 4, 4, 7, 2, 30]
    batches = Batches(numbered(lengths), batch_tokens=12, pad_id=7, seed=0)
    rows = []
    for ids, trained, real in batches.epoch():
        assert ids.size <= 12 or len(ids) == 1
        assert (ids[~real] == 7).all() and not trained[~real].any()
        for row, mask, on in zip(ids, real, trained, strict=True):
            rows.append(row[mask].tolist())
            assert on[mask].tolist() == [i % 2 == 1 for i in range(int(mask.sum()))]
    assert sorted(rows) == sorted([100 * row + i for i in range(n)] for row, n in enumerate(lengths))


def test_order_depends_on_the_seed_alone():
    def order(seed: int) -> list[list[int]]:
        return [ids[:, 0].tolist() for ids, _, _ in Batches(numbered([3] * 40), 12, 0, seed).epoch()]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_the_hash_sees_ids_masks_and_cuts():
    base = Corpus.of([([1, 2], [False, True]), ([3], [True])])
    assert base.sha256() == Corpus.join([Corpus.of([([1, 2], [False, True])]), Corpus.of([([3], [True])])]).sha256()
    others = [
        Corpus.of([([1, 9], [False, True]), ([3], [True])]),
        Corpus.of([([1, 2], [True, True]), ([3], [True])]),
        Corpus.of([([1], [False]), ([2, 3], [True, True])]),
    ]
    assert len({base.sha256(), *(other.sha256() for other in others)}) == 4


def test_long_sequences_are_left_out():
    kept = numbered([2, 5, 3]).shorter_than(3)
    assert kept.lengths.tolist() == [2, 3]
    assert kept.ids.tolist() == [0, 1, 200, 201, 202]
    assert kept.trained.dtype == np.bool_


def test_nothing_to_train_on_is_refused():
    with pytest.raises(CorpusError, match="no conversation"):
        Batches(Corpus.join([]), 10, 0, 0)
