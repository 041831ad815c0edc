"""Nobody waits for anybody: slow commands, slow replies, and what stays the same for all that."""

from __future__ import annotations

import queue
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agents.policies.scripted import OraclePolicy
from agents.policy import (
    Answer,
    Completion,
    FinishReason,
    Policy,
    PolicyError,
    Request,
    Sampling,
    SomeFailed,
    stream_of,
)
from agents.rollout import Job, RolloutEngine, RolloutMode, RolloutState
from agents.t2po import T2PO, T2POConfig
from agents.trajectory import Trajectory
from envs.conversation import Exchange
from tests.agents.fakes import FakeEnv, task
from tests.agents.rollout.test_engine import GREEDY, SAMPLED, assert_alike, content, engine_policy, jobs, play
from tests.agents.scripted import SAMPLING, resampler

LIMIT = 60.0
"""Seconds that a test waits for an event before it fails."""


@pytest.fixture
def mode() -> RolloutMode:
    """Each engine of this file names its mode itself."""
    return RolloutMode.ASYNCHRONOUS


def engine(policy: Policy, make_env: Callable[[], Any] = FakeEnv, **settings: Any) -> RolloutEngine:
    return RolloutEngine(policy, make_env, **{"slots": 4, "workers": 1, "mode": RolloutMode.ASYNCHRONOUS, **settings})


class Remote(OraclePolicy):
    """Answers from threads, as a server does: replies for which `slow` holds come when the event is set.

    Args:
        slow: Of a request.
        faults: Of a request: what fails instead.
    """

    def __init__(
        self,
        slow: Callable[[Request], bool] = lambda request: False,
        faults: Callable[[Request], PolicyError | None] = lambda request: None,
    ) -> None:
        super().__init__()
        self.slow, self.faults, self.go = slow, faults, threading.Event()
        self.closed = 0

    def stream(self, sampling: Sampling, wake: Callable[[], None]) -> Remote.Stream:
        return Remote.Stream(self, sampling, wake)

    class Stream:
        working = False

        def __init__(self, policy: Remote, sampling: Sampling, wake: Callable[[], None]) -> None:
            self._policy, self._sampling, self._wake = policy, sampling, wake
            self._done: queue.SimpleQueue[tuple[str, Answer]] = queue.SimpleQueue()

        def ask(self, requests: Sequence[Request]) -> None:
            for request in requests:
                (completion,) = self._policy.complete([request], self._sampling)
                threading.Thread(target=self._answer, args=(request, completion), daemon=True).start()

        def _answer(self, request: Request, completion: Completion) -> None:
            if self._policy.slow(request):
                assert self._policy.go.wait(LIMIT)
            self._done.put((request.conversation, self._policy.faults(request) or completion))
            self._wake()

        def advance(self) -> list[tuple[str, Answer]]:
            out = []
            while not self._done.empty():
                out.append(self._done.get())
            return out

        def close(self) -> None:
            self._policy.closed += 1


def test_one_waiting_command_holds_nobody_up() -> None:
    """Of 12 episodes on 4 slots and 1 worker, one waits in its command until all others are over."""
    others = threading.Event()

    class Waiting(FakeEnv):
        def _exchange(self, reply: str) -> Exchange:
            if self.task.id == "t0":
                assert others.wait(LIMIT), "the other episodes waited for this one"
            return super()._exchange(reply)

    def told(state: RolloutState) -> None:
        if state.done == 11:
            others.set()

    with engine(OraclePolicy(), Waiting) as playing:
        result = playing.run(jobs(12, 1), GREEDY, on_round=told)
    assert others.is_set() and all(t.passed for t in result.trajectories)


def test_one_slow_reply_holds_nobody_up() -> None:
    policy = Remote(slow=lambda request: request.conversation.startswith("0:"))

    def told(state: RolloutState) -> None:
        if state.done == 11:
            policy.go.set()

    with engine(policy) as playing:
        result = playing.run(jobs(12, 1), GREEDY, on_round=told)
    assert policy.go.is_set() and all(t.passed for t in result.trajectories)
    assert [t.task_id for t in result.trajectories] == [f"t{i}" for i in range(12)]
    assert policy.closed == 1


@pytest.mark.parametrize("remote", [False, True])
def test_a_scripted_policy_plays_the_bytes_of_lockstep(remote: bool) -> None:
    policy = Remote() if remote else OraclePolicy()
    with engine(policy, lambda: FakeEnv(seconds=0.003), slots=5, ahead=2) as playing:
        result = playing.run(jobs(8), GREEDY)
    assert content(result.trajectories) == content(
        play(OraclePolicy(), jobs(8), mode=RolloutMode.LOCKSTEP).trajectories
    )


def test_episodes_are_handed_over_as_they_end() -> None:
    heard: list[str] = []
    policy = Remote(slow=lambda request: request.conversation.startswith("0:"))

    def told(state: RolloutState) -> None:
        if len(heard) == 9:
            policy.go.set()

    with engine(policy) as playing:
        playing.run(jobs(10, 1), GREEDY, on_episode=lambda t: heard.append(t.task_id), on_round=told)
    assert sorted(heard) == [f"t{i}" for i in range(10)] and heard[-1] == "t0"


def test_what_has_ended_is_handed_over_when_somebody_stops_the_call() -> None:
    heard: list[str] = []
    policy = Remote(slow=lambda request: request.conversation.startswith("1:"))

    def stop(state: RolloutState) -> None:
        if state.done == 7:
            raise KeyboardInterrupt

    with engine(policy) as playing:
        with pytest.raises(KeyboardInterrupt):
            playing.run(jobs(8, 1), GREEDY, on_episode=lambda t: heard.append(t.task_id), on_round=stop)
        assert sorted(heard) == [f"t{i}" for i in range(8) if i != 1]
        policy.go.set()
        assert all(t.passed for t in playing.run(jobs(3, 1), GREEDY).trajectories)


def test_a_failed_request_ends_its_own_episode() -> None:
    def faults(request: Request) -> PolicyError | None:
        return PolicyError("cut body") if request.conversation.startswith("2:") else None

    with engine(Remote(faults=faults)) as playing:
        result = playing.run(jobs(6, 1), GREEDY)
    stops = [t.stop_reason for t in result.trajectories]
    assert stops == ["submitted"] * 2 + ["infrastructure"] + ["submitted"] * 3
    assert result.trajectories[2].error == "PolicyError: cut body" and result.trajectories[2].reward is None


@pytest.mark.timeout(60)
def test_closing_ends_a_call_that_waits_for_a_reply() -> None:
    policy, raised = Remote(slow=lambda request: True), list[BaseException]()
    playing = engine(policy)

    def run() -> None:
        try:
            playing.run(jobs(2), GREEDY)
        except BaseException as error:
            raised.append(error)

    player = threading.Thread(target=run)
    player.start()
    while not any(thread.name.endswith("(_answer)") for thread in threading.enumerate()):
        time.sleep(0.001)
    playing.close()
    player.join()
    policy.go.set()
    assert "closed by another thread" in str(raised[0])


def test_no_more_episodes_than_slots_are_under_way() -> None:
    most, lock, now = 0, threading.Lock(), 0

    class Counted(FakeEnv):
        def reset(self, **settings: Any) -> Any:
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            return super().reset(**settings)

        def _outcome(self) -> Any:
            nonlocal now
            with lock:
                now -= 1
            return super()._outcome()

    with engine(Remote(), Counted, slots=3) as playing:
        playing.run(jobs(20, 1), GREEDY)
    assert most == 3


def test_the_shares_of_a_model_add_up_to_its_time() -> None:
    with engine(engine_policy(), lambda: FakeEnv(seconds=0.002)) as playing:
        result = playing.run(jobs(6), SAMPLED)
    shares = sum(turn.model_seconds for t in result.trajectories for turn in t.turns)
    assert shares == pytest.approx(result.timing.model_seconds, rel=0.2)
    timing = result.timing
    assert timing.wall_seconds == pytest.approx(timing.model_seconds + timing.sandbox_seconds + timing.overhead_seconds)
    assert min(timing.model_seconds, timing.sandbox_seconds, timing.overhead_seconds) >= 0


# -- T2PO -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("fault", [False, True])
def test_turns_are_resampled_as_in_lockstep(together: bool, fault: bool) -> None:
    config = T2POConfig(turn_resample=True, turn_resample_eta=0.05, turn_resample_together=together)

    class Faulty(type(engine_policy())):  # type: ignore[misc]
        """Every third further sample fails, whatever else is in its call."""

        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            replies: list[Completion] = super().complete(requests, sampling)
            if not fault:
                return replies
            bad = [not request.first_turn and request.seed % 3 == 0 for request in requests]
            if not any(bad):
                return replies
            raise SomeFailed([PolicyError("x") if b else reply for b, reply in zip(bad, replies, strict=True)])

        stream = None  # calls of `complete`, whatever the class has

    def played(mode: RolloutMode) -> tuple[list[Trajectory], dict[str, Any]]:
        base = engine_policy()
        base.__class__ = Faulty
        wrapper = T2PO(base, config)
        naps = random.Random(1)
        with engine(wrapper, lambda: FakeEnv(seconds=naps.uniform(0, 0.01)), mode=mode) as playing:
            return playing.run(jobs(3), SAMPLED).trajectories, wrapper.meter.state_dict() | {"recent": None}

    (one, counts), (two, others) = played(RolloutMode.LOCKSTEP), played(RolloutMode.ASYNCHRONOUS)
    assert_alike(one, two)
    assert counts == others and counts["triggered"] > 0
    for a, b in zip(one, two, strict=True):
        assert [[c.ids for c in turn.candidates] for turn in a.turns] == [
            [c.ids for c in turn.candidates] for turn in b.turns
        ]
        assert [turn.seed for turn in a.turns] == [turn.seed for turn in b.turns]


def test_what_the_band_is_calibrated_to_does_not_depend_on_a_clock() -> None:
    """Conversations answer in another order each time; the warm-up sees a part of their changes."""

    def calibrated(order: Sequence[int]) -> float:
        script = {f"{i}": [0.0, 0.01 * (1 + i * i)] for i in range(20)}
        wrapper, _ = resampler(script, turn_resample_eta=None, turn_resample_warmup=8, turn_resample_rate=0.5)
        stream = wrapper.stream(SAMPLING, lambda: None)
        for turn in range(2):
            for i in order:
                stream.ask([Request(f"{i}", [1, 2], seed=100 * i + turn, first_turn=turn == 0)])
                assert [name for name, _ in stream.advance()] == [f"{i}"]
        assert wrapper.eta is None  # nothing changes in the middle
        stream.close()
        assert wrapper.eta is not None
        return wrapper.eta

    forward = calibrated(range(20))
    assert calibrated(range(19, -1, -1)) == calibrated(random.Random(3).sample(range(20), 20)) == forward


# -- the contract of a policy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [RolloutMode.LOCKSTEP, RolloutMode.ASYNCHRONOUS])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ids": []}, "ids: there are none"),
        ({"logprobs": [0.0]}, r"logprobs: 1 entries for \d+ ids"),
        ({"forced": None}, r"forced: nothing for \d+ ids"),
        ({"finish": "stop"}, "finish: 'stop' is no FinishReason"),
        ({"finish": FinishReason.STOP, "ids": [65, 66], "forced": [False] * 2}, "the last id, 66, ends no turn"),
    ],
)
def test_a_reply_that_breaks_the_contract_ends_its_episode_and_names_policy_and_field(
    change: dict[str, Any], said: str, mode: RolloutMode
) -> None:
    class Sloppy(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            replies = super().complete(requests, sampling)
            for request, reply in zip(requests, replies, strict=True):
                if request.conversation.startswith("1:"):
                    if "ids" in change:
                        reply.logprobs = reply.entropies = reply.max_logprobs = None
                    for name, value in change.items():
                        setattr(reply, name, value)
            return replies

    with engine(Sloppy(), mode=mode) as playing:
        first, second, third = playing.run(jobs(3, 1), GREEDY).trajectories
    assert first.passed and third.passed and second.stop_reason == "infrastructure" and second.reward is None
    assert second.error is not None and second.error.startswith("PolicyError: Sloppy broke the contract")
    assert re.search(said, second.error)


def test_numbers_that_are_none_break_the_contract() -> None:
    class Wrong(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            replies = super().complete(requests, sampling)
            for reply in replies:
                reply.logprobs = [float("nan")] * len(reply.ids)
            return replies

    (lost,) = play(Wrong(), [Job(task(), 0, 0)]).trajectories
    assert "logprobs: one of them is not a finite number" in (lost.error or "")


def test_a_policy_without_a_stream_is_asked_with_whatever_waits() -> None:
    stream = stream_of(OraclePolicy(), GREEDY, lambda: None)
    assert not stream.working and stream.advance() == []
