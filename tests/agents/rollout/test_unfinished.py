"""A call that returns while some of its episodes go on, and the next one, which takes them up where they are."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agents.policies.scripted import OraclePolicy
from agents.policy import Completion, PolicyError, Request, Sampling
from agents.rollout import Job, RolloutEngine, RolloutMode
from agents.trajectory import Trajectory
from envs.conversation import Exchange
from sandboxes.sandbox import SandboxError
from tests.agents.fakes import FakeEnv
from tests.agents.rollout.test_asynchronous import LIMIT, Remote, engine
from tests.agents.rollout.test_engine import GREEDY, content, jobs, play

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def mode() -> RolloutMode:
    """Each engine of this file names its mode itself."""
    return RolloutMode.ASYNCHRONOUS


class Gates:
    """Environments whose commands wait, for the tasks that are named, until the gate opens or they are closed."""

    def __init__(self, *names: str) -> None:
        self.open, self.waiting, self.aborted = threading.Event(), threading.Semaphore(0), 0
        self.made, self.closed, self.steps = 0, 0, list[tuple[str, str]]()
        gates, lock = self, threading.Lock()

        class Gated(FakeEnv):
            def __init__(self) -> None:
                super().__init__()
                gates.made += 1

            def _exchange(self, reply: str) -> Exchange:
                with lock:
                    gates.steps.append((self.task.id, self._said))
                if self.task.id in names:
                    gates.waiting.release()
                    assert gates.open.wait(LIMIT), "nobody opened the gate"
                    if gates.aborted:
                        raise SandboxError("closed")
                return super()._exchange(reply)

            def abort(self) -> None:
                gates.aborted += 1
                gates.open.set()

            def close(self) -> None:
                gates.closed += 1
                super().close()

        self.env: Callable[[], Any] = Gated


def ended(count: int) -> Callable[[Sequence[Trajectory | None]], bool]:
    return lambda done: sum(trajectory is not None for trajectory in done) >= count


class Noting(OraclePolicy):
    """Keeps the conversations that it has not been told to forget, and whose they are."""

    def __init__(self) -> None:
        super().__init__()
        self.open: set[str] = set()
        self.asked: list[str] = []

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        self.open |= {request.conversation for request in requests}
        self.asked += [request.conversation for request in requests]
        return super().complete(requests, sampling)

    def forget(self, conversations: Sequence[str]) -> None:
        self.open -= set(conversations)
        super().forget(conversations)


def test_an_episode_that_waits_goes_on_in_the_next_call_and_is_the_same() -> None:
    """Of 6 jobs the second one's command waits; the next call has it first, and two jobs of its own names."""
    gates, policy, work = Gates("t1"), Noting(), jobs(6, 1)
    more = jobs(2, 1)
    with engine(policy, gates.env) as playing:
        first = playing.run(work, GREEDY, enough=ended(5))
        assert first.unfinished == [1] and not gates.open.is_set()
        assert [t.task_id for t in first.trajectories] == ["t0", "t2", "t3", "t4", "t5"]
        assert len(policy.open) == 1
        gates.open.set()
        second = playing.run([work[1], *more[::-1]], GREEDY)  # in a place where a job of its task and attempt stood
    assert second.unfinished == [] and [t.task_id for t in second.trajectories] == ["t1", "t1", "t0"]
    assert sum(step == ("t1", "") for step in gates.steps) == 2, "it was taken up, not begun anew"
    assert not policy.open and gates.aborted == 0 and gates.closed == gates.made <= 4
    whole = play(OraclePolicy(), work, make_env=gates.env, mode=RolloutMode.LOCKSTEP).trajectories
    again = [first.trajectories[0], second.trajectories[0], *first.trajectories[1:]]
    assert content(again) == content(whole) and content(second.trajectories[:0:-1]) == content(whole[:2])


def test_jobs_that_had_not_begun_are_unfinished_too() -> None:
    gates, work = Gates("t0"), jobs(6, 1)
    with engine(OraclePolicy(), gates.env, slots=2) as playing:
        first = playing.run(work, GREEDY, enough=ended(2))
        assert [t.task_id for t in first.trajectories] == ["t1", "t2"] and first.unfinished == [0, 3, 4, 5]
        gates.open.set()
        second = playing.run([work[place] for place in first.unfinished], GREEDY)
    played = [second.trajectories[0], *first.trajectories, *second.trajectories[1:]]
    assert content(played) == content(play(OraclePolicy(), work, make_env=gates.env).trajectories)


def test_a_reply_under_way_is_waited_for_and_its_command_is_not() -> None:
    policy, gates, work = Remote(slow=lambda request: request.conversation.startswith("0:")), Gates("t0"), jobs(3, 1)

    def enough(done: Sequence[Trajectory | None]) -> bool:
        if ended(2)(done):
            threading.Timer(0.05, policy.go.set).start()
        return ended(2)(done)

    with engine(policy, gates.env) as playing:
        result = playing.run(work, GREEDY, enough=enough)
        assert policy.go.is_set() and result.unfinished == [0] and policy.closed == 1
        assert gates.waiting.acquire(timeout=LIMIT), "the reply that came was not played"
        gates.open.set()
        (last,) = playing.run([work[0]], GREEDY).trajectories
    assert last.passed


def test_a_command_that_fails_between_two_calls_starts_over_in_the_second() -> None:
    class Fails(FakeEnv):
        broken = 0

        def _exchange(self, reply: str) -> Exchange:
            if self.task.id == "t0" and not Fails.broken:
                Fails.broken = 1
                assert go.wait(LIMIT)
                raise SandboxError("gone")
            return super()._exchange(reply)

    go, work = threading.Event(), jobs(2, 1)
    with engine(OraclePolicy(), Fails) as playing:
        assert playing.run(work, GREEDY, enough=ended(1)).unfinished == [0]
        go.set()
        result = playing.run(work[:1], GREEDY)
    assert result.retries == 1 and result.trajectories[0].passed


def test_nothing_else_is_played_while_episodes_are_unfinished() -> None:
    gates, work = Gates("t1"), jobs(3, 1)
    with engine(OraclePolicy(), gates.env) as playing:
        playing.run(work, GREEDY, enough=ended(2))
        for others in ([work[0]], jobs(3, 1), []):
            with pytest.raises(ValueError, match="1 episodes of the call before are unfinished"):
                playing.run(others, GREEDY)
        gates.open.set()
        assert playing.run([work[1], work[0]], GREEDY).unfinished == []


def test_close_ends_commands_that_went_on_alone() -> None:
    gates, policy, work = Gates("t1", "t2"), Noting(), jobs(3, 1)
    playing = engine(policy, gates.env)
    playing.run(work, GREEDY, enough=ended(1))
    playing.close()
    assert gates.aborted == 2 and gates.closed == gates.made == 3 and not policy.open
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("turngym-env")]
    assert len(playing.run(work, GREEDY).trajectories) == 3, "a closed engine plays anew"
    playing.close()


def test_an_error_in_the_next_call_ends_them_too() -> None:
    gates, policy, work = Gates("t1"), Noting(), jobs(3, 1)

    def defect(done: Sequence[Trajectory | None]) -> bool:
        raise KeyboardInterrupt

    playing = engine(policy, gates.env)
    playing.run(work, GREEDY, enough=ended(2))
    with pytest.raises(KeyboardInterrupt):
        playing.run([work[1]], GREEDY, enough=defect)
    assert gates.aborted == 1 and gates.closed == gates.made and not policy.open
    assert playing.run(jobs(1), GREEDY).unfinished == []
    playing.close()


def test_a_policy_that_is_gone_before_they_go_on_forgets_them(monkeypatch: pytest.MonkeyPatch) -> None:
    gates, policy, work = Gates("t1"), Noting(), jobs(3, 1)

    def gone(*_: Any) -> None:
        raise PolicyError("gone")

    with engine(policy, gates.env) as playing:
        playing.run(work, GREEDY, enough=ended(2))
        monkeypatch.setattr("agents.rollout.asynchronous.stream_of", gone)
        with pytest.raises(PolicyError, match="gone"):
            playing.run([work[1]], GREEDY)
        assert gates.aborted == 1 and gates.closed == gates.made and not policy.open


def test_lockstep_refuses() -> None:
    playing = RolloutEngine(OraclePolicy(), FakeEnv, slots=2, workers=1, mode=RolloutMode.LOCKSTEP)
    with playing, pytest.raises(ValueError, match="in lockstep no episode goes on alone"):
        playing.run(list[Job](), GREEDY, enough=ended(0))
