"""What a GPU chooses for settings that nobody gave."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from sandboxes import probe
from trainers import grpo
from trainers.run.setup import prepare
from trainers.settings import preset
from trainers.settings.parsing import parse
from trainers.settings.preset import PRESET, Asked, Gpu

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
needs_sandbox = pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
pytestmark = pytest.mark.filterwarnings("ignore")
H200 = Gpu("NVIDIA H200", 140 * 2**30, 139 * 2**30, tf32=False)
"""Without TF32: transformers refuses the flag where torch sees no such GPU."""
TOKENS = {"micro_batch_tokens": "auto"}
SOME = ["--model_name_or_path", "owner/name", "--gradient_accumulation_steps", "16"]
FEW = ["--tasks", "generated:quickstart?n=40&seed=1", "--held_out", "none"]


@pytest.fixture
def gpu(monkeypatch):
    monkeypatch.setattr(preset, "find_gpu", lambda *, use_cpu: None if use_cpu else H200)


def chosen(*args: str) -> dict:
    return dict(parse(args).preset.chosen)


def test_a_gpu_chooses_what_nobody_gave(gpu):
    settings = parse(SOME)
    assert settings.preset.chosen == {"dtype": "bfloat16", "sample_dtype": "auto", "slots": 128, **TOKENS}
    assert (settings.policy.dtype, settings.config.sample_dtype, settings.env.slots) == ("bfloat16", "auto", 128)
    assert settings.config.rounded
    line = "device preset (NVIDIA H200): dtype=bfloat16, sample_dtype=auto, slots=128"
    assert settings.preset.line() == line + ", micro_batch_tokens=auto"


def test_what_was_given_stays_also_where_it_is_the_default(gpu, tmp_path):
    assert "dtype" not in chosen(*SOME, "--dtype", "float32") and "slots" not in chosen(*SOME, "--slots=32")
    path = tmp_path / "mine.yaml"
    path.write_text("sample_dtype: same\n")
    assert "sample_dtype" not in chosen(*SOME, "--config", str(path))
    assert chosen(*SOME, "--device_preset", "none") == chosen(*SOME, "--use_cpu", "true") == {}


def test_each_row_follows_what_is_trained(gpu, tmp_path):
    assert chosen("--adapter", "none", *SOME) == {"sample_dtype": "auto", "slots": 128, **TOKENS}
    assert chosen("--adapter", "none", "--dtype", "bfloat16", *SOME) == {"slots": 128, **TOKENS}
    assert "sample_dtype" not in chosen(*SOME, "--sampler", "vllm:http://127.0.0.1:8000")
    assert "sample_dtype" not in chosen(*SOME, "--lora_target_modules", "q_proj,embed_tokens")
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    assert chosen("--model_name_or_path", str(tmp_path)) == {"sample_dtype": "auto", **TOKENS}, "other dtype"
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "use_dora": true}')
    assert chosen("--model_name_or_path", str(tmp_path)) == TOKENS
    many = ["--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "64"]
    assert chosen(*SOME, *many)["slots"] == 256


def test_tf32_is_for_what_learns_in_float32_where_there_is_tf32():
    settings = parse([*SOME, "--use_cpu", "true"])
    row = next(row for row in PRESET if row.setting == "tf32")
    asked = Asked(settings.env, settings.policy, settings.config, replace(H200, tf32=True), {"dtype": "bfloat16"})
    assert row.value(asked) is True, "the adapter learns in float32"
    settings.policy.adapter = "none"
    assert row.value(asked) is None
    assert row.value(replace(asked, chosen={})) is True
    assert row.value(replace(asked, chosen={}, gpu=H200)) is None


def test_passes_are_cut_by_tokens_where_they_may_be():
    settings = parse([*SOME, "--use_cpu", "true"])
    row = next(row for row in PRESET if row.setting == "micro_batch_tokens")
    asked = Asked(settings.env, settings.policy, settings.config, H200)
    assert row.value(asked) == "auto"
    settings.config.top_entropy_quantile = 0.5
    assert row.value(asked) is None, "it ranks the tokens of a whole step"
    several = parse([*SOME, "--use_cpu", "true", "--steps_per_generation", "8"])
    assert row.value(replace(asked, config=several.config)) is None, "a step of several generations"


def test_the_file_of_a_run_gives_its_settings_on_any_device(gpu, tmp_path, monkeypatch):
    settings = parse(SOME)
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**settings.resolved(), "output_dir": str(tmp_path)}))
    for again in (["--config", str(path)], ["--model_name_or_path", "x", "--output_dir", str(tmp_path), "--resume"]):
        same = parse([*again, "--model_name_or_path", "owner/name"])
        assert same.preset.chosen == {} and same.sha256() == settings.sha256()
    resumed = parse([*SOME, "--config", "smollm2", "--output_dir", str(tmp_path), "--resume", "--slots", "8"])
    assert resumed.preset.chosen == {"sample_dtype": "auto", **TOKENS} and resumed.env.slots == 8, (
        "its file gives the dtype"
    )
    monkeypatch.setattr(preset, "find_gpu", lambda *, use_cpu: None)
    assert parse(["--config", str(path)]).sha256() == settings.sha256()


def test_a_cpu_chooses_nothing_and_says_so_where_it_was_asked():
    plain, asked = parse(["--use_cpu", "true"]), parse(["--use_cpu", "true", "--device_preset", "auto"])
    assert plain.preset.chosen == {} and plain.preset.line() == "" and not plain.preset.idle and asked.preset.idle
    assert plain.sha256() == asked.sha256()


@needs_sandbox
def test_it_is_said_before_the_run_and_in_a_dry_run(gpu, tmp_path, capsys):
    args = [*FEW, "--output_dir", str(tmp_path / "run")]
    line = "device preset (NVIDIA H200): sample_dtype=auto, micro_batch_tokens=auto"  # quickstart.yaml gives the others
    assert grpo.main([*args, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"# {line}" in out and "of 140.00 GiB (NVIDIA H200)" in out
    written = yaml.safe_load(out)
    assert (written["sample_dtype"], written["device_preset"]) == ("auto", "none")
    run = prepare(parse(args))
    assert line in run.remarks() and not any("device_preset" in note for note in run.notes())
    asked = prepare(parse([*args, "--use_cpu", "true", "--device_preset", "auto"]))
    assert any("device_preset=auto does nothing" in note for note in asked.notes())
