"""A folder of weights says what was written into it, and whoever reads it is told what is not."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from agents.models.card import (
    MANIFEST,
    ModelCard,
    ModelError,
    damage_of,
    find_card,
    read_card,
    replace_file,
    write_card,
    write_manifest,
)
from agents.models.loading import QUICKSTART, check_files, resolve_model


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "model"
    (made / "reference").mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "optimizer.pt", "reference/model.safetensors"):
        (made / name).write_text(json.dumps({"name": name}))
    write_manifest(made)
    return made


def test_a_folder_as_written_is_whole_and_more_files_do_not_matter(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")
    assert damage_of(folder, needs_list=True) == []


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "reference/model.safetensors"])
@pytest.mark.parametrize("how", ["missing", "empty", "shorter", "longer", "differs"])
def test_each_kind_of_damage_is_named_with_its_file(folder: Path, name: str, how: str) -> None:
    path = folder / name
    text = path.read_text()
    changed = {"empty": "", "shorter": text[:5], "longer": text + " ", "differs": text.replace("name", "eman", 1)}
    path.unlink() if how == "missing" else path.write_text(changed[how])
    (damage,) = damage_of(folder)
    assert damage.path == path and how in damage.what and name in str(damage)


@pytest.mark.parametrize("content", ["", '{"files": {"config', "[]", '{"files": {"config.json": 3}}', "{}"])
def test_a_damaged_list_is_damage(folder: Path, content: str) -> None:
    (folder / MANIFEST).write_text(content)
    assert [damage.path.name for damage in damage_of(folder)] == [MANIFEST]


def test_without_a_list_only_who_needs_one_calls_it_damage(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    assert damage_of(folder) == []
    assert str(damage_of(folder, needs_list=True)[0]).endswith(f"{MANIFEST} is missing")


def test_a_file_can_be_replaced_and_the_folder_is_whole_at_each_moment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped before each of the three writes, as `kill -9` does it."""
    real, states = os.replace, []

    def replace(source: object, target: object) -> None:
        states.append((damage_of(folder, needs_list=True), (folder / "config.json").read_text()))
        real(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", replace)
    replace_file(folder, "config.json", "new")
    assert [found for found, _ in states] == [[], [], []] and states[1][1] != "new" == states[2][1]
    assert damage_of(folder) == [] and "or" not in json.loads((folder / MANIFEST).read_text())
    (folder / "config.json").write_text(states[0][1])
    assert damage_of(folder) != []


def test_a_damaged_model_is_not_loaded_and_what_only_training_needs_does_not_matter(folder: Path) -> None:
    (folder / "optimizer.pt").write_text("")
    check_files(resolve_model(folder))
    (folder / "model.safetensors").write_text("")
    with pytest.raises(ModelError, match=f"model.safetensors is empty.*changed on purpose, remove its {MANIFEST}"):
        check_files(resolve_model(folder))


def test_a_card_says_all_that_is_known_and_no_more(tmp_path: Path) -> None:
    write_card(tmp_path, ModelCard("compact"))
    assert json.loads((tmp_path / "turngym.json").read_text()) == {"prompt_style": "compact"}
    card = ModelCard("base", "GSM8K-v0", "12", 48, 0, tools=False, revise=0, stops=("\nQ",), end_ids=(2, 7))
    write_card(tmp_path, card)
    assert read_card(tmp_path) == card
    assert read_card(QUICKSTART) == ModelCard("compact") and find_card(tmp_path.parent) is None
    (tmp_path / "turngym.json").write_text('{"prompt_style": ')
    with pytest.raises(ValueError, match=r"turngym.json: not a model card"):
        read_card(tmp_path)


def test_a_checkpoint_without_a_card_is_spoken_to_as_its_run_says(tmp_path: Path) -> None:
    """Releases up to 0.6 wrote a card into `best/` alone, without caps."""
    run, checkpoint = tmp_path / "run", tmp_path / "run" / "checkpoint-8"
    checkpoint.mkdir(parents=True)
    assert find_card(checkpoint) is None
    (run / "config.yaml").write_text("env: GSM8K-v0\nmax_turn_tokens: 40\nmax_turns: 2\ntools: false\nrevise: 0\n")
    (run / "environment.json").write_text('{"prompt_style": "compact", "prompt_hash": "12"}')
    (run / "tasks.lock").write_text("")
    whole = ModelCard("compact", "GSM8K-v0", "12", 40, 2, tools=False, revise=0)
    assert read_card(checkpoint) == whole
    write_card(checkpoint, ModelCard("compact", "GSM8K-v0", "12"))
    assert read_card(checkpoint) == whole
    write_card(checkpoint, ModelCard("compact", "GSM8K-v0", "34"))  # of another run: its caps are not known
    assert read_card(checkpoint).max_turn_tokens is None
