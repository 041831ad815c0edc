"""The turn loop, through ClawGym on fake sandboxes (real bash, failures on request)."""

from __future__ import annotations

import json

import pytest
from gymnasium.error import ResetNeeded

from envs.clawgym import ClawGymEnv
from envs.conversation import StopReason
from envs.rewards import REWARDS, BaselineError, RewardRule
from sandboxes.sandbox import SandboxError
from tasks.assertions.grade import Grade, GradeError
from tasks.task import Task
from tests.envs.fakes import FakeSandbox, FakeSandboxes, bash, task, tasks

SOLVE = bash("echo hello > greeting.txt")
SUBMIT = "TASK_COMPLETE"


def make(given: Task | None = None, **settings: object) -> ClawGymEnv:
    return ClawGymEnv([given or task()], prompt_style=settings.pop("prompt_style", "compact"), **settings)  # type: ignore[arg-type]


def test_an_episode_from_start_to_submission(sandboxes: FakeSandboxes) -> None:
    env = make()
    observation, info = env.reset(seed=0)
    assert observation == env.task.intent and env.system_prompt == ""
    assert info["task_id"] == "first" and info["task_hash"] == env.task.content_hash
    assert (info["turn"], info["action"], info["stop_reason"], info["seed"]) == (0, None, None, 0)
    assert info["anchor"].endswith(":start") and info["malformed"] == {}
    start = info["anchor"]

    observation, reward, terminated, truncated, info = env.step(bash("cat notes.txt"))
    assert observation == "ok\nkeep me" and (reward, terminated, truncated) == (0.0, False, False)
    assert (info["action"], info["command"], info["exit_code"], info["timed_out"]) == (
        "command",
        "cat notes.txt",
        0,
        False,
    )
    assert info["signal"] == 0.0 and info["anchor"] == start.replace(":start", ":ok")
    assert "passed" not in info

    observation, reward, terminated, truncated, info = env.step(SOLVE)
    assert info["signal"] == 0.5 and info["anchor"].split(":")[0] != start.split(":")[0]

    observation, reward, terminated, truncated, info = env.step(SUBMIT)
    assert observation == "" and (terminated, truncated) == (True, False)
    assert reward == pytest.approx(1.0 - 0.2 * 3 / 4)
    assert (info["turn"], info["action"], info["command"], info["exit_code"]) == (3, "submit", None, None)
    assert info["signal"] is None and info["stop_reason"] == "submitted"
    assert info["passed"] is True and info["rate"] == 1.0
    assert [record["verdict"] for record in info["assertions"]] == ["pass"] * 4
    json.dumps(info)
    env.close()


def test_a_command_with_the_stop_word_runs_first_and_keeps_its_signal(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset()
    observation, reward, terminated, _, info = env.step(f"{SOLVE}\nTASK_COMPLETE")
    assert observation == "ok" and terminated and info["action"] == "command"
    assert info["signal"] == 0.5 and info["exit_code"] == 0 and info["passed"]
    assert reward == pytest.approx(1.0 - 0.2 / 4)


def test_the_turn_budget_truncates_and_grades(sandboxes: FakeSandboxes) -> None:
    env = make(max_turns=2)
    env.reset()
    assert env.max_turns == 2
    assert env.step(SOLVE)[2:4] == (False, False)
    _, reward, terminated, truncated, info = env.step(bash("true"))
    assert (terminated, truncated) == (False, True)
    assert info["stop_reason"] == "max_turns" and info["passed"]
    assert reward == pytest.approx(0.8)


def test_a_submission_on_the_last_turn_terminates(sandboxes: FakeSandboxes) -> None:
    env = make(max_turns=1)
    env.reset()
    _, _, terminated, truncated, info = env.step(SUBMIT)
    assert (terminated, truncated, info["stop_reason"]) == (True, False, "submitted")


def test_a_malformed_turn_costs_a_turn_changes_nothing_and_is_counted(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset()
    runs = sandboxes.last.calls.count("run")
    observation, reward, terminated, truncated, info = env.step(f"{SOLVE}\n{bash('rm notes.txt')}\nTASK_COMPLETE")
    assert observation == "error: more than one bash block; nothing was run"
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["action"] == "malformed" and info["signal"] == 0.0 and info["anchor"].endswith(":malformed")
    assert sandboxes.last.calls.count("run") == runs
    env.step("")
    info = env.step("hm")[4]
    assert info["malformed"] == {"several_blocks": 1, "empty": 1, "no_action": 1}
    assert info["turn"] == 3
    _, _, _, truncated, info = env.step("```bash\nls")
    assert truncated and info["stop_reason"] == "max_turns" and info["rate"] == 0.5


def test_signal_is_the_change_of_the_file_assertions(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset()
    signals = [env.step(bash(c))[4]["signal"] for c in ("touch greeting.txt", "touch trash", "rm trash notes.txt")]
    assert signals == [0.25, -0.25, 0.0]


def test_exit_codes_and_anchors(sandboxes: FakeSandboxes) -> None:
    env = make(task(budget={"max_turns": 9, "command_seconds": 0.5}))
    env.reset()
    _, _, _, _, failed = env.step(bash("exit 3"))
    assert failed["exit_code"] == 3 and failed["anchor"].endswith(":fail")
    observation, _, _, _, late = env.step(bash("sleep 5"))
    assert late["timed_out"] and late["anchor"].endswith(":timeout") and observation == "timeout"
    again = env.step(bash("exit 3"))[4]
    assert again["anchor"] == failed["anchor"]


def test_a_command_that_the_sandbox_would_refuse_is_malformed(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset()
    info = env.step(bash("echo " + "\u00e9" * 3000))[4]
    assert info["action"] == "malformed" and info["malformed"] == {"too_long": 1}


def test_delta_rewards_sum_to_the_change_of_the_rate(sandboxes: FakeSandboxes) -> None:
    env = make(reward="delta")
    env.reset()
    rewards = [env.step(reply)[1] for reply in (bash("touch greeting.txt"), "??", SOLVE, SUBMIT)]
    assert rewards == pytest.approx([0.25, 0.0, 0.25, 0.0])


def test_delta_counts_what_the_submitting_command_does(sandboxes: FakeSandboxes) -> None:
    env = make(reward="delta", subtract_baseline=True)
    env.reset()
    assert env.step(bash("rm notes.txt"))[1] == pytest.approx(-0.5)
    assert env.step(f"{SOLVE}\nTASK_COMPLETE")[1] == pytest.approx(1.0)


def test_binary_reward(sandboxes: FakeSandboxes) -> None:
    env = make(reward="binary")
    env.reset()
    assert env.step(SUBMIT)[1] == 0.0
    env.reset()
    assert env.step(f"{SOLVE}\nTASK_COMPLETE")[1] == 1.0


def test_a_reward_of_the_users_is_paid_by_its_name(sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    class Half(RewardRule):
        """Half the rate, at the end."""

        def final(self, *, rate, passed, turns, max_turns, baseline):  # type: ignore[no-untyped-def]
            return rate / 2

    class Every(RewardRule):
        """Twice the change of the rate, at every turn."""

        needs_every_turn = True

        def change(self, before, after, baseline):  # type: ignore[no-untyped-def]
            return 2 * (after - before)

    for name, rule in (("half", Half), ("every", Every)):
        monkeypatch.setitem(REWARDS, name, rule)
    env = make(reward="half")
    env.reset()
    assert env.step(SOLVE)[1] == 0.0 and env.step("TASK_COMPLETE")[1] == 0.5
    env = make(reward="every")
    env.reset()
    assert env.step(SOLVE)[1] == 1.0 and env.step("TASK_COMPLETE")[1] == 0.0
    with pytest.raises(ValueError, match="the reward 'third' .* is no subclass of envs.rewards.RewardRule"):
        REWARDS.register("third", lambda **given: 1.0)


def test_doing_nothing_earns_nothing_above_the_baseline(sandboxes: FakeSandboxes) -> None:
    env = make(subtract_baseline=True, turn_penalty=0.0)
    env.reset()
    assert env.step(SUBMIT)[1] == 0.0


def test_a_task_done_at_the_start_is_refused_where_the_baseline_is_subtracted(sandboxes: FakeSandboxes) -> None:
    env = make(task(assertions=[{"kind": "file_unchanged", "path": "notes.txt"}]), subtract_baseline=True)
    with pytest.raises(BaselineError, match="task 'first': doing nothing already scores 1"):
        env.reset()


# -- seeds and tasks ------------------------------------------------------------------------------------------------


def test_seed_zero_is_a_seed(sandboxes: FakeSandboxes) -> None:
    env = ClawGymEnv(tasks(50), prompt_style="compact")
    ids = [env.reset(seed=0)[1]["task_id"] for _ in range(3)]
    assert len(set(ids)) == 1
    assert env.reset(seed=0)[1]["seed"] == 0
    assert len({env.reset(seed=s)[1]["task_id"] for s in range(20)}) > 5
    again = ClawGymEnv(tasks(50), prompt_style="compact")
    assert again.reset(seed=0)[1]["task_id"] == ids[0]


def test_equal_seeds_lay_equal_bytes(sandboxes: FakeSandboxes) -> None:
    env = ClawGymEnv(tasks(50), prompt_style="compact")
    first = env.reset(seed=7)
    env.step(bash("echo x > notes.txt; mkdir -p a/b"))
    assert env.reset(seed=7) == first


def test_without_a_seed_the_drawn_one_is_recorded_and_repeats_the_episode(sandboxes: FakeSandboxes) -> None:
    env = ClawGymEnv(tasks(50), prompt_style="compact")
    infos = [env.reset()[1] for _ in range(12)]
    assert len({info["task_id"] for info in infos}) > 3
    for info in infos[:4]:
        assert env.reset(seed=info["seed"])[1]["task_id"] == info["task_id"]
    other = [ClawGymEnv(tasks(50)).reset()[1]["seed"] for _ in range(4)]
    assert len(set(other)) == 4


def test_episodes_after_a_seed_are_a_fixed_sequence(sandboxes: FakeSandboxes) -> None:
    def sequence() -> list[str]:
        env = ClawGymEnv(tasks(50), prompt_style="compact")
        return [env.reset(seed=3)[1]["task_id"]] + [env.reset()[1]["task_id"] for _ in range(8)]

    assert sequence() == sequence()


def test_the_task_can_be_chosen(sandboxes: FakeSandboxes) -> None:
    env = ClawGymEnv(tasks(5), task="t3")
    assert env.reset()[1]["task_id"] == "t3"
    assert env.reset(options={"task": "t1"})[1]["task_id"] == "t1"
    other = task(id="other")
    assert env.reset(options={"task": other})[1]["task_hash"] == other.content_hash
    assert env.reset(options={})[1]["task_id"] == "t3"
    with pytest.raises(ValueError, match="no task 'first': "):
        env.reset(options={"task": "first"})
    with pytest.raises(ValueError, match="no option 'tasks'"):
        env.reset(options={"tasks": "t1"})
    with pytest.raises(ValueError, match="no task 'frist': did you mean 'first'"):
        ClawGymEnv([task()], task="frist")


# -- order, ends, failures ------------------------------------------------------------------------------------------


def test_calls_in_the_wrong_order_say_so(sandboxes: FakeSandboxes) -> None:
    env = make()
    for call in (lambda: env.step("x"), lambda: env.finish("max_tokens"), lambda: env.task):
        with pytest.raises(ResetNeeded):
            call()
    env.reset()
    env.step(SUBMIT)
    with pytest.raises(ResetNeeded, match=r"the episode is over \(submitted\)"):
        env.step(SUBMIT)
    with pytest.raises(ResetNeeded, match="the episode is over"):
        env.finish("max_tokens")
    env.close()
    with pytest.raises(ResetNeeded, match="closed"):
        env.step(SUBMIT)
    with pytest.raises(TypeError, match="a reply is text"):
        env.reset()
        env.step(None)  # type: ignore[arg-type]


def test_finish_grades_as_at_the_end(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset()
    env.step(SOLVE)
    reward, info = env.finish(StopReason.MAX_TOKENS)
    assert reward == pytest.approx(1.0 - 0.2 / 4)
    assert info["stop_reason"] == "max_tokens" and info["passed"] and len(info["assertions"]) == 4
    env.reset()
    assert env.finish("max_tokens")[0] == pytest.approx(0.5)
    env.reset()
    for reason in ("submitted", "lost"):
        with pytest.raises(ValueError, match=f"only what the agent does can end an episode as '{reason}'"):
            env.finish(reason)
    with pytest.raises(ValueError, match="unknown stop reason 'tired'"):
        env.finish("tired")


def test_finish_under_delta_completes_the_sum(sandboxes: FakeSandboxes) -> None:
    env = make(reward="delta")
    env.reset()
    total = env.step(SOLVE)[1]
    assert total + env.finish("max_tokens")[0] == pytest.approx(0.5)  # type: ignore[operator]


def test_infrastructure_has_no_reward(sandboxes: FakeSandboxes) -> None:
    env = make()
    env.reset()
    reward, info = env.finish("infrastructure")
    assert reward is None and info["stop_reason"] == "infrastructure" and "rate" not in info


@pytest.mark.parametrize("call", ["run", "snapshot"])
def test_a_broken_sandbox_is_an_error_and_the_next_episode_gets_another(sandboxes: FakeSandboxes, call: str) -> None:
    env = make()
    env.reset(seed=1)
    broken = sandboxes.last
    broken.fail = call
    sandboxes.fail_next = ["run"]  # the canary, too: the machinery is at fault
    with pytest.raises(SandboxError, match=f"broken at {call}"):
        env.step(SOLVE)
    with pytest.raises(ResetNeeded, match="broke off"):
        env.step(SOLVE)
    reward, info = env.finish("infrastructure")
    assert reward is None and info["stop_reason"] == "infrastructure" and info["task_id"] == "first"
    assert broken.closed == 1
    env.reset(seed=1)
    assert sandboxes.last is not broken
    assert env.step(f"{SOLVE}\nTASK_COMPLETE")[4]["passed"]


def test_a_sandbox_that_does_not_open_is_an_error(sandboxes: FakeSandboxes) -> None:
    sandboxes.fail_next = ["open"]
    env = make()
    with pytest.raises(SandboxError):
        env.reset()
    assert env.reset()[1]["turn"] == 0


def test_an_interrupt_leaves_no_half_read_sandbox(sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make()
    env.reset()
    first = sandboxes.last

    def interrupt(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(first, "run", interrupt)
    with pytest.raises(KeyboardInterrupt):
        env.step(SOLVE)
    env.reset()
    assert first.closed == 1 and sandboxes.last is not first


def test_an_error_of_an_assertion_is_never_a_reward(sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make()
    env.reset()

    def undecided(given: Task, outcome: object) -> Grade:
        return Grade(tuple(item.erred("cannot say") for item in given.assertions))

    monkeypatch.setattr("envs.conversation.grade", undecided)
    with pytest.raises(GradeError, match="task 'first' could not be graded: .*cannot say"):
        env.step(SUBMIT)
    assert env.finish("infrastructure")[0] is None
    monkeypatch.undo()


def test_one_sandbox_serves_all_episodes_and_close_is_idempotent(sandboxes: FakeSandboxes) -> None:
    env = make()
    assert not sandboxes.all
    for _ in range(3):
        env.reset()
        env.step(SUBMIT)
    assert len(sandboxes.all) == 1 and sandboxes.last.opened == 3
    env.close()
    env.close()
    assert sandboxes.last.closed == 1
    env.reset()
    assert len(sandboxes.all) == 2


def test_a_given_sandbox_stays_the_callers(sandboxes: FakeSandboxes) -> None:
    mine = FakeSandbox()
    env = make(sandbox=mine)
    env.reset()
    env.close()
    assert mine.opened == 1 and mine.closed == 0 and not sandboxes.all
    mine.close()


def test_one_round_trip_where_the_sandbox_offers_it(sandboxes: FakeSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make()
    env.reset()
    sandbox = sandboxes.last
    seen: list[str] = []

    def together(command: str, *, timeout: float | None = None) -> tuple[object, object]:
        seen.append(command)
        return FakeSandbox.run(sandbox, command, timeout=timeout), FakeSandbox.snapshot(sandbox)

    monkeypatch.setattr(sandbox, "run_and_snapshot", together, raising=False)
    assert env.step(SOLVE)[4]["signal"] == 0.5
    assert seen == ["echo hello > greeting.txt"]


def test_settings_are_checked_when_the_environment_is_made() -> None:
    for settings, message in [
        ({"reward": "shapely"}, "unknown reward 'shapely': did you mean 'shaped'"),
        ({"max_turns": 0}, "at least one turn"),
        ({"prompt_style": "long"}, "no prompt style 'long'"),
        ({"render_mode": "human"}, "render_mode 'human'"),
        ({"reward": "binary", "subtract_baseline": True}, "no effect"),
    ]:
        with pytest.raises(ValueError, match=message):
            make(**settings)


def test_the_prompt_names_the_turns_that_hold_here(sandboxes: FakeSandboxes) -> None:
    env = make(prompt_style="standard", max_turns=7)
    observation, info = env.reset()
    assert "7 turns" in env.system_prompt and "notes.txt" in observation
    assert info["task_hash"] == task().content_hash


def test_the_conversation_can_be_rendered(sandboxes: FakeSandboxes) -> None:
    env = make(render_mode="ansi")
    env.reset()
    env.step(bash("echo seen"))
    text = env.render()
    assert isinstance(text, str) and text.index(env.task.intent) < text.index("echo seen") < text.index("ok\nseen")
    assert make().render() is None


def test_an_intent_that_no_observation_can_hold_is_an_error(sandboxes: FakeSandboxes) -> None:
    env = make(task(intent="x" * 70_000))
    with pytest.raises(ValueError, match="shorten the intent"):
        env.reset()


def test_odd_names_and_bytes_stay_inside_the_space(sandboxes: FakeSandboxes) -> None:
    path = "donne\u0301es/rapport e\u0301te\u0301 2024.csv"
    env = make(task(assertions=[{"kind": "file_exists", "path": path}]), prompt_style="standard")
    env.reset()
    env.step(bash(f"mkdir -p 'donne\u0301es' && echo 1 > '{path}' && ls -R"))
    observation, *_ = env.step(bash("ls -R; printf '\\xff\\xfe'"))
    assert observation in env.observation_space and "\ufffd\ufffd" in observation
    assert "rapport e\u0301te\u0301 2024.csv" in observation
    observation.encode()
    assert env.step(SUBMIT)[4]["passed"]
