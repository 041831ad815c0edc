"""Question sets in training and measuring: right numbers, errors counted, prompts compared, per-set figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from agents.models.card import ModelCard
from agents.policies.scripted import NoOpPolicy, OraclePolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory, read_jsonl
from envs.mixed import MixedEnv
from envs.questions import GSM8KEnv
from envs.registry import environment_ids
from sandboxes import probe
from tasks.answers.number_equals import NumberEquals
from tests.envs.fakes import task as shell_task
from tests.envs.questions import question, questions
from tests.trainers.toy import NotingTrainer, make_config, make_model, make_tokenizer
from trainers import evaluate, grpo
from trainers.measure import measure, part_counts, parts_of, tag_counts, wrote_on
from trainers.rollouts.metrics import episode_metrics
from trainers.run.machine import environment_settings, unfit_task

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
needs_sandbox = pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]


def figures(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "evaluation.json").read_text())["arms"]["sampled"]


@needs_sandbox
@pytest.mark.parametrize(
    ("env", "tasks", "n"),
    [
        ("GSM8K-v0", "gsm8k:sample", 40),
        ("MATH-v0", "math:sample", 40),
        ("IFEval-v0", "ifeval:sample", 40),
        ("IFEval-v0", "ifbench:sample", 20),
        ("Mixed-v0", "gsm8k:sample?limit=5,library:start-project", 6),
    ],
)
def test_the_oracle_passes_everything_and_doing_nothing_nothing(
    env: str, tasks: str, n: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in ("oracle", "noop"):
        argv = ["--model", model, "--env", env, "--tasks", tasks, "--output_dir", str(tmp_path / model)]
        assert evaluate.main(argv) == 0
        arm = figures(tmp_path / model)
        assert arm["n"] >= n and arm["infrastructure"] == 0 and arm["graded"] == arm["n"]
        assert arm["passed"] == (arm["n"] if model == "oracle" else 0)
        out = capsys.readouterr().out
        questions_played = arm["n"] - (env == "Mixed-v0")
        assert f"gold scores 1 on {questions_played}/{questions_played}, empty 0 on {questions_played}" in out
        assert " p50 " in out and " p95 " in out
        assert ("by reading" in out) is (env != "ClawGym-v0")
        if env == "MATH-v0":
            assert "by level" in out and "by subject" in out
            sums = re.findall(r"^all +│ (\d+)/(\d+) ", out, re.MULTILINE)
            assert sums[:3] == [(str(arm["passed"]), str(arm["n"]))] * 3, "family, level and subject add up"
        named = [f"{level}_level_{how}_acc" for how in ("strict", "loose") for level in ("prompt", "inst")]
        assert all(name in out for name in named) is (env == "IFEval-v0")
    if env == "IFEval-v0":
        folders = [str(tmp_path / model) for model in ("noop", "oracle")]
        assert evaluate.main(["--compare", *folders]) == 0
        assert re.search(r"inst_level_loose_acc +│ 0/\d+ = 0.0 % +│ (\d+)/\1 = 100.0 %", capsys.readouterr().out)
        (one,) = json.loads((tmp_path / "oracle" / "comparison.json").read_text())["comparisons"]
        a, b = one["instructions"]["a"], one["instructions"]["b"]
        assert [(a[name], b[name]) for name in named] == [(0.0, 1.0)] * 4
        assert a["prompts"] == arm["n"] <= a["instructions"] == b["instructions"]


@needs_sandbox
def test_the_default_tasks_are_the_sample_and_the_cap_is_that_of_the_set(tmp_path: Path) -> None:
    assert evaluate.main(["--model", "oracle", "--env", "GSM8K-v0", "--output_dir", str(tmp_path / "e")]) == 0
    arm = figures(tmp_path / "e")
    assert arm["n"] >= 40 and arm["sampling"] == "T=1, max_tokens=1024"


@needs_sandbox
def test_the_styles_of_base_models_work_end_to_end(tmp_path: Path) -> None:
    argv = ["--model", "oracle", "--env", "GSM8K-v0", "--tasks", "gsm8k:sample?limit=3", "--prompt_style", "base"]
    assert evaluate.main([*argv, "--no_tools", "--max_turns", "1", "--output_dir", str(tmp_path / "e")]) == 0
    assert figures(tmp_path / "e")["passed"] == 3
    (first, *_) = read_jsonl(tmp_path / "e" / "episodes_sampled.jsonl")
    assert bytes(first.prompt_ids).startswith(b"Question: ") and bytes(first.prompt_ids).endswith(b"\nAnswer:")


def test_errors_of_graders_are_counted_and_enter_no_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    right = NumberEquals.check

    def check(self: NumberEquals, outcome: Any) -> Any:
        return self.erred("took longer than 5 s") if self.gold == "101" else right(self, outcome)

    monkeypatch.setattr(NumberEquals, "check", check)
    tasks = questions(4)
    with RolloutEngine(OraclePolicy(), lambda: GSM8KEnv(tasks), slots=2, workers=2) as engine:
        result = engine.run([Job(task, 0, 0) for task in tasks], Sampling(1.0, 256))
    assert result.retries == 1  # tried once more, then given up
    m = measure(result.trajectories, "x")
    assert (m.n, m.graded, m.infrastructure, m.passed, m.pass_rate) == (4, 3, 1, 3, 1.0)
    assert (m.pass_min, m.pass_max) == (0.75, 1.0)
    (message,) = m.errors
    assert "GradeError" in message and "took longer than 5 s" in message
    assert episode_metrics(result)["env/infra_error_frac"] == 0.25


def test_a_reply_at_the_token_limit_is_no_answer() -> None:
    with RolloutEngine(OraclePolicy(), lambda: GSM8KEnv([question()]), slots=1, workers=1) as engine:
        whole = engine.run([Job(question(), 0, 0)], Sampling(1.0, 256)).trajectories[0]
        cut = engine.run([Job(question(), 0, 0)], Sampling(1.0, len("12 * 6 = 72\n#### 7"))).trajectories[0]
    assert whole.passed
    assert not cut.passed and {turn.action for turn in cut.turns} == {"malformed"} and len(cut.turns) == 4


def test_text_behind_a_stop_sequence_is_counted_and_answers_are_kept() -> None:
    tasks = [question(), question(id="more", oracle={"answer": "#### 72\n\nQuestion: next?\n#### 1"})]
    with RolloutEngine(OraclePolicy(), lambda: GSM8KEnv(tasks), slots=1, workers=1) as engine:
        result = engine.run([Job(task, 0, 0) for task in tasks], Sampling(1.0, 256))
    assert wrote_on(result.trajectories) == (1, 2) and all(t.passed for t in result.trajectories)
    assert episode_metrics(result)["env/wrote_past_stop_frac"] == 0.5
    record = result.trajectories[1].to_json()
    assert record["notes"]["answers"][0]["text"] == "#### 72" and json.loads(json.dumps(record)) == record
    assert Trajectory.from_json(record) == result.trajectories[1]
    assert wrote_on([]) is None and "notes" not in Trajectory("a", "h", 0, 0, []).to_json()


def test_figures_by_set_and_by_tag() -> None:
    tasks = [question(), shell_task(), question(id="more", tags=["level:3", "own"])]
    with RolloutEngine(NoOpPolicy(), lambda: MixedEnv(tasks), slots=1, workers=1) as engine:
        if SANDBOX is None:
            pytest.skip("no sandbox backend works on this machine")
        result = engine.run([Job(task, 0, 0) for task in tasks], Sampling(1.0, 64))
    metrics = episode_metrics(result)
    assert metrics["env/gsm8k/episodes"] == 2 and metrics["env/shell/episodes"] == 1
    assert metrics["env/gsm8k/pass_rate"] == 0 and metrics["env/shell/reward"] == pytest.approx(0.5 - 0.2 / 4)
    m = measure(result.trajectories, "x")
    assert m.families == {"(no family)": [0, 1], "gsm8k": [0, 2]}
    parts = part_counts(parts_of(tasks), m.outcomes)
    assert parts == {"family": {"(none)": [0, 1], "gsm8k": [0, 2]}, "level": {"(none)": [0, 2], "3": [0, 1]}}
    assert tag_counts(tasks, m.outcomes) == {}
    alone = engine_result([t for t in result.trajectories if t.family is None], result)
    assert not any(name.startswith("env/shell") for name in episode_metrics(alone))


def engine_result(trajectories: list[Any], like: Any) -> Any:
    return type(like)(trajectories, like.timing)


def test_two_steps_of_training_on_questions(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    tasks = questions(4)
    trainer = NotingTrainer(
        make_model(tokenizer),
        make_config(tmp_path),
        tokenizer,
        tasks,
        lambda: GSM8KEnv(tasks[:1], max_turns=2, prompt_style="compact"),
        slots=8,
        workers=2,
        max_turn_tokens=12,
    )
    trainer.train()
    assert trainer.state.global_step == 2 and len(trainer.played) == 2
    episodes = [episode for batch in trainer.played for episode in batch]
    assert len(episodes) == 16 and all(e.reward is not None and e.family == "gsm8k" for e in episodes)
    assert all(turn.signal is None for e in episodes for turn in e.turns)
    logged = [entry for entry in trainer.logged if "env/gsm8k/pass_rate" in entry]
    assert len(logged) == 2 and all(entry["env/gsm8k/episodes"] == 8 for entry in logged)


@needs_sandbox
def test_a_run_on_three_sets_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    argv = [
        "--use_cpu", "true", "--env", "Mixed-v0",
        "--tasks", "gsm8k:sample?limit=12,ifeval:sample?limit=12,generated:quickstart?n=12&seed=5",
        "--held_out", "split", "--per_device_train_batch_size", "24", "--max_steps", "3", "--eval_steps", "3",
        "--num_generations", "4", "--save_steps", "3", "--slots", "8", "--max_turn_tokens", "48",
        "--output_dir", str(folder),
    ]  # fmt: skip
    assert grpo.main([*argv, "--dry-run"]) == 0
    assert "# self-test: gold scores 1 on 24/24, empty 0 on 24/24" in capsys.readouterr().out
    assert grpo.main(argv) == 0
    assert "gold scores 1 on 24/24" in capsys.readouterr().out
    card = json.loads((folder / "best" / "turngym.json").read_text())
    hash_now = MixedEnv([question()], prompt_style="compact").prompt_hash
    told = {"prompt_style": "compact", "environment": "Mixed-v0", "prompt_hash": hash_now, "max_turn_tokens": 48}
    assert card == {**told, "max_turns": 0, "tools": True, "revise": 0, "end_ids": [2]}
    assert json.loads((folder / "environment.json").read_text())["prompt_hash"] == hash_now
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [step for step in steps if "reward" in step]
    assert [step["step"] for step in steps] == [1, 2, 3]
    for step in steps:
        counts = {name: step.get(f"env/{name}/episodes", 0) for name in ("gsm8k", "ifeval", "shell")}
        assert sum(counts.values()) == 24 and all(count % 4 == 0 for count in counts.values())
        assert all(0 <= step[f"env/{name}/pass_rate"] <= 1 for name, count in counts.items() if count)
    assert all(any(step.get(f"env/{name}/episodes", 0) for step in steps) for name in ("gsm8k", "ifeval", "shell"))
    held_out = [json.loads(line) for line in (folder / "held_out.jsonl").read_text().splitlines()]
    assert [line["step"] for line in held_out] == [0, 3]
    assert {"gsm8k", "ifeval"} < set(held_out[0]["settings"]["sampled"]["families"])

    measured = ["--model", str(folder), "--tasks", "gsm8k:sample?limit=2", "--max_turns", "1"]
    assert evaluate.main([*measured, "--output_dir", str(tmp_path / "a")]) == 0
    warnings = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    assert warnings == ["warning: as asked, max_turns 1 (in training 0)"]
    assert evaluate.main([*measured, "--no_tools", "--output_dir", str(tmp_path / "b")]) == 0
    out = capsys.readouterr().out
    assert "warning: as asked, tools False (in training True)" in out
    assert "trained with other prompts" not in out  # compact: no difference
    assert evaluate.main([*measured, "--prompt_style", "standard", "--output_dir", str(tmp_path / "c")]) == 0
    assert "warning: as asked, the policy was trained with other prompts" in capsys.readouterr().out
    assert evaluate.main(["--compare", str(tmp_path / "a"), str(tmp_path / "c")]) == 0
    assert "different settings, so no verdict: prompts: A compact (" in capsys.readouterr().out


@needs_sandbox
def test_tasks_may_be_a_list_in_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("env: Mixed-v0\ntasks: ['gsm8k:sample?limit=30', library:start-project]\nheld_out: none\n")
    argv = ["--config", str(config), "--use_cpu", "true", "--output_dir", str(tmp_path / "run"), "--dry-run"]
    assert grpo.main([*argv, "--model_name_or_path", "quickstart"]) == 0
    assert "# pool 31 tasks" in capsys.readouterr().out


def test_a_card_is_compared_only_with_its_own_environment() -> None:
    card = ModelCard("compact", "GSM8K-v0", "aaaa")
    assert card.mismatch("GSM8K-v0", "aaaa") is None and card.mismatch("MATH-v0", "bbbb") is None
    assert "aaaa" in str(card.mismatch("GSM8K-v0", "bbbb"))
    assert ModelCard("compact").mismatch("GSM8K-v0", "bbbb") is None


def test_settings_without_effect_are_refused() -> None:
    assert environment_settings("ClawGym-v0", tools=True, revise=0) == {}
    assert environment_settings("IFEval-v0", tools=False, revise=2) == {"tools": False, "revise": 2}
    for env, tools, revise in (("ClawGym-v0", False, 0), ("GSM8K-v0", True, 1), ("IFEval-v0", True, -1)):
        with pytest.raises(ValueError, match="tools=false|revise="):
            environment_settings(env, tools=tools, revise=revise)


def test_tasks_that_an_environment_cannot_carry_out_are_refused_before_anything_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert unfit_task("GSM8K-v0", [question()]) is None and unfit_task("Mixed-v0", [shell_task()]) is None
    assert environment_ids()[:5] == ["ClawGym-v0", "GSM8K-v0", "MATH-v0", "IFEval-v0", "Mixed-v0"]
    common = ["--env", "GSM8K-v0", "--tasks", "library", "--output_dir", str(tmp_path / "x")]
    assert evaluate.main(["--model", "noop", *common]) == 2
    assert "for example --tasks gsm8k:sample" in capsys.readouterr().err
    assert grpo.main([*common, "--dry-run"]) == 2
    assert "judged by more than its answer" in capsys.readouterr().err


def test_verifiers_that_fail_their_own_gold_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(NumberEquals, "check", lambda self, outcome: self.failed("always"))
    argv = ["--model", "oracle", "--env", "GSM8K-v0", "--tasks", "gsm8k:sample", "--output_dir", str(tmp_path / "x")]
    assert evaluate.main(argv) == 2
    assert "the verifiers cannot be trusted here: gold scores 1 on 0/" in capsys.readouterr().err


@needs_sandbox
def test_a_limit_in_a_mixed_environment_takes_every_set_in_turn(tmp_path: Path) -> None:
    argv = ["--env", "Mixed-v0", "--model", "oracle", "--tasks", "gsm8k:sample", "--tasks", "library", "--limit", "4"]
    assert evaluate.main([*argv, "--output_dir", str(tmp_path / "e")]) == 0
    played = json.loads((tmp_path / "e" / "evaluation.json").read_text())["tasks"]
    assert sum(name.startswith("gsm8k-sample-") for name in played) == 2 and len(played) == 4
