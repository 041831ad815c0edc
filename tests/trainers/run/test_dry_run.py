"""`--dry-run` of every config that ships: nothing is fetched, nothing is loaded, and what is unknown is said."""

from __future__ import annotations

import socket

import pytest
import yaml

from agents.models import loading
from sandboxes import probe
from trainers import grpo
from trainers.settings.help import CONFIGS, QUICKSTART
from trainers.warmstart.model import load_settings

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
needs_sandbox = pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
pytestmark = pytest.mark.filterwarnings("ignore")
WARM_STARTS = sorted(path for path in CONFIGS.glob("*.yaml") if "warm_start" in path.stem)
RUNS = sorted(path for path in CONFIGS.glob("*.yaml") if path not in WARM_STARTS)


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """No network, no cached model, and no weights that could be loaded."""

    def refuse(*_):
        raise AssertionError("a dry run went into the network")

    real = socket.socket.connect
    monkeypatch.setattr(
        socket.socket, "connect", lambda s, address: real(s, address) if s.family == socket.AF_UNIX else refuse()
    )
    monkeypatch.setenv("TURNGYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(loading, "_load_weights", refuse)


def dry(tmp_path, capsys, *args: str) -> tuple[int, str, str]:
    code = grpo.main([*args, "--use_cpu", "true", "--dry-run", "--output_dir", str(tmp_path / "run")])
    assert not (tmp_path / "run").exists()
    return code, *capsys.readouterr()


@needs_sandbox
@pytest.mark.parametrize("path", RUNS, ids=lambda path: path.stem)
def test_every_run_that_ships_is_right_without_its_model(alone, path, tmp_path, capsys):
    small = ["--tasks", "generated:quickstart?n=40&seed=1"] if "generated" in path.read_text() else []
    code, out, err = dry(tmp_path, capsys, "--config", str(path), *small)
    assert code == 0, err
    assert "memory, estimated" in out and "weights" in out and "settings hash" in out
    local = path == QUICKSTART
    assert ("only appends" in out) == local and ("not checked" in out) != local
    assert "does nothing" not in out, "a config that ships has no setting without effect"
    assert yaml.safe_load(out)["model_name_or_path"] == yaml.safe_load(path.read_text())["model_name_or_path"]


@pytest.mark.parametrize("path", WARM_STARTS, ids=lambda path: path.stem)
def test_every_warm_start_that_ships_can_be_read(path):
    assert load_settings(path, {}).n_demonstrations > 0


def test_every_problem_is_told_at_once(tmp_path, capsys):
    code, _, err = dry(
        tmp_path, capsys, "--temperature", "0", "--best_metric", "greedy_pas_rate", "--adapter", "qlora",
        "--slots", "0", "--think_budget", "-1", "--torch_compile", "true",
    )  # fmt: skip
    assert code == 2
    for name in ("temperature", "best_metric", "adapter", "slots", "think_budget", "torch_compile"):
        assert name in err
    assert all(len(line) > 10 for line in err.splitlines())


def test_a_run_folder_that_is_not_there_is_refused(tmp_path, capsys):
    code, _, err = dry(tmp_path, capsys, "--model_name_or_path", "runs/nope")
    assert code == 2 and err.startswith("trainers.grpo: no model 'runs/nope': no such folder")


def test_every_unknown_flag_is_told_at_once(tmp_path, capsys):
    code, _, err = dry(tmp_path, capsys, "--lerning_rate", "1", "--tmperature", "2")
    assert code == 2 and "did you mean `learning_rate`" in err and "did you mean `temperature`" in err


@needs_sandbox
def test_think_tags_and_an_unknown_shape(alone, tmp_path, capsys):
    small = ["--tasks", "generated:quickstart?n=40&seed=1"]
    code, _, err = dry(tmp_path, capsys, *small, "--think_budget", "8", "--think_answer_reserve", "4")
    assert code == 2 and "<think>" in err, "the quickstart's tokenizer has no such token"
    code, out, _ = dry(tmp_path, capsys, *small, "--model_name_or_path", "owner/name")
    assert code == 0 and "memory: unknown" in out


@needs_sandbox
def test_rules_that_the_pool_cannot_keep_are_refused_before_a_folder_is_made(alone, tmp_path, capsys):
    few = ["--tasks", "generated:quickstart?n=8&seed=1", "--held_out", "none"]
    code, _, err = dry(tmp_path, capsys, *few, "--refill_rounds", "1")
    assert code == 2 and "refill_rounds=1: a generation already draws all 8 tasks" in err
