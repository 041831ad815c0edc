"""One prompt everywhere: a checkpoint that is measured after the run has the figures that the run measured."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents import __main__ as commands
from agents.models.card import CARD_FILE, MANIFEST, ModelCard, read_card, write_card, write_manifest
from envs.questions import GSM8KEnv
from sandboxes import probe
from tasks.sources import load_tasks
from trainers import evaluate, grpo, sft
from trainers.measure import Measurement
from trainers.rollouts.manner import manner_of
from trainers.run.checkpoints import measured_rows
from trainers.warmstart.model import SFTConfigError, SFTSettings

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
pytestmark = [
    pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(600),
]

SHELL = ["--tasks", "generated:quickstart?n=16&seed=5", "--held_out", "generated:quickstart?n=5&seed=6"]
QUESTIONS = ["--env", "GSM8K-v0", "--tasks", "gsm8k:sample?limit=12", "--held_out", "split", "--tools", "false"]
SMALL = [
    "--use_cpu", "true", "--per_device_train_batch_size", "8", "--max_steps", "2", "--eval_steps", "1",
    "--save_steps", "1", "--slots", "8", "--learning_rate", "3e-3", "--warmup_steps", "0", "--max_turn_tokens", "24",
]  # fmt: skip


def train(folder: Path, style: str, adapter: str, tasks: list[str], *more: str) -> Path:
    argv = [*SMALL, *tasks, "--prompt_style", style, "--adapter", adapter, "--output_dir", str(folder), *more]
    assert grpo.main(argv) == 0
    return folder


def episodes(path: Path) -> dict[str, Any]:
    """By task: what the policy saw first, what it sampled, and whether it passed."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return {r["task_id"]: (r["prompt_ids"], [t["ids"] for t in r["turns"]], r["passed"]) for r in records}


def measured(model: Path, tasks: list[str], out: Path, *more: str) -> dict[str, Any]:
    argv = ["--model", str(model), *tasks, "--greedy", "--output_dir", str(out), *more]
    assert evaluate.main(argv) == 0
    return episodes(out / "episodes_greedy.jsonl")


STYLES = [("compact", SHELL), ("standard", SHELL), ("base", QUESTIONS)]
CI = {("compact", "none"), ("standard", "lora")}
"""The rest is tried by `-m whole`."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("style", "adapter", "tasks"),
    [
        pytest.param(style, adapter, tasks, marks=[] if (style, adapter) in CI else [pytest.mark.whole])
        for style, tasks in STYLES
        for adapter in ("none", "lora")
    ],
)
def test_every_checkpoint_measured_later_gives_the_figures_of_the_run(
    tmp_path: Path, style: str, adapter: str, tasks: list[str]
) -> None:
    """Nothing but the folder and the tasks is named; one of the checkpoints is as release 0.6 wrote it."""
    run = train(tmp_path / "run", style, adapter, tasks)
    held_out = [json.loads(line) for line in (run / "tasks.jsonl").read_text().splitlines()]
    names = {line["id"] for line in held_out if line["split"] != "pool"}
    own = [tasks[tasks.index("--held_out") + 1]] if "split" not in tasks else ["gsm8k:sample?limit=12"]
    best = json.loads((run / "best" / "BEST.json").read_text())["step"]
    (run / "checkpoint-1" / CARD_FILE).unlink()
    (run / "checkpoint-1" / MANIFEST).unlink()
    folders = {1: run / "checkpoint-1", 2: run / "checkpoint-2", best: run}
    for step, folder in folders.items():
        now = measured(folder, ["--tasks", *own], tmp_path / f"eval-{folder.name}")
        then = episodes(run / "held_out" / f"step_{step:06d}_greedy.jsonl")
        assert names == set(then) and {name: now[name] for name in then} == then
    assert "left_behind" not in (run / "guards.jsonl").read_text() if (run / "guards.jsonl").exists() else True


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("one_prompt") / "run", "compact", "none", SHELL)


def test_every_folder_of_weights_has_the_card_of_the_run(run: Path) -> None:
    cards = {name: read_card(run / name) for name in ("checkpoint-1", "checkpoint-2", "best")}
    assert all((run / name / CARD_FILE).is_file() and (run / name / MANIFEST).is_file() for name in cards)
    card = cards["best"]
    assert set(cards.values()) == {card} and (card.prompt_style, card.environment) == ("compact", "ClawGym-v0")
    assert (card.max_turn_tokens, card.max_turns, card.stops, card.end_ids) == (24, 0, (), (2,))
    assert card.prompt_hash == json.loads((run / "environment.json").read_text())["prompt_hash"]


def test_other_prompts_that_nobody_asked_for_are_refused_everywhere(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a release that words a style otherwise would find it."""
    model = tmp_path / "model"
    shutil.copytree(run / "best", model)
    card = read_card(model)
    write_card(model, ModelCard("compact", "ClawGym-v0", "0123456789abcdef", card.max_turn_tokens))
    write_manifest(model)
    tasks = ["--tasks", "generated:quickstart?n=1&seed=6"]
    assert evaluate.main(["--model", str(model), *tasks, "--output_dir", str(tmp_path / "a")]) == 2
    said = capsys.readouterr().err
    assert "0123456789abcdef" in said and "name the style: --prompt_style compact" in said
    assert not (tmp_path / "a").exists()
    argv = [*SMALL, *SHELL, "--model_name_or_path", str(model), "--output_dir", str(tmp_path / "b"), "--dry-run"]
    assert grpo.main(argv) == 2
    assert "name the style: --prompt_style compact" in capsys.readouterr().err
    assert grpo.main([*argv, "--prompt_style", "compact"]) == 0
    asked = ["--prompt_style", "compact", "--output_dir", str(tmp_path / "c")]
    assert evaluate.main(["--model", str(model), *tasks, *asked]) == 0
    assert "warning: as asked, the policy was trained with other prompts" in capsys.readouterr().out


def test_all_checkpoints_are_rows_with_the_figures_of_the_run(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "all"
    argv = ["--model", str(run), "--all_checkpoints", "--greedy", "--tasks", SHELL[3], "--output_dir", str(out)]
    assert evaluate.main(argv) == 0
    lines = [json.loads(line) for line in (run / "held_out.jsonl").read_text().splitlines()]
    greedy = [(line["step"], {"greedy": Measurement.from_json(line["settings"]["greedy"])}) for line in lines]
    now = rows_of(out / "CHECKPOINTS.md")
    assert now == [list(row.cells()) for row in measured_rows(greedy)] and [row[0] for row in now] == ["0", "1", "2"]
    summary = rows_of(run / "SUMMARY.md")
    assert [row for row in summary if row[1] == "greedy"] == now
    assert [(row[0], row[2].split()[0].split("/")[1]) for row in summary if row[1] == "pool"] == [
        ("1", "8"),
        ("2", "8"),
    ]
    assert "every checkpoint" in capsys.readouterr().out
    shutil.rmtree(out / "step_000002")
    assert evaluate.main(["--resume", "--output_dir", str(out)]) == 0
    assert rows_of(out / "CHECKPOINTS.md") == now
    assert "greedy: 5 of 5 episodes have a grade already, 0 to play" in capsys.readouterr().out
    assert evaluate.main(["--model", str(run / "best"), "--all_checkpoints"]) == 2
    assert "is no run folder with a checkpoint in it" in capsys.readouterr().err


def rows_of(page: Path) -> list[list[str]]:
    """The cells of a table in Markdown, without its header."""
    return [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")][2:]


def test_training_goes_on_with_the_caps_of_before(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = SMALL[: SMALL.index("--max_turn_tokens")]
    argv = [*small, *SHELL, "--model_name_or_path", str(run), "--output_dir", str(tmp_path / "b"), "--dry-run"]
    assert grpo.main(argv) == 0
    assert "max_turn_tokens: 24\n" in capsys.readouterr().out


def the_run_measured_what_its_checkpoint_does(run: Path, folder: Path) -> None:
    """No guard found another policy in the folder, and its episodes played again are those of the last measurement."""
    assert not (run / "guards.jsonl").exists() or "left_behind" not in (run / "guards.jsonl").read_text()
    then = episodes(run / "held_out" / "step_000002_greedy.jsonl")
    now = measured(run / "checkpoint-2", ["--tasks", SHELL[3]], folder)
    assert {name: now[name] for name in then} == then


@pytest.mark.slow
def test_older_observations_are_lines_in_every_measurement_of_a_policy_that_was_trained_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("envs.prompts.LINE_CUT", 20)  # these tasks say little
    run = train(tmp_path / "run", "standard", "none", SHELL, "--keep_observations", "1", "--max_turns", "4")
    assert read_card(run / "best").keep_observations == read_card(run / "checkpoint-2").keep_observations == 1
    trained = [json.loads(line) for line in (run / "trajectories" / "step_000001.jsonl").read_text().splitlines()]
    assert all(record["environment"]["keep_observations"] == 1 for record in trained)
    assert any("short_ids" in turn for record in trained for turn in record["turns"])
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(line["sampling/logp_difference_max"] < 1e-4 for line in metrics if "reward" in line)
    the_run_measured_what_its_checkpoint_does(run, tmp_path / "as trained")
    capsys.readouterr()
    measured(run / "checkpoint-2", ["--tasks", SHELL[3]], tmp_path / "append-only", "--keep_observations", "0")
    assert "warning: as asked, keep_observations 0 (in training 1)" in capsys.readouterr().out
    small = [*SMALL, *SHELL, "--model_name_or_path", str(run), "--output_dir", str(tmp_path / "b"), "--dry-run"]
    assert grpo.main(small) == 0
    assert "keep_observations: 1\n" in capsys.readouterr().out
    assert grpo.main([*small, "--keep_observations", "2"]) == 0
    assert "keep_observations: 2\n" in capsys.readouterr().out


def test_a_token_budget_holds_in_training_and_in_every_measurement_after_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path / "run", "compact", "none", SHELL, "--max_episode_tokens", "60")
    played = [json.loads(line) for file in run.glob("trajectories/*") for line in file.read_text().splitlines()]
    held_out = [json.loads(line) for file in run.glob("held_out/*") for line in file.read_text().splitlines()]
    for records in (played, held_out):
        ids = [len(r["prompt_ids"]) + sum(len(t["context_ids"] + t["ids"]) for t in r["turns"]) for r in records]
        assert max(ids) <= 60 and any(r["stop_reason"] == "max_tokens" for r in records)
        assert all(r["reward"] is not None and "max_episode_tokens=60" in r["sampling"] for r in records)
        assert any(turn["max_tokens"] < 24 for r in records for turn in r["turns"])
    assert read_card(run / "best").max_episode_tokens == read_card(run / "checkpoint-1").max_episode_tokens == 60
    the_run_measured_what_its_checkpoint_does(run, tmp_path / "as trained")
    capsys.readouterr()
    measured(run / "checkpoint-2", ["--tasks", SHELL[3]], tmp_path / "more", "--max_episode_tokens", "0")
    assert "warning: as asked, max_episode_tokens 0 (in training 60)" in capsys.readouterr().out


def test_what_the_card_says_is_taken_over_and_what_is_asked_for_wins() -> None:
    card = ModelCard("base", "GSM8K-v0", "12", 48, 3, tools=False, revise=0)
    manner = manner_of(card)
    assert (manner.env, manner.prompt_style, manner.max_turn_tokens, manner.max_turns) == ("GSM8K-v0", "base", 48, 3)
    assert not manner.tools and manner.asked == ()
    other = manner_of(card, env="MATH-v0")  # style and cap are the policy's, the rest is the environment's
    assert (other.prompt_style, other.max_turn_tokens, other.tools, other.max_turns) == ("base", 48, True, 0)
    asked = manner_of(card, prompt_style="compact", tools=True, max_turns=0, max_turn_tokens=48)
    assert (asked.prompt_style, asked.tools, asked.max_turns) == ("compact", True, 0)
    assert [what.split()[0] for what in asked.asked] == ["prompt_style", "tools", "max_turns"]
    assert manner_of(ModelCard()).env == "ClawGym-v0" and manner_of(ModelCard()).tools
    lines = replace(card, keep_observations=3)
    assert manner_of(card).keep_observations is None and manner_of(lines, env="MATH-v0").keep_observations == 3
    assert manner_of(lines, keep_observations=0).keep_observations is None
    assert manner_of(lines, keep_observations=0).asked == ("keep_observations 0 (in training 3)",)
    assert manner_of(card, keep_observations=2).asked == ("keep_observations 2 (in training 0)",)
    assert manner_of(ModelCard(), keep_observations=2).asked == () and manner_of(card, keep_observations=0).asked == ()
    budget = replace(card, max_episode_tokens=900)
    assert manner_of(budget).max_episode_tokens == 900 and manner_of(card).max_episode_tokens is None
    assert manner_of(budget, env="MATH-v0").max_episode_tokens is None  # of episodes there
    assert manner_of(budget, max_episode_tokens=0).max_episode_tokens is None
    assert manner_of(budget, max_episode_tokens=0).asked == ("max_episode_tokens 0 (in training 900)",)
    assert manner_of(card, max_episode_tokens=7).asked == ("max_episode_tokens 7 (in training 0)",)


def trajectories(path: Path, *styles: str) -> Path:
    """What `read_corpus` would train on, as far as the card goes."""
    said = [{"env": "ClawGymEnv", "prompt_style": style, "prompt_hash": f"{style}-hash"} for style in styles]
    path.write_text("".join(json.dumps({"turns": [], "passed": True, "environment": one}) + "\n" for one in said))
    return path


def card_of(tmp_path: Path, data: Path, **settings: Any) -> ModelCard:
    given = {"model_name_or_path": "quickstart", "data": str(data), "output_dir": str(tmp_path / "out"), **settings}
    return sft.card_of_data(SFTSettings(**given))


def test_what_sft_makes_is_spoken_to_as_its_data_speaks(run: Path, tmp_path: Path) -> None:
    compact = trajectories(tmp_path / "compact.jsonl", "compact", "compact")
    assert card_of(tmp_path, compact) == ModelCard("compact", "ClawGym-v0", "compact-hash")
    own = read_card(run / "best")
    data = tmp_path / "own.jsonl"
    shutil.copy(run / "trajectories" / "step_000001.jsonl", data)
    assert card_of(tmp_path, data, model_name_or_path=str(run), passed_only=False) == own  # caps included
    messages = tmp_path / "messages.jsonl"
    messages.write_text('{"messages": []}\n')
    assert card_of(tmp_path, messages) == ModelCard("compact")  # as the model was made for
    assert card_of(tmp_path, messages, prompt_style="base") == ModelCard("base")


def test_sft_refuses_data_that_speaks_otherwise_unless_it_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = trajectories(tmp_path / "standard.jsonl", "standard")
    argv = ["--model_name_or_path", "quickstart", "--data", str(data), "--output_dir", str(tmp_path / "out")]
    with pytest.raises(
        SFTConfigError, match="speaks standard, and the model quickstart was made for compact.*asked|so"
    ):
        card_of(tmp_path, data)
    assert card_of(tmp_path, data, prompt_style="standard").prompt_hash == "standard-hash"
    with pytest.raises(SFTConfigError, match="prompt_style=base: the trajectories in .* speak standard"):
        card_of(tmp_path, data, prompt_style="base")
    with pytest.raises(SFTConfigError, match="speaks compact and standard"):
        card_of(tmp_path, trajectories(tmp_path / "both.jsonl", "standard", "compact"))
    assert sft.main([*argv, "--prompt_style", "loud"]) == 2
    assert "prompt_style='loud': one of auto, standard, compact, base" in capsys.readouterr().err


def test_examples_before_each_question_are_those_of_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Drawn from the pool, trained on by no step, and found again by whoever measures, replays or trains on."""
    more = ["--shots", "2", "--max_steps", "1", "--per_device_train_batch_size", "4", "--num_generations", "2"]
    more += ["--max_turns", "1", "--seed", "3"]
    run = train(tmp_path / "run", "base", "none", QUESTIONS, *more)
    card, pool = read_card(run / "checkpoint-1"), load_tasks("gsm8k:sample?limit=12")
    sides = [json.loads(line) for line in (run / "tasks.jsonl").read_text().splitlines()]
    held_out = {line["id"] for line in sides if line["split"] == "held_out"}
    shown = {task.id for task in pool if task.intent in {question for question, _ in card.shots}}
    assert len(card.shots) == len(shown) == 2 and not shown & {line["id"] for line in sides} and len(sides) == 10
    own = GSM8KEnv(pool, tools=False, prompt_style="base")
    assert card.prompt_hash != own.prompt_hash
    argv = [*SMALL, *QUESTIONS, "--model_name_or_path", str(run / "best"), "--output_dir", str(tmp_path / "on")]
    argv += ["--seed", "3"]
    assert grpo.main([*argv, "--adapter", "none", "--dry-run"]) == 0
    assert "2 tasks of the pool are examples that the policy is shown, and were left out" in capsys.readouterr().out
    assert grpo.main([*argv, "--adapter", "none", "--shots", "1", "--dry-run"]) == 2
    assert "shots or the version differ" in capsys.readouterr().err

    source = "gsm8k:sample?limit=12"
    assert evaluate.main(["--model", str(run / "checkpoint-1"), "--tasks", source, "--output_dir", str(tmp_path)]) == 2
    assert "stands solved before each question" in capsys.readouterr().err
    questions = tmp_path / "questions.jsonl"
    rows = [{"question": t.intent, "answer": t.oracle.answer} for t in pool if t.oracle and t.id in held_out]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = ["--tasks", f"gsm8k:{questions}"]
    now = measured(run / "checkpoint-1", tasks, tmp_path / "now")
    then = episodes(run / "held_out" / "step_000001_greedy.jsonl")
    assert sorted(now.values()) == sorted(then.values()) and len(now) == 3
    assert commands.main(["replay", str(tmp_path / "now" / "episodes_greedy.jsonl"), *tasks]) == 0

    start = ["--model", "quickstart", "--env", "GSM8K-v0", "--no_tools", "--prompt_style", "base", *tasks, "--greedy"]
    for name, asked in (("of_run", ["--shots_from", str(run)]), ("drawn", ["--shots", "12", "--shots_from", source])):
        code = evaluate.main(
            [*start, "--max_tokens", "24", "--max_turns", "1", *asked, "--output_dir", str(tmp_path / name)]
        )
        assert code == (0 if name == "of_run" else 2)
    before = episodes(tmp_path / "of_run" / "episodes_greedy.jsonl")
    assert sorted(before.values()) == sorted(episodes(run / "held_out" / "step_000000_greedy.jsonl").values())
    assert evaluate.main([*start, "--shots", "2", "--output_dir", str(tmp_path / "none")]) == 2
    assert "--shots_from SOURCE draws others from the training split" in capsys.readouterr().err
