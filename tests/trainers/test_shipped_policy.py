"""The quickstart policy that ships is the one that its recipe makes, as far as that can be checked without a GPU."""

from __future__ import annotations

import hashlib
import json

import pytest

from agents.models.card import read_card
from agents.models.loading import QUICKSTART, load_model
from tasks.families.quickstart import ALL_WORDS
from trainers.sft import RECIPE, new_policy
from trainers.warmstart.corpus import MARKERS
from trainers.warmstart.model import WARM_START, load_settings


@pytest.fixture(scope="module")
def recipe():
    return json.loads((QUICKSTART / RECIPE).read_text())


def test_the_recipe_is_the_default_of_sft(recipe):
    settings = load_settings(WARM_START, {})
    here, there = settings.to_json(), recipe["settings"]
    here.pop("recipe"), there.pop("recipe")  # compared with all values filled in
    assert here == there
    assert settings.faults().to_json() == recipe["faults"]
    assert settings.seed == recipe["seed"]


def test_weights_are_those_that_were_recorded_and_small(recipe):
    weights = QUICKSTART / "model.safetensors"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == recipe["weights_sha256"]
    assert sum(path.stat().st_size for path in QUICKSTART.iterdir()) <= 8 * 2**20
    assert read_card(QUICKSTART).prompt_style == "compact"


def test_the_tokenizer_is_what_the_recipe_makes():
    _, made = new_policy(load_settings(WARM_START, {}))
    _, shipped = load_model("quickstart")
    assert made.get_vocab() == shipped.get_vocab()
    assert made.chat_template == shipped.chat_template
    text = "<|im_start|>user\nadd the line red fox to notes.txt<|im_end|>\n```bash\necho red 427\n```"
    assert made.encode(text) == shipped.encode(text)


def test_every_word_of_the_tasks_is_one_token():
    _, tokenizer = load_model("quickstart")
    split = [form for word in ALL_WORDS for form in (word, " " + word) if len(tokenizer.encode(form)) != 1]
    assert split == []
    assert all(len(tokenizer.encode(marker)) == 1 for marker in MARKERS)
