"""The environments on real sandboxes: what users and agents do to them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import pytest
from gymnasium.utils.env_checker import check_env

import envs  # noqa: F401  (registers)
from envs.clawgym import ClawGymEnv
from envs.prompts import listing
from sandboxes import Backend, SandboxError, SandboxPool, SupervisedSandbox, probe
from tasks.sources import load_tasks
from tests.envs.fakes import bash, kill, task


@pytest.fixture(
    params=[pytest.param(Backend.BUBBLEWRAP, marks=pytest.mark.bubblewrap), Backend.LANDLOCK], ids=lambda b: str(b)
)
def backend(request: pytest.FixtureRequest) -> Backend:
    found = probe(request.param)
    if not found.ok:
        pytest.skip(f"{request.param} does not work here: {found.reason}")
    return request.param


@pytest.fixture
def env(backend: Backend) -> Iterator[ClawGymEnv]:
    env = ClawGymEnv([task(budget={"max_turns": 30, "command_seconds": 2.0})], sandbox=backend, prompt_style="compact")
    env.reset(seed=0)
    yield env
    env.close()


def dead(sandbox: SupervisedSandbox) -> SupervisedSandbox:
    """A canary that no machinery can start any more."""
    canary = SupervisedSandbox(sandbox._launcher)
    canary.close()
    return canary


def test_library_oracles_pass_and_seeds_repeat(backend: Backend) -> None:
    env = ClawGymEnv("library", sandbox=backend)
    for given in load_tasks("library")[:3]:
        observation, info = env.reset(seed=0, options={"task": given.id})
        again = env.reset(seed=0, options={"task": given.id})
        assert again == (observation, info)
        assert given.oracle is not None
        for command in given.oracle.commands:
            assert not env.step(bash(command))[2]
        _, reward, terminated, truncated, info = env.step("TASK_COMPLETE")
        assert info["passed"] and (terminated, truncated) == (True, False) and 0.7 < reward < 1.0, info["assertions"]
    env.close()


def test_check_env(backend: Backend) -> None:
    env = gym.make("ClawGym-v0", sandbox=str(backend))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    env.close()


def test_odd_names_and_bytes(env: ClawGymEnv) -> None:
    path = "donne\u0301es/rapport e\u0301te\u0301 2024.csv"
    given = task(assertions=[{"kind": "file_exists", "path": path}])
    env.reset(options={"task": given})
    env.step(bash(f"mkdir -p 'donne\u0301es' && echo 1 > '{path}'"))
    observation, *_, info = env.step(bash("ls -R; printf '\\xff\\xfe'"))
    assert observation in env.observation_space and "rapport e\u0301te\u0301 2024.csv\n\ufffd\ufffd" in observation
    env.step(bash("touch $'bad\\xff'"))
    "\n".join(listing(env._files)).encode()
    assert env.step("TASK_COMPLETE")[4]["passed"]


@pytest.mark.parametrize("open_ended", ["cat <<EOF\none line", "echo 'unbalanced", 'echo "unbalanced', "if true; then"])
def test_an_open_construct_does_not_swallow_the_next_command(env: ClawGymEnv, open_ended: str) -> None:
    observation, _, _, _, info = env.step(bash(open_ended))
    assert observation and not info["timed_out"]
    assert info["exit_code"] != 0 or "one line" in observation
    observation, _, _, _, info = env.step(bash("echo ok"))
    assert observation == "ok\nok"


def test_a_document_with_fences_is_written_whole(env: ClawGymEnv) -> None:
    text = "# Use\n\n```bash\nmake\n```\n\nDone.\n"
    assert env.step(bash(f"cat > README.md <<'EOF'\n{text}EOF"))[4]["exit_code"] == 0
    assert env._files["README.md"].content == text.encode()


def test_a_command_out_of_time_ends_and_the_episode_goes_on(env: ClawGymEnv) -> None:
    observation, _, _, _, info = env.step(bash("echo part > greeting.txt; sleep 60"))
    assert observation == "timeout" and info["timed_out"] and info["signal"] == 0.25
    assert env.step(bash("cat greeting.txt"))[0] == "ok\npart"


def test_the_shell_remembers_and_reset_forgets(env: ClawGymEnv) -> None:
    env.step(bash("mkdir d; cd d; x=1"))
    assert env.step(bash("echo $x; basename $PWD"))[0] == "ok\n1\nd"
    env.reset(seed=0)
    assert env.step(bash("echo [$x]; ls"))[0] == "ok\n[]\nnotes.txt"


def test_a_killed_sandbox_is_an_error_where_no_other_lives_and_the_next_episode_works(
    env: ClawGymEnv, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill(env._sandbox)
    with monkeypatch.context() as patch, pytest.raises(SandboxError, match="lost.*not made good"):
        patch.setattr(SupervisedSandbox, "twin", dead)
        env.step(bash("echo hello > greeting.txt"))
    reward, info = env.finish("infrastructure")
    assert reward is None and info["stop_reason"] == "infrastructure"
    env.reset(seed=0)
    assert env.step(f"{bash('echo hello > greeting.txt')}\nTASK_COMPLETE")[4]["passed"]


def test_environments_share_a_pool(backend: Backend) -> None:
    with SandboxPool(backend, size=1) as pool:
        first, second = (ClawGymEnv([task()], sandbox=pool) for _ in range(2))
        for env in (first, second, first):  # one sandbox for all, because each episode gives it back at its end
            env.reset(seed=0)
            assert len(pool._lent) == 1
            assert env.step(bash("ls; touch left; export LEFT=1; echo [$LEFT]"))[0].count("left") == 0
            assert env.step(f"{bash('echo hello > greeting.txt')}\nTASK_COMPLETE")[4]["passed"]
            assert env._sandbox is None and not pool._lent
        first.reset(seed=0)
        first.reset(seed=0)  # an episode that is left in the middle keeps its sandbox for the next
        assert first.finish("max_tokens")[0] is not None and not pool._lent
        first.reset(seed=0)
        first.close()
        second.reset(seed=0)
        second.finish("infrastructure")
        assert not pool._lent and pool.starts == 1 and pool.episodes == 6


def test_a_killed_sandbox_of_a_pool_is_replaced(backend: Backend) -> None:
    with SandboxPool(backend, size=1) as pool:
        env = ClawGymEnv([task()], sandbox=pool, prompt_style="compact")
        env.reset(seed=0)
        env.step(bash("mkdir d; cd d; x=1"))
        kill(env._sandbox)
        assert env.step(bash("echo $x; basename $PWD"))[0] == "ok\n1\nd"  # played again, shell state included
        assert env.losses[0]["end"] == "replayed"
        assert env.step(f"{bash('echo hello > ../greeting.txt')}\nTASK_COMPLETE")[4]["passed"]
        assert (pool.lost, pool.starts) == (1, 2)


def test_an_environment_has_the_same_sandbox_of_a_pool_again(backend: Backend) -> None:
    with SandboxPool(backend, size=3) as pool:
        environments = [ClawGymEnv([task()], sandbox=pool) for _ in range(3)]
        seen = []
        for round_of in (environments, environments[::-1]):
            for env in round_of:
                env.reset(seed=0)
                seen.append(env._sandbox)
            for env in round_of:
                env.step("TASK_COMPLETE")
        assert seen[3:] == seen[2::-1] and len(set(map(id, seen))) == 3


def test_a_vector_grows_its_pool(backend: Backend) -> None:
    with SandboxPool(backend, size=1) as pool:
        vector = gym.make_vec("ClawGym-v0", num_envs=3, sandbox=pool)
        vector.reset(seed=3)
        assert pool.size == 3 == len(pool._lent)
        vector.close()
        assert not pool._lent


@pytest.mark.parametrize("mode", [None, "async"])
def test_vector_environments_show_what_a_single_one_shows(backend: Backend, mode: str | None) -> None:
    settings: dict[str, Any] = {"sandbox": str(backend), "prompt_style": "standard"}
    vector = gym.make_vec("ClawGym-v0", num_envs=2, vectorization_mode=mode, **settings)
    singles = [gym.make("ClawGym-v0", **settings) for _ in range(2)]
    observations, _ = vector.reset(seed=3)
    assert tuple(observations) == tuple(env.reset(seed=3 + i)[0] for i, env in enumerate(singles))
    replies = (bash("ls -a"), bash("pwd; echo caf\u00e9 >&2; false"))
    observations, *_ = vector.step(replies)
    assert tuple(observations) == tuple(env.step(reply)[0] for env, reply in zip(singles, replies, strict=True))
    assert "caf\u00e9" in observations[1]
    for env in (vector, *singles):
        env.close()


def test_no_tree_that_a_command_makes_ends_the_episode_without_a_grade(backend: Backend) -> None:
    absent = {"kind": "file_not_exists", "path": "n/secret"}
    given = task(assertions=[absent], budget={"max_turns": 4, "command_seconds": 60.0})
    env = ClawGymEnv([given], sandbox=backend)
    for command in (
        "n=$(printf %0250d 0); for i in {1..120}; do mkdir $n; cd $n; done; touch {1..2500}",
        "t=$(printf %04090d 0); mkdir a; for i in {1..5000}; do ln -s $t a/$i; done; :",
    ):
        env.reset(seed=0)
        assert not env.step(bash(command))[2]
        _, _, terminated, _, info = env.step("TASK_COMPLETE")
        assert terminated and not info["passed"], "absence cannot be seen in a look that is cut short"
    env.close()
