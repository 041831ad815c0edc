"""What episodes wait for, as another thread sees it; also what a run says that stands still."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from agents.policies.scripted import OraclePolicy
from agents.policy import Completion, Request, Sampling
from agents.rollout import Job, RolloutEngine
from agents.rollout.episode import Waiting, WaitsFor
from tests.agents.fakes import FakeEnv, task

GREEDY = Sampling(0.0, 200)
JOBS = [Job(task(id=f"t{n}"), n, 0) for n in range(3)]


def test_episodes_say_what_they_wait_for() -> None:
    seen: dict[WaitsFor, list[Waiting]] = {}
    held, let_go = threading.Semaphore(0), threading.Event()

    class Held(FakeEnv):
        def _lay(self, task: object) -> str:
            seen.setdefault(WaitsFor.TASK, engine.waiting())
            return super()._lay(task)  # type: ignore[arg-type]

        def _exchange(self, reply: str) -> object:  # type: ignore[override]
            held.release()
            assert let_go.wait(30)
            return super()._exchange(reply)

    class Asked(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            seen.setdefault(WaitsFor.REPLY, engine.waiting())
            return super().complete(requests, sampling)

    engine = RolloutEngine(Asked(), Held, slots=3, workers=3)

    def look() -> None:
        for _ in JOBS:
            assert held.acquire(timeout=30)
        seen[WaitsFor.SANDBOX] = engine.waiting()
        let_go.set()

    looking = threading.Thread(target=look)
    looking.start()
    with engine:
        assert engine.waiting() == []
        engine.run(JOBS, GREEDY)
        looking.join()
        assert engine.waiting() == []
    for what, waiting in seen.items():
        assert all(one.what is what and one.turn == 1 and one.seconds >= 0 for one in waiting) or what is WaitsFor.REPLY
    assert {(one.task, one.attempt) for one in seen[WaitsFor.SANDBOX]} == {("t0", 0), ("t1", 1), ("t2", 2)}
    assert any(one.what is WaitsFor.REPLY for one in seen[WaitsFor.REPLY])
