"""Damaged is not absent: a file that is not what was written refuses a run, by its name, and nothing is moved."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from agents.models.card import MANIFEST
from agents.policy import Sampling
from tests.trainers.toy import make_task, make_trainer
from trainers.checkpoint import BEST_FILE, STATE_FILE, Checkpoint
from trainers.errors import DamagedError
from trainers.heldout import HeldOut
from trainers.run.start import damaged_best, going_on

pytestmark = pytest.mark.filterwarnings("ignore")

FILES = [
    "turngym_state.json", "trainer_state.json", "optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors",
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
    "training_args.bin", "turngym_batch_0.pt", MANIFEST,
]  # fmt: skip
"""Of a checkpoint inside a generation cycle."""
BEST = [BEST_FILE, "model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", MANIFEST]
HOW = ["half", "empty", "swapped", "gone"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three checkpoints, each inside a cycle, whose best is of the last; two held-out arms."""
    folder = tmp_path_factory.mktemp("made")
    arms = {"sampled": Sampling(1.0, 12), "greedy": Sampling(0.0, 12)}
    tasks = [make_task(100 + i) for i in range(3)]
    rule = HeldOut(tasks, arms, "sampled_reward", output_dir=folder / "run", min_delta=-10.0)
    changes = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1, "max_steps": 3}
    cycle = {"num_iterations": 2, "steps_per_generation": 2, "per_device_train_batch_size": 4}
    trainer = make_trainer(folder, held_out=rule, eval_on_start=True, **changes, **cycle)
    trainer.train()
    trainer.close()
    return folder / "run"


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of its own: links, of which `spoil` replaces one."""
    copy = tmp_path / "run"
    shutil.copytree(made, copy, copy_function=os.link)
    return copy


def spoil(path: Path, how: str) -> None:
    content = path.read_bytes()
    path.unlink()  # a link: the run that was made keeps its file
    if how == "swapped":
        other = next(p for p in sorted(path.parent.iterdir()) if p.is_file() and p.read_bytes() != content)
        mine = other.read_bytes()
        other.unlink()
        other.write_bytes(content)
        path.write_bytes(mine)
    elif how != "gone":
        path.write_bytes(content[: len(content) // 2] if how == "half" else b"")


def listing(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_as_it_was_left_goes_on_from_its_newest_checkpoint(run: Path) -> None:
    assert going_on(run) == Checkpoint(run / "checkpoint-3") and going_on(run, 2) == Checkpoint(run / "checkpoint-2")
    assert set(FILES) <= {path.name for path in (run / "checkpoint-3").iterdir()}
    assert damaged_best(run) is None and going_on(run / "nothing") is None


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", FILES)
def test_a_damaged_checkpoint_is_refused_and_the_newest_whole_one_offered(run: Path, name: str, how: str) -> None:
    spoil(run / "checkpoint-3" / name, how)
    before = listing(run)
    with pytest.raises(DamagedError) as refused:
        going_on(run)
    said = str(refused.value)
    assert "\n" not in said and "checkpoint-3 is damaged" in said and "`--resume --from 2`" in said
    assert name in said or how == "swapped" and "more file" in said
    assert listing(run) == before
    assert going_on(run, 2) == Checkpoint(run / "checkpoint-2") == Checkpoint.newest_whole(run)
    with pytest.raises(DamagedError):
        going_on(run, 3)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", BEST)
def test_a_damaged_best_is_refused_and_can_be_written_again_from_its_checkpoint(run: Path, name: str, how: str) -> None:
    spoil(run / "best" / name, how)
    before = listing(run)
    with pytest.raises(DamagedError) as refused:
        going_on(run)
    said = str(refused.value)
    assert (
        "the best that checkpoint-3 points to is damaged" in said and "best/" in said and "`--resume --from 3`" in said
    )
    assert listing(run) == before and going_on(run, 3) == Checkpoint(run / "checkpoint-3")
    assert how == "gone" and name == MANIFEST or "what the run ended with is damaged" in str(damaged_best(run))


@pytest.mark.parametrize("name", ["turngym_state.json", "trainer_state.json", "optimizer.pt"])
def test_where_every_checkpoint_is_damaged_nothing_starts_over(run: Path, name: str) -> None:
    for path in run.glob("checkpoint-*"):
        spoil(path / name, "half")
    with pytest.raises(DamagedError, match=r"No checkpoint of this run can be gone on from: `--overwrite` starts anew"):
        going_on(run)


def test_going_back_to_a_step_that_has_no_checkpoint_is_refused(run: Path) -> None:
    with pytest.raises(DamagedError, match=r"--from 7: .* has no checkpoint of this step.*`--resume --from 3`"):
        going_on(run, 7)


def test_a_best_that_is_gone_is_refused_unless_it_can_be_written_again(run: Path) -> None:
    shutil.rmtree(run / "best")
    with pytest.raises(DamagedError, match=r"its weights are gone. `--resume --from 3`"):
        going_on(run)
    assert going_on(run, 3) == Checkpoint(run / "checkpoint-3")
    shutil.rmtree(run / "checkpoint-2")
    with pytest.raises(DamagedError, match=r"--from 2: .* has no checkpoint of this step"):
        going_on(run, 2)


def test_a_checkpoint_of_an_older_release_has_no_list_and_is_read(run: Path) -> None:
    checkpoint = run / "checkpoint-3"
    for folder in (checkpoint, run / "best"):
        (folder / MANIFEST).unlink()
    state = json.loads((checkpoint / STATE_FILE).read_text())
    (checkpoint / STATE_FILE).unlink()
    (checkpoint / STATE_FILE).write_text(json.dumps({**state, "format": 2}))
    assert going_on(run) == Checkpoint(checkpoint)
    for name in ("model.safetensors", "optimizer.pt", "trainer_state.json", "scheduler.pt", "rng_state.pth"):
        content = (checkpoint / name).read_bytes()
        for how in ("half", "empty", "gone"):
            if how == "gone" and name not in ("model.safetensors", "trainer_state.json"):
                continue  # nothing says that it was there
            spoil(checkpoint / name, how)
            with pytest.raises(DamagedError, match=name):
                going_on(run)
            (checkpoint / name).write_bytes(content)


def test_a_run_that_goes_back_writes_its_best_again_as_it_was(made: Path, run: Path) -> None:
    """`best/` is of step 3; the checkpoint of step 2 points to that of step 2, whose weights it has itself."""
    rule = HeldOut(
        [make_task(100 + i) for i in range(3)], {"sampled": Sampling(1.0, 12), "greedy": Sampling(0.0, 12)},
        "sampled_reward", output_dir=run, goes_back=True,
    )  # fmt: skip
    state = json.loads((run / "checkpoint-2" / STATE_FILE).read_text())["held_out"]
    assert state["best"]["step"] == 2
    trainer = make_trainer(run.parent, held_out=rule, num_iterations=2, steps_per_generation=2,
                           per_device_train_batch_size=4, max_steps=2)  # fmt: skip
    trainer._load_from_checkpoint(str(run / "checkpoint-2"))
    trainer.close()
    assert json.loads((run / "best" / BEST_FILE).read_text()) == state["best"]
    weights = [(run / name / "model.safetensors").read_bytes() for name in ("best", "checkpoint-2")]
    assert weights[0] == weights[1] and not (run / "best.old").exists()
    assert {p.name for p in (run / "best").iterdir()} == {p.name for p in (made / "best").iterdir()}
    assert damaged_best(run) is None
