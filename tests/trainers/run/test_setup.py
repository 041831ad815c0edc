from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from agents.models.card import ModelCard
from envs.prompts import LINE_CUT
from sandboxes import Backend
from tests.agents.fakes import task
from tests.sandboxes.conftest import require
from trainers.errors import ConfigError
from trainers.rollouts.manner import card_of_env, differences
from trainers.run.callback import RunCallback
from trainers.run.dry_run import CHARACTERS, MESSAGE_TOKENS, longest_episode
from trainers.run.setup import (
    _inherit,
    _open_sandbox,
    _setting_problems,
    budget_notes,
    idle_selection,
    make_env_factory,
    most_turns,
    reply_cap,
)
from trainers.settings.parsing import parse


def run(*, max_turn_tokens: int = 0, env: str = "ClawGym-v0", max_turns: int = 0, tools: bool = True) -> Any:
    pool = [task(budget={"max_turns": turns, "turn_tokens": tokens}) for turns, tokens in ((3, 100), (6, 200))]
    return SimpleNamespace(
        settings=SimpleNamespace(
            t2po=SimpleNamespace(max_turn_tokens=max_turn_tokens),
            env=SimpleNamespace(env=env, max_turns=max_turns, tools=tools, revise=0),
        ),
        tasks=SimpleNamespace(pool=pool, everything=[*pool, task(budget={"turn_tokens": 300})]),
    )


@pytest.mark.parametrize(("flag", "cap"), [(0, 300), (40, 40), (300, 300), (5000, 300)])
def test_a_reply_has_at_most_what_the_flag_and_some_task_allow(flag: int, cap: int) -> None:
    assert reply_cap(run(max_turn_tokens=flag)) == cap


def test_agent_errors_reaches_the_environment() -> None:
    for flags, kind in ((["--agent_errors", "error"], "error"), ([], "fail")):
        settings = parse(flags)
        checked: Any = SimpleNamespace(
            settings=settings, tasks=run().tasks, backend="auto", prompt_style="compact", protocol="text", shots=()
        )
        made = make_env_factory(checked)()
        assert made.agent_errors == kind == settings.resolved()["agent_errors"]


def test_older_observations_reach_the_environment_as_asked_or_as_before() -> None:
    card = ModelCard(environment="ClawGym-v0", prompt_hash="12")
    lines = replace(card, keep_observations=4)
    asked, nothing = parse(["--keep_observations", "2"]), parse([])
    for settings, before, keep, said in (
        (asked, card, 2, ["keep_observations=2: the policy was shown all observations in full before"]),
        (asked, lines, 2, ["keep_observations=2: the policy was shown the last 4 before"]),
        (asked, replace(lines, keep_observations=2), 2, []),
        (nothing, lines, 4, ["keep_observations=4: as the policy was trained before"]),
        (nothing, card, None, []),
        (asked, ModelCard(environment="ClawGym-v0"), 2, []),  # nobody knows what it was shown
        (nothing, replace(lines, environment="GSM8K-v0"), None, []),
    ):
        taken, notes = _inherit(settings, before)
        assert (taken.env.keep_observations, notes) == (keep, said)
        checked: Any = SimpleNamespace(
            settings=taken, tasks=run().tasks, backend="auto", prompt_style="compact", protocol="text", shots=()
        )
        made = make_env_factory(checked)()
        assert made.keep_observations == keep
        assert card_of_env(made, 64).keep_observations == keep  # type: ignore[union-attr]
        # Asked for, or as before: no reason to refuse, but another style is one.
        trained = make_env_factory(checked)(keep_observations=before.keep_observations).prompt_hash
        known = replace(before, prompt_hash=trained, environment="ClawGym-v0")
        assert not list(differences(replace(known, stops=()), "ClawGym-v0", make_env_factory(checked)))
        other: Any = SimpleNamespace(
            settings=taken, tasks=run().tasks, backend="auto", prompt_style="standard", protocol="text", shots=()
        )
        assert list(differences(known, "ClawGym-v0", make_env_factory(other)))
    assert parse(["--keep_observations", "0"]).env.keep_observations is None


def test_the_longest_prompt_is_that_of_the_lines() -> None:
    settings = parse(["--max_turn_tokens", "100"])
    longest = {}
    for keep in (None, 1, 3, 60):
        kept = replace(settings, env=replace(settings.env, keep_observations=keep, max_turns=50))
        longest[keep] = longest_episode(
            SimpleNamespace(settings=kept, tasks=run().tasks, prompt_style="standard", protocol="text", shots=())
        )
    said, line = MESSAGE_TOKENS["standard"], LINE_CUT // CHARACTERS
    assert longest[None] == longest[60] and longest[None] - longest[3] == 47 * (said - line) > 0
    assert longest[3] - longest[1] == 2 * (said - line)


def test_a_token_budget_is_the_longest_episode_and_is_that_of_before() -> None:
    card = ModelCard(environment="ClawGym-v0", prompt_hash="12", max_episode_tokens=3000)
    for flags, before, budget, said in (
        ([], card, 3000, ["max_episode_tokens=3000: as the policy was trained before"]),
        (["--max_episode_tokens", "700"], card, 700, []),
        ([], replace(card, environment="GSM8K-v0"), None, []),
        (["--max_episode_tokens", "0"], ModelCard(environment="ClawGym-v0"), None, []),
    ):
        taken, notes = _inherit(parse(flags), before)
        assert (taken.env.max_episode_tokens, notes) == (budget, said)
    longest = {}
    for flags in ([], ["--max_episode_tokens", "900"], ["--max_episode_tokens", "90000"]):
        checked: Any = SimpleNamespace(
            settings=parse(flags), tasks=run().tasks, prompt_style="standard", protocol="text", shots=()
        )
        longest[flags[-1] if flags else ""] = longest_episode(checked)
    assert longest["900"] == 900 < longest[""] == longest["90000"]
    masked = ["--mask_truncated_completions", "true"]
    (note,) = budget_notes(parse(["--max_episode_tokens", "900", *masked]))
    assert "writing on costs less than failing" in note
    assert not list(budget_notes(parse(masked))) and not list(budget_notes(parse(["--max_episode_tokens", "900"])))


def test_turns_of_an_episode() -> None:
    assert most_turns(run()) == 6
    assert most_turns(run(max_turns=2)) == 2
    assert most_turns(run(env="GSM8K-v0")) == 6
    assert most_turns(run(env="GSM8K-v0", tools=False)) == 1


@pytest.mark.parametrize(
    ("flags", "starts"),
    [
        (["--episode_operator", "maxrl"], "episode_operator=maxrl: it divides"),
        (["--episode_operator", "maxrl", "--reward", "delta"], "episode_operator=maxrl: it divides"),
        (["--episode_operator", "maxrl", "--reward", "binary"], None),
        (["--episode_operator", "maxrl", "--turn_penalty", "0"], None),
        (["--episode_operator", "gtpo"], "episode_operator=gtpo: it knows attempts that passed"),
        (["--episode_operator", "gtpo", "--reward", "binary"], None),
        (["--lora_dropout", "0.1"], "lora_dropout=0.1: would do nothing"),
        (["--turn_penalty", "nan"], "turn_penalty=nan: a finite number"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_settings_that_only_fit_together(flags: list[str], starts: str | None) -> None:
    problems = list(_setting_problems(parse(flags)))
    assert [problem.startswith(starts) for problem in problems] == [True] if starts else not problems


@pytest.mark.parametrize(
    ("flags", "starts"),
    [
        ("--sandbox foo", "sandbox='foo': one of auto, docker"),
        ("--held_out split --held_out_fraction 0", "held_out_fraction=0: held_out=split then holds out nothing"),
        ("--held-out split --held-out-fraction=0", "held_out_fraction=0: held_out=split then holds out nothing"),
        ("--sampler vllm:localhost:1", "sampler='vllm:localhost:1': no address"),
        ("--sampler vllm:http://host:port", "sampler='vllm:http://host:port': no address"),
        ("--seed -1", "seed=-1: 0 or more, below 4294967296"),
        ("--seed 4294967296", "seed=4294967296: 0 or more, below 4294967296"),
        ("--adam_beta1 1", "adam_beta1=1.0: 0 or more, below 1"),
        ("--torch_threads -1", "torch_threads=-1: above 0, or 0 to leave it out"),
        ("--min_delta -1", "min_delta=-1.0: 0 or more"),
        ("--beta_turn -1", "beta_turn=-1.0: "),
        ("--learning_rate -1", "learning_rate=-1.0: "),
        ("--report_to nosuch", "report_to=nosuch: no tracker"),
        ("--push_to_hub true", "push_to_hub=True: a run uploads nothing"),
        ("--guards all=stop", "guards='all=stop': `all=stop`: a severity is given to single guards"),
        ("--eval_strategy epoch", "eval_strategy='epoch': one of steps, no."),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_a_setting_that_cannot_work_is_one_line_with_the_remedy(flags: str, starts: str) -> None:
    (problem,) = _setting_problems(parse(flags.split()))
    assert problem.startswith(starts) and "\n" not in problem


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--patience 2", "patience=2 does nothing: nothing is held out."),
        ("--patience 2 --eval_strategy no", "patience=2 does nothing: nothing is measured in training"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_patience_that_nothing_can_spend_is_named(flags: str, says: str) -> None:
    measured = [task()] if "eval" in flags else []
    tasks: Any = SimpleNamespace(measured=measured)
    assert [note.startswith(says) for note in idle_selection(parse(flags.split()).config, tasks)] == [True]


@pytest.mark.parametrize(("share", "refused"), [("-0.1", True), ("0.6", True), ("0", False), ("0.5", False)])
def test_the_share_of_the_confirmation_has_its_range(share: str, refused: bool) -> None:
    said = [problem for problem in _setting_problems(parse(["--confirm", share])) if problem.startswith("confirm=")]
    assert bool(said) == refused


@pytest.mark.parametrize(
    ("flags", "gone"),
    [
        (["--max_steps", "60", "--save_steps", "20"], "of 3 checkpoints (steps 20 to 60) the last 2 are kept"),
        (["--max_steps", "50", "--save_steps", "20"], "of 3 checkpoints (steps 20 to 50) the last 2 are kept"),
        (["--max_steps", "40", "--save_steps", "20"], None),
        (["--max_steps", "60", "--save_steps", "20", "--save_total_limit", "0"], None),
        (["--max_steps", "60", "--save_strategy", "no"], None),
    ],
)
def test_checkpoints_that_will_be_gone_are_told_of_with_the_first(flags: list[str], gone: str | None) -> None:
    config, said = parse(["--use_cpu", "true", *flags]).config, []
    console: Any = SimpleNamespace(note=said.append, warnings=[])
    nothing: Any = SimpleNamespace()
    callback = RunCallback(nothing, console, nothing, keep_trajectories=False)
    for step in (20, 40):
        callback.on_save(config, SimpleNamespace(global_step=step), None)
    assert [line.split(", and best/")[0] for line in said] == ([f"checkpoint-20 is written; {gone}"] if gone else [])


@pytest.mark.bubblewrap
def test_a_run_refuses_tasks_that_its_sandbox_cannot_place() -> None:
    require(Backend.BUBBLEWRAP)
    env = parse(["--sandbox", "bubblewrap"]).env
    assert _open_sandbox(env, [task()]) == ("bubblewrap", {})
    with pytest.raises(ConfigError, match=r"sandbox=bubblewrap: \w+: asks for the image 'x:1', which only the docker"):
        _open_sandbox(env, [task(), task(schema_version=2, image="x:1")])
