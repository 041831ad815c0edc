from __future__ import annotations

import subprocess
import sys

import pytest
import yaml

from tests.shared_data import REPOSITORY
from trainers.errors import ConfigError
from trainers.settings.checks import check_config
from trainers.settings.help import QUICKSTART
from trainers.settings.parsing import parse

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
    assert 25 <= text.count("\n  --") - 4 <= 50 and len(text.splitlines()) < 120


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
    with pytest.raises(ConfigError, match="bf16=True: autocast: sampling runs without it.*dtype"):
        parse(["--bf16", "true"])


def test_configs_of_another_command_are_not_offered():
    with pytest.raises(ConfigError) as refused:
        parse(["--config", "nope"])
    assert "quickstart" in str(refused.value) and "warm_start" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seed: 1.5", "f.yaml:1: seed=1.5: a whole number is needed"),
        ("seed: true", "f.yaml:1: seed=True: a whole number is needed"),
        ("beta: 0.1\nlearning_rate:", "f.yaml:2: `learning_rate` has no value"),
        ("learning_rate: fast", "f.yaml:1: learning_rate='fast': a number is needed"),
        ("max_steps: [1]", "f.yaml:1: max_steps=[1]: a whole number is needed"),
        ("tasks: {a: 1}", "f.yaml:1: tasks={'a': 1}: a text is needed"),
        (
            "max_steps: 5\nseed: 2\nmax_steps: 7",
            "f.yaml:3: max_steps: the key 'max_steps' stands here twice (first in line 1)",
        ),
        ("eval_strategy: no", "f.yaml:1: `eval_strategy`: YAML reads yes, no, on and off as true and false"),
        ("log_level: loud", "f.yaml:1: log_level='loud': one of detail, debug,"),
        ("[seed]", "must hold `key: value` lines"),
    ],
)
def test_a_value_of_a_file_that_does_not_fit_names_its_line(tmp_path, text, said):
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(ConfigError) as refused:
        parse([*CPU, "--config", str(tmp_path / "f.yaml")])
    assert said in str(refused.value)


def test_values_of_a_file_are_read_as_flags_are(tmp_path):
    (tmp_path / "f.yaml").write_text(
        "unseen_families: 2\nlearning_rate: 1e-4\nmax_steps: '12'\nbeta: 0\nheld_out_greedy: no\ntasks: [a, b]\n"
        "lr_scheduler_kwargs: {num_cycles: 2}\neval_steps: null\n"
    )
    settings = parse([*CPU, "--config", str(tmp_path / "f.yaml")])
    assert (settings.env.unseen_families, settings.env.tasks) == ("2", ["a", "b"])
    c = settings.config
    assert (c.learning_rate, c.max_steps, c.held_out_greedy) == (1e-4, 12, False)
    assert c.lr_scheduler_kwargs == {"num_cycles": 2}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--config", "."], ".: cannot be read"),
        (["--config", "warm_start"], "python -m trainers.sft --config warm_start"),
        (["--num_generations", "3"], "per_device_train_batch_size x processes x steps_per_generation"),
        (["--eval_steps", "0"], "eval_steps=0.0: above 0"),
        (["--lr_scheduler_kwargs", "{bad"], "lr_scheduler_kwargs: no JSON"),
        (["--from", "20"], "--from 20: goes with --resume"),
        (["--resume", "--from", "last"], "--from: needs the step of a checkpoint"),
        (["--resume", "--from"], "--from: needs the step of a checkpoint"),
    ],
)
def test_what_cannot_work_says_what_to_do(flags, said):
    with pytest.raises(ConfigError) as refused:
        parse([*CPU, *flags])
    assert said in str(refused.value)


def test_how_a_run_was_started_is_no_setting_of_it(tmp_path):
    settings = parse([*CPU, "--resume", "--from=20", "--output_dir", str(tmp_path)])
    assert settings.start == 20 and not {"from", "start", "resume"} & settings.resolved().keys()
    assert parse(CPU).start is None
