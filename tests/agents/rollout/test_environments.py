"""Tasks laid out before a slot is free for them: nothing but the time changes."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from gymnasium import wrappers

from agents.policies.scripted import OraclePolicy
from agents.policy import Completion, Request, Sampling
from agents.rollout import Job, RolloutEngine, RolloutMode, RolloutResult, environments
from agents.rollout.environments import Patient
from agents.rollout.episode import Step
from agents.trajectory import Trajectory
from envs.conversation import Exchange
from tasks.task import Task
from tests.agents.fakes import FakeEnv, task
from tests.agents.rollout.test_engine import (
    GREEDY,
    SAMPLED,
    assert_alike,
    content,
    differing,
    engine_policy,
    jobs,
    play,
)


@pytest.mark.parametrize("policy", ["oracle", "model"])
def test_neither_threads_nor_their_speed_nor_what_is_laid_out_ahead_changes_a_byte(
    policy: str, mode: RolloutMode
) -> None:
    def run(number: int, workers: int, ahead: int, prepare: bool) -> list[Trajectory]:
        acting = OraclePolicy() if policy == "oracle" else engine_policy()
        dice = random.Random(number)  # other naps in each run

        class Napping(FakeEnv):
            def _lay(self, task: Task) -> str:
                time.sleep(dice.uniform(0, 0.01))
                return super()._lay(task)

            def _exchange(self, reply: str) -> Exchange:
                time.sleep(dice.uniform(0, 0.01))
                return super()._exchange(reply)

        ended: list[Trajectory] = []
        with RolloutEngine(acting, Napping, slots=4, workers=workers, ahead=ahead) as engine:
            if prepare:
                engine.prepare(jobs(5))
            result = engine.run(jobs(5), GREEDY if policy == "oracle" else SAMPLED, on_episode=ended.append)
        return result.trajectories + (ended if mode is RolloutMode.LOCKSTEP else [])

    base = run(0, 1, 0, False)
    settings = [(2, 0, False), (8, 0, True), (1, 4, False), (2, 4, True), (8, 4, False), (8, 30, True)]
    few = settings if policy == "oracle" else settings[2:5]  # a model takes seconds
    for number, (workers, ahead, prepare) in enumerate(few, start=1):
        played = run(number, workers, ahead, prepare)
        if policy == "oracle" or mode is RolloutMode.LOCKSTEP:
            assert content(played) == content(base)
        else:  # what shares a batch depends on the clock, and float sums on the batch
            assert_alike(played, base)


class Ordered(FakeEnv):
    """Notes the tasks in the order in which they are laid out."""

    laid: ClassVar[list[str]] = []

    def reset(self, **settings: Any) -> Any:
        with FakeEnv.lock:
            Ordered.laid.append(settings["options"]["task"].id)
        return super().reset(**settings)


def test_the_next_tasks_are_laid_out_while_the_policy_decodes() -> None:
    Ordered.laid = []
    laid: list[int] = []

    class Watching(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            limit = time.monotonic() + 30
            while len(Ordered.laid) < 5 and time.monotonic() < limit:
                time.sleep(0.001)
            laid.append(len(Ordered.laid))
            return super().complete(requests, sampling)

    play(Watching(), jobs(8, 1), slots=2, ahead=3, make_env=Ordered)
    assert laid[0] == 5  # two play, three wait
    assert sorted(Ordered.laid) == [f"t{i}" for i in range(8)]  # each once, although some waited


def test_prepared_tasks_are_taken_over_by_the_same_jobs_only() -> None:
    Ordered.laid = []
    with RolloutEngine(OraclePolicy(), Ordered, slots=2, workers=1, ahead=1) as engine:
        engine.prepare(jobs(4, 1))
        engine.prepare(jobs(4, 1))  # again changes nothing
        assert all(t.passed for t in engine.run(jobs(4, 1), GREEDY).trajectories)
        assert len(Ordered.laid) == 4
        engine.prepare(jobs(4, 1)[2:])
        assert all(t.passed for t in engine.run(jobs(4, 1), GREEDY).trajectories)
        assert len(Ordered.laid) == 4 + 2 + 4
        engine.prepare(jobs(4, 1))  # takes every environment, and gives back what the other part needs
        first, second = engine.run_together([(jobs(4, 1), GREEDY), (jobs(2, 1), GREEDY)])
        assert [t.passed for t in first.trajectories + second.trajectories] == [True] * 6
        engine.prepare(jobs(4, 1))
    engine.close()


def _changed(job: Job, **changes: Any) -> Job:
    return Job(task(**{**job.task.model_dump(), "schema_version": 2, **changes}), job.attempt, job.seed)


def test_tasks_with_services_do_not_wait_in_line() -> None:
    service = {"name": "web", "command": "sleep 60", "ready": "true"}
    work = [_changed(job, services=[service]) if i in (0, 2, 3) else job for i, job in enumerate(jobs(6, 1))]
    for slots, ahead in ((1, 2), (2, 1), (3, 4)):
        Ordered.laid = []
        with RolloutEngine(OraclePolicy(), Ordered, slots=slots, workers=2, ahead=ahead) as engine:
            engine.prepare(work)
            engine.prepare(work)
            time.sleep(0.05)
            assert set(Ordered.laid) <= {"t1", "t4", "t5"}
            assert all(episode.passed for episode in engine.run(work, GREEDY).trajectories)
            assert sorted(Ordered.laid) == [f"t{i}" for i in range(6)]
            engine.prepare(work)
            parts = [(work, GREEDY), (work[2:], GREEDY)][:slots]
            assert all(episode.passed for result in engine.run_together(parts) for episode in result.trajectories)


@pytest.mark.parametrize("make", [Ordered, lambda: wrappers.TimeLimit(Ordered(), 4)], ids=["plain", "wrapped"])
def test_the_time_of_an_episode_begins_when_its_turn_comes(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Ordered.laid, now = [], [100.0]
    monkeypatch.setattr("envs.conversation.time", SimpleNamespace(monotonic=lambda: now[0]))

    class Slow(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            now[0] += 4.0  # a reply
            return super().complete(requests, sampling)

    work = [_changed(jobs(2, 1)[1], id=name, budget={"max_turns": 8, "episode_seconds": 10.0}) for name in "abc"]
    with RolloutEngine(Slow(), make, slots=1, workers=1, ahead=2) as engine:
        engine.prepare(work)
        limit = time.monotonic() + 30
        while len(Ordered.laid) < 3 and time.monotonic() < limit:
            time.sleep(0.001)
        episodes = engine.run(work, GREEDY).trajectories
    assert [(len(e.turns), e.stop_reason) for e in episodes] == [(3, "submitted")] * 3


@pytest.mark.parametrize("count", [1, 2])
def test_a_failure_while_laying_out_ahead_follows_the_same_rule(count: int) -> None:
    class Failing(FakeEnv):
        def _lay(self, task: Task) -> str:
            if task.id == "t3":
                self._break("t3")
            return super()._lay(task)

    def run(ahead: int) -> RolloutResult:
        failures = Counter({"t3": count})
        make_env = lambda: Failing(failures=failures)  # noqa: E731
        return play(OraclePolicy(), jobs(5, 1), slots=1, ahead=ahead, make_env=make_env)

    with_ahead, without = run(4), run(0)
    assert differing(with_ahead.trajectories, without.trajectories) == []
    assert with_ahead.retries == without.retries == 1
    stops = [t.stop_reason for t in with_ahead.trajectories]
    assert stops == ["submitted"] * 3 + ["infrastructure" if count == 2 else "submitted"] + ["submitted"]


def test_no_more_environments_than_slots_and_those_ahead() -> None:
    made: list[FakeEnv] = []

    def make() -> FakeEnv:
        made.append(FakeEnv())
        return made[-1]

    play(OraclePolicy(), jobs(10), slots=3, ahead=2, make_env=make)
    assert len(made) == 5


# -- steps of asynchronous rollouts ----------------------------------------------------------------------------------


def done() -> Step:
    return Step("", 0.0, False, {}, 0.0)


def test_no_more_steps_than_workers_have_work_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "YOUNG_SECONDS", 1000.0)
    most, now, lock = 0, 0, threading.Lock()

    def work() -> Step:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1
        return done()

    pool = Patient(threads=8, at_once=2)
    assert [future.result(60) for future in [pool.submit(work) for _ in range(40)]]
    pool.shutdown()
    assert most == 2


def test_a_step_that_waits_makes_room_and_what_has_not_begun_can_be_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "YOUNG_SECONDS", 0.0)
    go, pool = threading.Event(), Patient(threads=2, at_once=1)

    def wait() -> Step:
        assert go.wait(60)
        return done()

    first, second = pool.submit(wait), pool.submit(done)
    assert second.result(60) and not first.done()
    monkeypatch.setattr(environments, "YOUNG_SECONDS", 1000.0)
    third = pool.submit(wait)
    pool.shutdown(wait=False, cancel_futures=True)
    go.set()
    assert first.result(60) and third.cancelled()


def test_what_a_step_raises_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = Patient(threads=1, at_once=1)

    def broken() -> Step:
        raise ZeroDivisionError("defect")

    assert isinstance(pool.submit(broken).exception(60), ZeroDivisionError)
    assert pool.submit(done).result(60)
    pool.shutdown()
