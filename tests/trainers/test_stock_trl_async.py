"""Our tasks in TRL's asynchronous trainer: its own rollout loop, with an endpoint that says what the test wrote.

The loop is TRL's, from the pickled factory to the scored samples; only the request for one reply is replaced. The
process around it, vLLM, and the trainer that consumes the samples are not run here.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import math
import pickle
import queue
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from accelerate.state import PartialState
from trl.experimental.async_grpo import async_rollout_worker as trl_worker

from tests.agents.speakers import trl_template
from tests.agents.toys import tokenizer
from tests.envs.fakes import FakeSandboxes, task
from tests.trainers.test_stock_trl import call
from trainers.stock_trl import RewardedShellTask, ShellTasks, episode_reward

pytestmark = pytest.mark.filterwarnings("ignore")

DONE = "Done.<|im_end|>"
SOLVES = [call("bash", command="echo hello > greeting.txt"), call("submit"), DONE]
IDLES = [call("bash", command="true"), call("submit"), DONE]
STOPS = [call("bash", command="echo hello >> greeting.txt"), DONE]  # and never submits
BREAKS = [call("bash", command="echo hello | tee greeting.txt"), DONE]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> FakeSandboxes:
    fake = FakeSandboxes()
    monkeypatch.setattr("envs.workplace.open_sandbox", fake)
    return fake


class Loop(trl_worker._AsyncRolloutLoop):
    """TRL's loop; each rollout says the next script, which its first reply tells from the others."""

    scripts: list[list[str]] = []

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        text = self.tokenizer.decode(prompt_ids)
        said = [script for script in self.scripts if script[0].removesuffix("<|im_end|>") in text]
        if said:
            script, turn = said[0], text.count("<tool_response>")
        else:
            self.begun = getattr(self, "begun", -1) + 1
            script, turn = self.scripts[self.begun % len(self.scripts)], 0
        await asyncio.sleep(0)
        ids = self.tokenizer._tokenizer.encode(script[turn], add_special_tokens=False).ids
        return ids, [-0.5] * len(ids)


def played(kwargs: dict[str, Any], samples: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the loop has scored, with what the worker would send to its process."""
    unused = SimpleNamespace(ClientSession=lambda **_: contextlib.nullcontext(), TCPConnector=lambda **_: None)
    monkeypatch.setattr(trl_worker, "aiohttp", unused, raising=False)  # an optional dependency of TRL's
    PartialState()
    found: queue.Queue[Any] = queue.Queue()
    loop = Loop(
        **pickle.loads(pickle.dumps(kwargs)), rollout_buffer=found, model_version_value=SimpleNamespace(value=0),
        heartbeat_value=SimpleNamespace(value=0.0), failed_event=threading.Event(),
        exception_info_queue=queue.Queue(), metrics_queue=queue.Queue(),
    )  # fmt: skip
    taken: list[Any] = []

    async def take() -> None:
        while len(taken) < samples and not loop._failed_event.is_set():
            with contextlib.suppress(queue.Empty):
                taken.append(found.get_nowait())
            await asyncio.sleep(0.01)
        loop._stop_event.set()

    loop._loop.create_task(take())
    loop.run()
    for environment in loop._environment_pool[None]:
        environment._env.close()
    return taken


def worker_kwargs(tasks: ShellTasks, **more: Any) -> dict[str, Any]:
    """What `AsyncGRPOTrainer` gives its worker."""
    tokens = copy.deepcopy(tokenizer(trl_template("qwen3")))
    return {
        "model_name": "toy", "dataset": tasks.dataset(), "reward_funcs": [], "processing_class": tokens,
        "eos_token_ids": [tokens.eos_token_id], "environment_factory": tasks, "num_generations": 4,
        "max_inflight_tasks": 4, "max_tokens": 100, **more,
    }  # fmt: skip


def test_trls_own_loop_plays_and_scores(opened: FakeSandboxes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Loop, "scripts", [SOLVES, IDLES, STOPS, BREAKS])
    opened.fail_next = ["", "", "", "run", "open"]  # the machinery fails in the fourth, and for its canary
    tasks = ShellTasks([task()], reward="binary", owns_reward=True)
    samples = played(worker_kwargs(tasks), 4, monkeypatch)
    assert not tasks._made, "the environments are those of the process that plays"
    rewards = [sample.metrics["rewards/RewardedShellTask"] for sample in samples]
    assert sorted(rewards, key=str) == pytest.approx([0.0, 1.0, 1.0, math.nan], nan_ok=True)
    graded = np.array([1.0, 0.0, 1.0])
    for sample, reward in zip(samples, rewards, strict=True):
        wanted = 0.0 if math.isnan(reward) else (reward - graded.mean()) / graded.std()
        assert sample.advantage == pytest.approx(wanted, abs=1e-6)
        assert sample.completion_mask.sum() > 0 and len(sample.input_ids) == len(sample.completion_mask)
        assert "Write hello into greeting.txt" in sample.prompt[-1]["content"]
    assert all(sandbox.closed for sandbox in opened.all)


def test_without_owns_reward_the_loop_refuses_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = ShellTasks([task()])
    with pytest.raises(ValueError, match="No reward source provided"):
        played(worker_kwargs(tasks), 1, monkeypatch)
    with pytest.raises(ValueError, match=r"ShellTasks\(..., owns_reward=True\), and leave reward_funcs out"):
        episode_reward(prompts=[], completions=[], completion_ids=[], task_id=["first"])


def test_a_reward_is_not_counted_twice(opened: FakeSandboxes) -> None:
    with ShellTasks([task()], reward="binary", owns_reward=True) as tasks:
        environment = tasks()
        assert isinstance(environment, RewardedShellTask)
        environment.reset(task_id="first")
        environment.bash("echo hello > greeting.txt")
        with pytest.raises(ValueError, match="would count each reward twice: leave one of them out"):
            episode_reward(environments=[environment])
        assert environment.get_reward() == 1.0 == environment.get_reward()


def test_what_goes_to_another_process(opened: FakeSandboxes) -> None:
    with ShellTasks([task()], max_turns=2, owns_reward=True) as tasks:
        tasks().reset(task_id="first")
        other = pickle.loads(pickle.dumps(tasks))
        assert other._made == [] and other._tasks == tasks._tasks and isinstance(other(), RewardedShellTask)
        assert other.dataset()[0] == tasks.dataset()[0]
        other.close()
        assert not opened.last.closed
    with pytest.raises(TypeError, match="name a backend"):
        pickle.dumps(ShellTasks([task()], sandbox=opened.last))
