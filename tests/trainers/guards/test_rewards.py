"""Rewards that are not the grade's: built-in ones at once, a user's own when it does not rise with the grade."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from types import SimpleNamespace

import pytest

from agents.trajectory import OWN_REWARD, Trajectory, env_for, setting_of
from envs.clawgym import ClawGymEnv
from envs.rewards import REWARDS, RewardKind, RewardRule
from tests.envs.fakes import task as shell_task
from tests.trainers.guards.conftest import FLAGS, SANDBOX
from tests.trainers.guards.planted import attempts, on, only, result
from tests.trainers.toy import ToyEnv, make_trainer
from trainers import grpo
from trainers.errors import RewardError
from trainers.guards import GuardName, Severity

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]
needs_sandbox = pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine")
DRAW = random.Random(7)

CORRUPT = {
    "constant": lambda reward: 0.5,
    "flipped": lambda reward: -reward,
    "a million times": lambda reward: 1e6 * reward,
    "random": lambda reward: DRAW.random(),
}
RULES = [
    RewardRule(),
    RewardRule(RewardKind.BINARY),
    RewardRule(RewardKind.DELTA),
    RewardRule(subtract_baseline=True),
    RewardRule(RewardKind.DELTA, subtract_baseline=True),
]


def paid(rule: RewardRule, seed: int, start: float = 0.25) -> list[Trajectory]:
    """Attempts whose reward is the rule's, from the rate of doing nothing."""
    episodes = attempts(0.6, seed=seed)
    for episode in episodes:
        episode.environment = {
            "env": "ClawGymEnv", "reward": rule.kind.value, "turn_penalty": rule.turn_penalty, "max_turns": 8,
            "subtract_baseline": rule.subtract_baseline,
        }  # fmt: skip
        assert episode.rate is not None
        if rule.kind is RewardKind.DELTA:
            episode.reward = rule.change(start, episode.rate, start)
        else:
            episode.reward = rule.final(
                rate=episode.rate, passed=bool(episode.passed), turns=len(episode.turns), max_turns=8, baseline=start
            )
    return episodes


def name_of(rule: RewardRule) -> str:
    return rule.kind + "-from-start" * rule.subtract_baseline


@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_the_right_reward_is_silent(rule):
    watch = on(GuardName.REWARD_AGAINST_GRADE)
    for step in range(1, 30):
        watch.episodes(step, result(paid(rule, step, start=0.0 if step % 2 else 0.5)))
    assert watch.findings == []


@pytest.mark.parametrize("how", CORRUPT)
@pytest.mark.parametrize("rule", RULES, ids=name_of)
def test_a_corrupted_built_in_reward_speaks_within_three_steps(rule, how):
    watch = on(GuardName.REWARD_AGAINST_GRADE)
    for step in range(1, 4):
        episodes = paid(rule, step)
        for episode in episodes:
            episode.reward = CORRUPT[how](episode.reward)
        watch.episodes(step, result(episodes))
    found = watch.findings[0]
    assert (found.severity, found.kind) == (Severity.STOP, "not_the_grades") and found.step <= 3
    assert f"{rule.kind} gives for their grade" in found.message and "task " in found.message


def test_a_single_wrong_reward_is_a_warning_that_names_it():
    episodes = paid(RewardRule(), 1)
    episodes[5].reward += 0.01
    watch = on(GuardName.REWARD_AGAINST_GRADE)
    watch.episodes(1, result(episodes))
    found = only(watch)
    assert (found.severity, found.kind) == (Severity.WARN, "some_not_the_grades")
    assert f"task {episodes[5].task_id}, attempt 1" in found.message and f"{episodes[5].reward:.6g}" in found.message


@pytest.mark.parametrize("rule", [RewardRule(), RewardRule(RewardKind.BINARY)], ids=name_of)
def test_a_grade_that_is_not_its_verdicts_is_found_too(rule):
    episodes = paid(rule, 1)
    for episode in episodes:
        for record in episode.assertions:
            record |= {"score": 0.0, "verdict": "fail"}
    watch = on(GuardName.REWARD_AGAINST_GRADE)
    watch.episodes(1, result(episodes))
    assert only(watch).kind == "not_the_grades"


@needs_sandbox
@pytest.mark.parametrize(
    "flags",
    [
        ["--reward", "binary"],
        ["--reward", "delta", "--subtract_baseline"],
        ["--subtract_baseline", "--max_turns", "3"],
        ["--env", "Mixed-v0", "--tasks", "gsm8k:sample?limit=12,ifeval:sample?limit=12", "--held_out", "none"],
    ],
    ids=" ".join,
)
def test_real_runs_of_every_rule_are_silent(flags, tmp_path):
    """Every way an episode ends is in them: submitted, out of turns, out of tokens."""
    folder = tmp_path / "run"
    few = [*FLAGS, "--max_steps", "2", "--eval_steps", "2", "--max_turn_tokens", "40"]
    assert grpo.main([*few, "--guards", "none,reward_against_grade", *flags, "--output_dir", str(folder)]) == 0
    assert json.loads((folder / "summary.json").read_text())["guards"] == {"on": 1, "silent": 1, "findings": {}}


@needs_sandbox
@pytest.mark.parametrize("how", ["flipped", "random"])
def test_a_real_run_on_a_corrupted_reward_ends_within_three_steps(how, tmp_path, monkeypatch):
    """In 0.6.0 each of them ran to its end with all guards silent."""
    right = RewardRule.final
    monkeypatch.setattr(RewardRule, "final", lambda self, **given: CORRUPT[how](right(self, **given)))
    folder = tmp_path / "run"
    assert grpo.main([*FLAGS, "--output_dir", str(folder)]) == 3
    found = [json.loads(line) for line in (folder / "guards.jsonl").read_text().splitlines()]
    (stopped,) = [line for line in found if line["severity"] == "stop"]
    assert stopped["guard"] == "reward_against_grade" and stopped["step"] <= 3


# -- rewards of the user's own -------------------------------------------------------------------------------------


def own(seed: int, reward) -> list[Trajectory]:
    """Attempts that an environment of the user's paid."""
    rng = random.Random(seed)
    return [replace(episode, reward=reward(episode, rng)) for episode in attempts(0.5, seed=seed)]


def groups_until_it_speaks(reward, steps: int = 60, first: int = 0) -> tuple[int | None, str]:
    """Groups with different grades that were seen when it spoke, and what it said."""
    watch, seen = on(GuardName.REWARD_AGAINST_GRADE), 0
    for step in range(1, steps + 1):
        episodes = own(first + step, reward)
        watch.episodes(step, result(episodes))
        seen += sum(len({e.rate for e in episodes[i : i + 4]}) > 1 for i in range(0, len(episodes), 4))
        if watch.findings:
            assert only(watch).severity is Severity.WARN
            return seen, only(watch).kind
    return None, ""


def test_a_random_reward_of_the_users_speaks_after_some_forty_groups():
    told = [groups_until_it_speaks(lambda e, rng: rng.random(), first=1000 * i)[0] for i in range(30)]
    assert all(groups is not None for groups in told)
    assert 40 <= sorted(told)[15] <= 50 and sum(groups <= 70 for groups in told) >= 27


def test_one_with_the_wrong_sign_and_a_constant_one_speak_sooner():
    groups, kind = groups_until_it_speaks(lambda e, rng: -e.rate)
    assert kind == "not_rising" and groups is not None and groups <= 20
    groups, kind = groups_until_it_speaks(lambda e, rng: 3.0)
    assert kind == "constant" and groups is not None and groups <= 30


@pytest.mark.parametrize(
    "reward",
    [
        lambda e, rng: 100 * e.rate - len(e.turns),
        lambda e, rng: float(e.passed),
        lambda e, rng: e.rate + rng.gauss(0, 0.5),
        lambda e, rng: -5.0 if not e.passed else -1.0,
    ],
    ids=["scaled, less a price", "passes alone", "noisy", "negative"],
)
def test_one_that_rises_with_the_grade_is_silent(reward):
    assert all(groups_until_it_speaks(reward, first=1000 * i) == (None, "") for i in range(5))


def test_a_reward_for_passes_is_equal_by_right_where_none_passes():
    watch = on(GuardName.REWARD_AGAINST_GRADE)
    for step in range(1, 30):
        episodes = attempts(0.0, seed=step)
        watch.episodes(step, result([replace(e, reward=0.0) for e in episodes]))
    assert watch.findings == []


def test_whose_reward_it_is_stands_in_the_record():
    class Mine(ClawGymEnv):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, 2 * reward, *rest

    class Kept(ClawGymEnv):
        """Changes something else."""

    class MyRule(RewardRule):
        pass

    job = shell_task()
    for kind, theirs in ((ClawGymEnv, False), (Kept, False), (Mine, True)):
        env = kind([job], sandbox="local")
        env._choose(0, None)
        assert setting_of(env).get(OWN_REWARD, False) is theirs
        setting = setting_of(env)
        env.rule = MyRule()
        assert setting_of(env)[OWN_REWARD] is True
        assert type(env_for(job, setting, "local")) is ClawGymEnv  # a replay does without it


def test_a_registered_reward_is_theirs_and_a_replay_pays_it(monkeypatch):
    class MyRule(RewardRule):
        """A registered one."""

    monkeypatch.setitem(REWARDS, "mine", MyRule)
    job = shell_task()
    env = ClawGymEnv([job], sandbox="local", reward="mine")
    env._choose(0, None)
    setting = setting_of(env)
    assert setting["reward"] == "mine" and setting[OWN_REWARD] is True
    assert type(env_for(job, setting, "local").rule) is MyRule


def test_a_reward_of_their_own_is_not_measured_by_the_built_in_rule():
    episodes = paid(RewardRule(), 1)
    for episode in episodes:
        episode.environment[OWN_REWARD] = True
        episode.reward = 10 * episode.rate
    watch = on(GuardName.REWARD_AGAINST_GRADE)
    for step in range(1, 20):
        watch.episodes(step, result(episodes))
    assert watch.findings == []


# -- rewards that are no numbers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "guards"), [(math.nan, "all"), (math.inf, "none")])
def test_a_reward_that_is_not_finite_names_its_task_before_anything_is_learned(value, guards, tmp_path, monkeypatch):
    right, finite = ToyEnv.step, [24]

    def step(self, reply):
        observation, reward, terminated, truncated, info = right(self, reply)
        finite[0] -= truncated
        bad = truncated and self.task.id == "toy-2" and finite[0] < 0
        return observation, value if bad else reward, terminated, truncated, info

    monkeypatch.setattr(ToyEnv, "step", step)
    trainer = make_trainer(tmp_path, max_steps=20, guards=guards)
    with pytest.raises(RewardError, match=r"of step \d+ is not a finite number: task toy-2, attempt \d") as refused:
        trainer.train()
    trainer.close()
    assert trainer.state.global_step >= 3 and str(value) in str(refused.value) and "seed" in str(refused.value)
    assert all(bool(parameter.isfinite().all()) for parameter in trainer.model.parameters())


@needs_sandbox
@pytest.mark.parametrize("after", [0, 40])
def test_from_the_command_line_it_is_one_line_and_exit_code_2(after, tmp_path, monkeypatch, capsys):
    """Met in the measurement of the start, or later in training."""
    right, count = RewardRule.final, SimpleNamespace(n=0)

    def final(self, **given):
        count.n += 1
        return math.nan if count.n > after else right(self, **given)

    monkeypatch.setattr(RewardRule, "final", final)
    assert grpo.main([*FLAGS, "--output_dir", str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    line = next(line for line in said.err.splitlines() if line.startswith("trainers.grpo: the reward of"))
    assert "attempt" in line and "nan" in line and "Traceback" not in said.err
