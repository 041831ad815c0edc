from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import gymnasium as gym
import pytest

import envs
from agents.__main__ import main as agents_command
from envs import registry
from envs.answer_prompts import AnswerForm
from envs.registry import BUILT_IN, asking_for, environment, environment_ids, id_of, register_environment, takes
from sandboxes import probe
from tasks import plugins
from trainers import evaluate, grpo

ROOT = Path(__file__).parents[2]
EXAMPLE = re.search(r'```python\n("""Guess-v0.*?)```', (ROOT / "docs/envs.md").read_text(encoding="utf-8"), re.DOTALL)
TASK = """\
id: t{0}
intent: I think of a number.
assertions: [{{kind: number_equals, gold: "{0}"}}]
oracle: {{answer: "{0}"}}
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before, known = copy.deepcopy(vars(registry._ENVIRONMENTS)), dict(gym.envs.registration.registry)
    rows = dict(registry._ENVIRONMENTS)
    yield
    vars(registry._ENVIRONMENTS).update(before)
    registry._ENVIRONMENTS.clear()
    registry._ENVIRONMENTS.update(rows)
    asking_for.cache_clear()
    registry._id_of.cache_clear()
    gym.envs.registration.registry.clear()
    gym.envs.registration.registry.update(known)


class Riddle(envs.AnswerEnv):
    form = AnswerForm("riddle")
    default_tasks = "ifeval:sample"

    def __init__(self, *args: object, **settings: object) -> None:
        super().__init__(*args, **settings)  # type: ignore[arg-type]


def test_every_row_is_an_environment_and_gymnasium_knows_it() -> None:
    assert environment_ids()[: len(BUILT_IN)] == list(BUILT_IN)
    for name in BUILT_IN:
        kind = environment(name)
        assert issubclass(kind, envs.ConversationEnv) and id_of(kind) == name
        assert {name, f"TurnGym/{name}"} <= set(gym.envs.registration.registry)


def test_rows_say_who_asks_for_which_answer() -> None:
    found = {judge: asking_for(judge) for judge in ("number_equals", "math_equivalent", "instruction", "file_exists")}
    assert {judge: row and row[0] for judge, row in found.items()} == {
        "number_equals": "GSM8K-v0", "math_equivalent": "MATH-v0", "instruction": "IFEval-v0", "file_exists": None,
    }  # fmt: skip


def test_a_call_makes_an_id_that_gymnasium_and_its_vector_form_know() -> None:
    register_environment("Riddle-v3", Riddle)
    register_environment("Riddle-v3", Riddle)  # the same again
    assert environment("Riddle-v3") is Riddle and id_of(Riddle) == f"{__name__}:Riddle-v3"
    assert environment(f"{__name__}:Riddle-v3") is Riddle
    env = gym.make_vec("Riddle-v3", num_envs=2)
    assert type(env).__name__ == "ConversationVectorEnv"
    env.close()


def test_settings_are_found_behind_a_constructor_that_passes_them_on() -> None:
    assert takes(Riddle, "tools") and takes(Riddle, "max_turns") and not takes(Riddle, "teapot")
    assert not takes(envs.ClawGymEnv, "tools")


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("Riddle", Riddle, "write a name and a version"),
        ("GSM8K-v0", Riddle, "has the name of one of ours"),
        ("Path-v0", Path, "must be a class that extends envs.ConversationEnv"),
    ],
)
def test_what_is_refused(name: str, kind: type[envs.ConversationEnv], why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        register_environment(name, kind)
    assert name in BUILT_IN or name not in environment_ids()


def test_an_unknown_id_names_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown environment 'GSM8k-v0': did you mean 'GSM8K-v0'"):
        environment("GSM8k-v0")
    with pytest.raises(ValueError, match="nowhere cannot be imported: ModuleNotFoundError"):
        environment("nowhere:X-v0")


def test_entry_points_of_other_packages_are_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        EntryPoint("Riddle-v7", f"{__name__}:Riddle", registry.GROUP),
        EntryPoint("Gone-v0", "no_such:X", registry.GROUP),
    ]
    for module in (registry, plugins):
        monkeypatch.setattr(module, "entry_points", lambda group: entries if group == registry.GROUP else [])
    registry.register_all()
    assert environment_ids()[-2:] == ["Gone-v0", "Riddle-v7"] and environment("Riddle-v7") is Riddle
    assert "Riddle-v7" in gym.envs.registration.registry
    with pytest.raises(ValueError, match="'Gone-v0' of the entry-point group .*ModuleNotFoundError"):
        environment("Gone-v0")


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A folder with the manual's environment and tasks of it, and nothing else."""
    assert EXAMPLE is not None and len(EXAMPLE[1].splitlines()) <= 60
    (tmp_path / "guess.py").write_text(EXAMPLE[1])
    (tmp_path / "guess_tasks").mkdir()
    for number in range(1, 41):
        (tmp_path / "guess_tasks" / f"t{number}.yaml").write_text(TASK.format(number))
    yield tmp_path
    sys.modules.pop("guess", None)


@pytest.mark.timeout(900)
@pytest.mark.skipif(not (probe("bubblewrap").ok or probe("landlock").ok), reason="no safe sandbox works here")
def test_the_manuals_environment_is_measured_trained_and_replayed_by_its_id(
    outside: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As the manual has it; then in this process, which has imported what takes seconds."""
    command = [sys.executable, "-m", "trainers.evaluate", "--env", "guess:Guess-v0", "--model", "oracle"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, "--output_dir", "e"], cwd=outside, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and "40/40" in done.stdout, done

    def run(main: Callable[[list[str]], int], *args: str, code: int = 0) -> str:
        capfd.readouterr()
        found = main([*args])
        said = "".join(capfd.readouterr())
        assert found == code, said
        return said

    monkeypatch.chdir(outside)
    monkeypatch.syspath_prepend(outside)
    assert "40" in run(agents_command, "replay", "e/episodes_sampled.jsonl", "--tasks", "guess_tasks")
    run(
        grpo.main, "--env", "guess:Guess-v0", "--tasks", "guess_tasks",
        "--model_name_or_path", "quickstart", "--use_cpu", "true", "--max_steps", "2",
        "--num_generations", "4", "--per_device_train_batch_size", "8",
        "--max_turns", "3", "--max_turn_tokens", "8", "--held_out_limit", "4", "--output_dir", "r",
    )  # fmt: skip
    assert "environment: guess:Guess-v0" in (outside / "r" / "config.yaml").read_text().replace("env:", "environment:")
    run(evaluate.main, "--model", "r/checkpoint-2", "--tasks", "guess_tasks", "--output_dir", "a")
    assert "Guess-v0" in (outside / "a" / "config.yaml").read_text()
    run(evaluate.main, "--env", "guess:Gess-v0", "--model", "oracle", code=2)
