"""The newest checkpoint of a run, opened from its folder alone, is what the run measured; or a guard speaks."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.models.card import ModelCard, read_card
from sandboxes import probe
from tests.trainers.guards.planted import attempts
from trainers import grpo
from trainers.guards import Severity, Watch
from trainers.guards.guard import LeftBehind
from trainers.guards.levels import GuardName
from trainers.run import start as left_behind

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

ARGS = [
    "--use_cpu", "true", "--tasks", "generated:quickstart?n=16&seed=5", "--held_out", "generated:quickstart?n=7&seed=6",
    "--per_device_train_batch_size", "8", "--max_steps", "1", "--eval_steps", "1", "--save_steps", "1", "--slots", "8",
    "--max_turn_tokens", "24",
]  # fmt: skip


def said(behind: LeftBehind) -> list[tuple[str, str]]:
    watch = Watch({GuardName.PROMPT_PARITY: None})
    return [(finding.severity.value, finding.message) for finding in watch.left(behind)]


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
def test_looking_back_changes_nothing_and_finds_what_is_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, LeftBehind | None] = {}
    real = left_behind.look_back

    def look(folder: Path, trainer: Any, sandboxes: Any) -> LeftBehind | None:
        states, before = (random.getstate(), torch.get_rng_state()), content(folder)
        seen["as it is"] = healthy = real(folder, trainer, sandboxes)
        assert random.getstate() == states[0] and torch.equal(torch.get_rng_state(), states[1])
        assert content(folder) == before and trainer.model.training
        with monkeypatch.context() as patch:
            patch.setattr(left_behind, "read_card", lambda path: replace(read_card(path), prompt_style="standard"))
            seen["another style"] = real(folder, trainer, sandboxes)
            patch.setattr(left_behind, "read_card", lambda path: ModelCard())  # as before there were cards
            seen["no card"] = real(folder, trainer, sandboxes)
        weight = next(trainer.model.parameters())
        kept = weight.data.clone()
        weight.data.add_(1.0)
        seen["other weights"] = real(folder, trainer, sandboxes)
        weight.data.copy_(kept)
        return healthy

    monkeypatch.setattr(grpo, "look_back", look)
    run = tmp_path / "run"
    assert grpo.main([*ARGS, "--output_dir", str(run)]) == 0
    assert not (run / "guards.jsonl").exists()
    found = {name: said(behind) for name, behind in seen.items() if behind is not None}
    assert found["as it is"] == [] and seen["as it is"] is not None
    assert len(seen["as it is"].now) == left_behind.FEW and seen["as it is"].compares_replies
    for name in ("another style", "no card"):
        ((severity, message),) = found[name]
        assert severity == "warn" and "6 of 6 tasks get another prompt" in message and "checkpoint-1" in message
    assert "is not the one that was trained" in found["other weights"][0][1]


def test_the_guard_compares_prompts_then_replies() -> None:
    then = attempts()[:6]
    now = [replace(episode, turns=[replace(turn) for turn in episode.turns]) for episode in then]
    assert said(LeftBehind(4, "run/checkpoint-4", then, now)) == []
    for episode in now[:4]:
        episode.turns[0].ids = [*episode.turns[0].ids, 1]
    ((severity, message),) = said(LeftBehind(4, "run/checkpoint-4", then, now))
    assert severity == Severity.WARN and "more than half of 6 episodes begin with another reply" in message
    assert said(LeftBehind(4, "run/checkpoint-4", then, now, compares_replies=False)) == []
    now[0].prompt_ids = [*now[0].prompt_ids, 9]
    assert "1 of 6 tasks get another prompt" in said(LeftBehind(4, "x", then, now, compares_replies=False))[0][1]
    assert said(LeftBehind(4, "run/checkpoint-4", skipped="out of memory"))[0][0] == "note"
