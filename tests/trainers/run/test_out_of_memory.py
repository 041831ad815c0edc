"""Memory runs out somewhere in a run: one line with what helps, and what was learned is kept."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
import torch

from agents.policies.batch import Batch
from agents.policy import PolicyError
from sandboxes import probe
from trainers import grpo
from trainers.checkpoint import Checkpoint
from trainers.errors import OutOfMemoryError
from trainers.gigpo import GiGPOTrainer
from trainers.run import memory
from trainers.run.memory import ran_out

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
needs_sandbox = pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]
SMALL = [
    "--use_cpu", "true", "--tasks", "generated:quickstart?n=24&seed=5", "--held_out", "none", "--confirm", "0",
    "--per_device_train_batch_size", "4", "--gradient_accumulation_steps", "2", "--num_generations", "4",
    "--max_steps", "3", "--save_steps", "10", "--slots", "8", "--torch_threads", "1", "--warmup_steps", "0",
    "--learning_rate", "1e-3",
]  # fmt: skip
CUDA = "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 79.11 GiB"


def fails(monkeypatch, owner, name: str, when) -> None:
    """Have a method raise what torch raises, once `when` says so to (its object, number of the call)."""
    plain, calls = getattr(owner, name), 0

    def planted(self, *args, **kwargs):
        nonlocal calls
        calls += 1
        if when(self, calls):
            raise torch.OutOfMemoryError(CUDA)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(owner, name, planted)


def play(folder, capsys, *more: str) -> tuple[int, str, dict]:
    code = grpo.main([*SMALL, "--output_dir", str(folder), *more])
    summary = folder / "summary.json"
    return code, capsys.readouterr().err, json.loads(summary.read_text()) if summary.exists() else {}


def test_the_kind_of_an_error_is_kept_by_its_cause():
    assert ran_out(torch.OutOfMemoryError(CUDA)) is not None and ran_out(MemoryError()) is not None
    assert ran_out(RuntimeError("CUDA error: out of memory")) is not None
    assert ran_out(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    try:
        raise PolicyError("sampling failed") from torch.OutOfMemoryError(CUDA)
    except PolicyError as error:
        assert isinstance(ran_out(error), torch.OutOfMemoryError)


def test_advice_of_an_error_is_not_told_twice(monkeypatch):
    monkeypatch.setattr(memory, "find_shape", lambda source: None)
    row = OutOfMemoryError("step 3: no memory for a row (CUDA out of memory. Tried to allocate 1 MiB). What helps: a")
    line = memory.told(SimpleNamespace(source=None), ran_out(row), 3)
    assert "(step 3: no memory for a row (CUDA out of memory. Tried to allocate 1 MiB)). What helps most: " in line
    assert line.count("What helps") == 1


@needs_sandbox
@pytest.mark.parametrize("place", ["sampling", "learning"])
def test_the_last_finished_step_is_kept_and_gone_on_with(place, tmp_path, capsys, monkeypatch):
    whole = tmp_path / "whole"
    assert play(whole, capsys)[0] == 0
    folder = tmp_path / "run"
    with monkeypatch.context() as planted:
        if place == "sampling":
            begun = []
            fails(planted, GiGPOTrainer, "play", lambda trainer, _: begun.append(trainer.state.global_step) and False)
            fails(planted, Batch, "launch", lambda *_: begun.count(2) > 0)
        else:  # in the second of two passes, so that half a gradient is there
            fails(planted, GiGPOTrainer, "_compute_loss", lambda _, calls: calls == 6)
        code, err, summary = play(folder, capsys)
    assert code == 1 and "Traceback" not in err
    (line,) = [line for line in err.splitlines() if line.startswith("trainers.grpo")]
    assert line.startswith(
        "trainers.grpo: out of memory in step 3 (CUDA out of memory. Tried to allocate 20.00 MiB). What "
    )
    assert "What helps most: gradient_checkpointing or" in line and line.count(";") == 2
    assert "per_device_train_batch_size below 4" in line
    assert "The weights of step 2 are in checkpoint-2: --resume goes on from it." in line
    assert summary["stopped"] == "failed" and f"trainers.grpo: {summary['reason']}" == line
    assert Checkpoint.newest_whole(folder).step == 2
    assert play(folder, capsys, "--resume")[0] == 0
    same = [(path / "checkpoint-3" / "model.safetensors").read_bytes() for path in (whole, folder)]
    assert same[0] == same[1]
    states = [Checkpoint(path / "checkpoint-3").state for path in (whole, folder)]
    for state in states:
        state["run"].pop("clock")
        state["run"]["guards"]["VerifierHealth"].pop("_p95")  # seconds
    assert states[0] == states[1], "guards and credit did not see the failed step"


@needs_sandbox
def test_half_an_optimizer_step_is_never_kept(tmp_path, capsys, monkeypatch):
    folder = tmp_path / "run"
    with monkeypatch.context() as planted:
        fails(planted, torch.optim.AdamW, "step", lambda _, calls: calls == 3)
        code, err, _ = play(folder, capsys, "--save_steps", "1")
    assert code == 1 and "The weights" not in err and "The last checkpoint is that of step 2" in err
    with monkeypatch.context() as planted:
        fails(planted, torch.optim.AdamW, "step", lambda _, calls: calls == 3)
        code, err, summary = play(tmp_path / "other", capsys)
    assert code == 1 and "The weights of step 2 are lost: an optimizer step" in err
    assert "No checkpoint was written before." in summary["reason"]
    assert not Checkpoint.all_of(tmp_path / "other")


@needs_sandbox
def test_a_model_that_does_not_fit_leaves_no_folder(tmp_path, capsys, monkeypatch):
    fails(monkeypatch, GiGPOTrainer, "_start_sampler", lambda *_: True)
    code, err, _ = play(tmp_path / "run", capsys)
    assert code == 1 and err.startswith("trainers.grpo: out of memory while the run was put together (CUDA out of")
    assert "Traceback" not in err and not (tmp_path / "run").exists()
