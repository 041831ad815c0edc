from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from tasks.families.quickstart import ALL_WORDS
from trainers.warmstart.corpus import CHAT_TEMPLATE, MARKERS, chatml, pieces, save_tokenizer, train_tokenizer

TEXTS = ["add the line red fox to notes.txt", "```bash\nsed -i s/red/blue/ notes.txt\n```", "ok\n3 notes.txt"] * 25
CHAT = [
    {"role": "user", "content": "copy notes.txt to readme.md"},
    {"role": "assistant", "content": "```bash\ncp notes.txt readme.md\n```"},
    {"role": "user", "content": "ok"},
    {"role": "assistant", "content": "TASK_COMPLETE"},
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(ALL_WORDS, TEXTS)


def test_every_word_and_marker_is_one_token_in_both_forms(tokenizer):
    for word in ALL_WORDS:
        for form in (word, " " + word):
            assert len(tokenizer.encode(form)) == 1, form
    for marker in MARKERS:
        assert len(tokenizer.encode(marker)) == 1, marker


def test_any_text_survives(tokenizer):
    for text in (
        "héllo  wörld\t\n\n x-y_z.tar.gz 1234 >> $(ls) && a||b ../x",
        "```bash\necho hi\n```",
        "日本語 🎉",
        " ",
    ):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_digits_stand_alone(tokenizer):
    assert [tokenizer.decode([i]) for i in tokenizer.encode("427")] == ["4", "2", "7"]


def test_a_dash_belongs_to_a_flag_but_not_to_a_name():
    assert pieces("sort -r a-b") == ["sort", " -r", " a", "-", "b"]


def test_equal_words_give_equal_bytes(tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path / "a")
    save_tokenizer(train_tokenizer(reversed(ALL_WORDS), TEXTS), tmp_path / "b")
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_it_loads_as_any_tokenizer_does(tokenizer, tmp_path):
    save_tokenizer(tokenizer, tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    text = chatml(CHAT, prompt=True)
    assert loaded.encode(text) == tokenizer.encode(text)
    assert loaded.chat_template == CHAT_TEMPLATE
    assert (loaded.eos_token, loaded.padding_side) == ("<|im_end|>", "left")
    assert loaded.pad_token_id != loaded.eos_token_id


@pytest.mark.parametrize("prompt", [True, False])
def test_the_fast_rendering_is_the_template(tokenizer, prompt):
    messages = [{"role": "system", "content": "be brief"}, *CHAT]
    rendered = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
    assert rendered == chatml(messages, prompt=prompt)


def test_longer_conversations_begin_with_the_ids_of_shorter_ones(tokenizer):
    whole = tokenizer.encode(chatml(CHAT, prompt=False))
    for end in (1, 3):
        prompt = tokenizer.encode(chatml(CHAT[:end], prompt=True))
        assert whole[: len(prompt)] == prompt


def test_an_unknown_role_is_refused(tokenizer):
    with pytest.raises(Exception, match="roles system, user and assistant"):
        tokenizer.apply_chat_template([{"role": "tool", "content": "x"}], tokenize=False)
