from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from tests.shared_data import REPOSITORY
from trainers.config.refusals import check_config
from trainers.errors import ConfigError
from trainers.run.cli import QUICKSTART, parse

CPU = ["--use_cpu", "true"]


def test_no_arguments_is_the_quickstart():
    settings = parse(CPU)
    content = yaml.safe_load(QUICKSTART.read_text())
    assert settings.config.max_steps == content["max_steps"]
    assert settings.env.tasks == content["tasks"]
    assert settings.policy.model_name_or_path == "quickstart"
    check_config(settings.config)


def test_flags_win_over_the_file_and_zero_is_a_value():
    settings = parse([*CPU, "--seed", "0", "--max_steps", "3", "--learning_rate", "1e-5", "--beta_turn", "0"])
    assert (settings.config.seed, settings.config.max_steps) == (0, 3)
    assert (settings.config.learning_rate, settings.config.beta_turn) == (1e-5, 0.0)


def test_another_policy_does_not_take_the_quickstart_file():
    settings = parse([*CPU, "--model_name_or_path", "some/model", "--tasks", "my_tasks/"])
    assert settings.env.held_out == "split"
    assert settings.config.output_dir == "runs/run"


def test_a_config_can_be_named_without_its_folder():
    assert parse([*CPU, "--config", "quickstart"]).config.max_steps == parse(CPU).config.max_steps


def test_unknown_flag_names_the_nearest():
    with pytest.raises(ConfigError, match=r"--learning_rte.*did you mean `learning_rate`"):
        parse([*CPU, "--learning-rte", "1"])


def test_unknown_key_names_file_line_and_the_nearest(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("tasks: my_tasks/\nturn_groping: anchor\n")
    with pytest.raises(ConfigError, match=r"mine\.yaml:2: unknown key `turn_groping`; did you mean `turn_grouping`"):
        parse([*CPU, "--config", str(path)])


def test_missing_config_lists_those_that_ship():
    with pytest.raises(ConfigError, match="no such file.*quickstart"):
        parse(["--config", "nowhere.yaml"])


def test_a_value_that_does_not_fit_is_one_message():
    with pytest.raises(ConfigError, match="max_steps"):
        parse([*CPU, "--max_steps", "many"])


def test_stray_words_are_refused():
    with pytest.raises(ConfigError, match="not understood: my_tasks"):
        parse([*CPU, "my_tasks/"])


def test_help_is_short_and_shows_our_flags(capsys):
    with pytest.raises(SystemExit) as stop:
        parse(["--help"])
    text = capsys.readouterr().out
    assert stop.value.code == 0
    assert "--turn_grouping" in text and "--tasks" in text and "--help-all" in text
    assert len(text.splitlines()) < 215


def test_resolved_settings_can_be_read_back(tmp_path):
    first = parse([*CPU, "--max_steps", "5", "--temperature", "0.8", "--turn_resample", "true"])
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(first.resolved(), sort_keys=False))
    again = parse([*CPU, "--config", str(path)])
    assert again.resolved() == first.resolved()
    assert again.sha256() == first.sha256()


def test_hash_ignores_the_folder_and_sees_the_rest():
    base = parse(CPU).sha256()
    assert parse([*CPU, "--output_dir", "elsewhere", "--resume"]).sha256() == base
    assert parse([*CPU, "--seed", "1"]).sha256() != base
    assert parse([*CPU, "--weight_decay", "0.01"]).sha256() != base


def test_own_tasks_are_held_out_from_themselves():
    """Not the quickstart's generated ones: a checkpoint is chosen on tasks of the kind that it is trained on."""
    assert parse([*CPU, "--tasks", "my_tasks/"]).env.held_out == "split"
    assert parse([*CPU, "--tasks", "my_tasks/", "--held_out", "other/"]).env.held_out == "other/"
    assert parse(CPU).env.held_out.startswith("generated:")


def test_a_flag_with_an_equals_sign_is_the_same_flag():
    spaced = parse([*CPU, "--model_name_or_path", "some/model", "--tasks", "generated:quickstart?n=9&seed=3"])
    joined = parse([*CPU, "--model_name_or_path=some/model", "--tasks=generated:quickstart?n=9&seed=3"])
    assert joined.resolved() == spaced.resolved()
    assert joined.env.held_out == "split" and joined.config.learning_rate != 3e-4


def test_a_resumed_run_goes_on_with_its_own_settings(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    first = parse([*CPU, "--output_dir", str(folder), "--learning_rate", "5e-4", "--num_generations", "2"])
    (folder / "config.yaml").write_text(yaml.safe_dump(first.resolved()))
    again = parse([*CPU, "--output_dir", str(folder), "--resume"])
    assert again.resolved() == first.resolved() and again.config.resume
    longer = parse([*CPU, "--output_dir", str(folder), "--resume", "--max_steps", "99"])
    assert longer.config.max_steps == 99 and longer.config.learning_rate == 5e-4


def test_an_explicit_generation_cycle_is_part_of_the_record():
    base = [*CPU, "--gradient_accumulation_steps", "4"]
    assert parse(base).sha256() != parse([*base, "--steps_per_generation", "2"]).sha256()


def test_help_is_there_before_torch_and_trl_are():
    """They take seconds to import."""
    code = (
        "import runpy, sys; sys.argv = ['grpo', '--help']\n"
        "try: runpy.run_module('trainers.grpo', run_name='__main__')\n"
        "except SystemExit as stop: assert stop.code == 0\n"
        "sys.exit(', '.join({'torch', 'trl', 'transformers'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert "--learning_rate" in done.stdout


def test_autocast_on_a_cpu_is_refused_in_our_words(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ConfigError, match="bf16: autocast is always refused here.*dtype"):
        parse(["--bf16", "true"])


def test_configs_of_another_command_are_not_offered():
    with pytest.raises(ConfigError) as refused:
        parse(["--config", "nope"])
    assert "quickstart" in str(refused.value) and "warm_start" not in str(refused.value)
