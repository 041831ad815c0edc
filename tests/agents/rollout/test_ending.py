"""How an engine ends: what cannot be closed, who else closes it, and what a failing policy leaves."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import pytest

from agents.policies.scripted import OraclePolicy
from agents.policy import Completion, PolicyError, Request, Sampling
from agents.rollout import Job, RolloutEngine
from agents.t2po import T2PO, T2POConfig
from envs.clawgym import ClawGymEnv
from sandboxes import SandboxPool, SandboxUnavailable
from tests.agents.fakes import FakeEnv, task
from tests.agents.rollout.test_engine import engine_policy

GREEDY = Sampling(0.0, 200)
JOBS = [Job(task(id=f"t{n}"), 0, 0) for n in range(6)]


class Stubborn(FakeEnv):
    """The first one cannot be closed."""

    made: list[Stubborn] = []
    closed = False

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        Stubborn.made.append(self)

    def close(self) -> None:
        if self is Stubborn.made[0]:
            raise OSError("cannot be closed")
        self.closed = True
        super().close()


@pytest.mark.parametrize("fails", [False, True])
def test_what_cannot_be_closed_leaves_nothing_else_open(fails: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Stubborn, "made", [])
    engine = RolloutEngine(Down("t4") if fails else OraclePolicy(), Stubborn, slots=6, workers=1)
    if fails:  # the failure is what is raised, not what went wrong in cleaning up
        with pytest.raises(PolicyError, match="down") as raised:
            engine.run(JOBS, GREEDY)
        assert "cannot be closed" in str(raised.value.__notes__)
    else:
        engine.run(JOBS, GREEDY)
        with pytest.raises(OSError, match="cannot be closed"):
            engine.close()
    assert [env.closed for env in Stubborn.made[1:]] == [True] * (len(Stubborn.made) - 1) != []


class Down(OraclePolicy):
    """Fails when a task begins."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def begin(self, conversation: str, task: Any) -> None:
        if task.id == self.name:
            raise PolicyError("down")
        super().begin(conversation, task)


def test_an_episode_that_cannot_begin_is_handed_over_with_the_others() -> None:
    heard: list[tuple[str, str]] = []
    engine = RolloutEngine(Down("t1"), FakeEnv, slots=3, workers=1)
    with pytest.raises(PolicyError):
        engine.run(JOBS, GREEDY, on_episode=lambda t: heard.append((t.task_id, t.stop_reason)))
    assert heard == [("t0", "infrastructure"), ("t1", "infrastructure")]


def test_closing_from_another_thread_is_said_by_the_run() -> None:
    class Closed(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            closer = threading.Thread(target=engine.close)
            closer.start()
            closer.join()
            return super().complete(requests, sampling)

    made: list[FakeEnv] = []

    def make() -> FakeEnv:
        made.append(FakeEnv())
        return made[-1]

    engine = RolloutEngine(Closed(), make, slots=2, workers=2)
    with pytest.raises(RuntimeError, match="closed by another thread while it played"):
        engine.run(JOBS, GREEDY)
    assert len(made) == 2
    engine.policy = OraclePolicy()
    assert len(engine.run(JOBS, GREEDY).trajectories) == 6  # a later run is as good as the first
    engine.close()


def test_ctrl_c_while_tasks_are_dropped_loses_no_environment() -> None:
    class Interrupted:
        """Stands for a task that is being laid out when Ctrl-C comes."""

        def exception(self) -> None:
            raise KeyboardInterrupt

    with RolloutEngine(OraclePolicy(), FakeEnv, slots=2, workers=2, ahead=1) as engine:
        engine.prepare(JOBS)
        line = engine._environments._lines[0]
        for at, opening in enumerate(line):
            line[at] = type(opening)(opening.job, opening.env, Interrupted())  # type: ignore[arg-type]
        with pytest.raises(KeyboardInterrupt):
            engine.prepare(JOBS[3:])
        assert [t.stop_reason for t in engine.run(JOBS, GREEDY).trajectories] == ["submitted"] * 6


def one_sandbox() -> SandboxPool:
    try:
        return SandboxPool("auto", 1)
    except SandboxUnavailable as error:
        pytest.skip(str(error))


@pytest.mark.timeout(60)
def test_closing_ends_a_call_that_waits_for_a_sandbox() -> None:
    """The pool has one sandbox, and somebody else has it."""
    with one_sandbox() as pool, pool.lease():
        engine = RolloutEngine(OraclePolicy(), lambda: ClawGymEnv((), sandbox=pool), slots=1, workers=1)
        raised: list[BaseException] = []

        def play() -> None:
            try:
                engine.run(JOBS[:1], GREEDY)
            except BaseException as error:
                raised.append(error)

        player = threading.Thread(target=play)
        player.start()
        while not pool._waiting:
            time.sleep(0.001)
        engine.close()
        player.join()
        assert "closed by another thread" in str(raised[0])


def test_the_cap_of_a_wrapper_decides_what_fits_into_the_context() -> None:
    job, played = Job(task(), 0, 7), []
    policy = engine_policy()
    with RolloutEngine(policy, FakeEnv, slots=1, workers=1) as engine:
        start = len(engine.run([job], Sampling(1.0, 3)).trajectories[0].prompt_ids)
    for acting, cap in ((policy, 3), (T2PO(policy, T2POConfig(max_turn_tokens=3)), 60)):
        with RolloutEngine(acting, FakeEnv, slots=1, workers=1, max_context=start + 60) as engine:
            played.append(engine.run([job], Sampling(1.0, cap)).trajectories[0])
    bare, wrapped = ([(turn.ids, turn.seed, turn.max_tokens) for turn in episode.turns] for episode in played)
    assert bare == wrapped and len(bare) > 1


def test_a_resampled_turn_records_the_seed_that_gave_it() -> None:
    with RolloutEngine(
        T2PO(engine_policy(), T2POConfig(turn_resample=True, turn_resample_eta=50.0)), FakeEnv, slots=1, workers=1
    ) as engine:
        episode = engine.run([Job(task(), 0, 7)], Sampling(1.0, 12)).trajectories[0]
    context, checked = list(episode.prompt_ids), 0
    for turn in episode.turns:
        context += turn.context_ids
        assert turn.seed is not None
        request = Request("again", list(context), turn.seed, turn.max_tokens, first_turn=True)
        assert engine_policy().complete([request], Sampling(1.0, 12))[0].ids == turn.ids
        checked += bool(turn.candidates)
        context += turn.ids
    assert checked > 0
