from __future__ import annotations

import queue

import pytest

from agents.rollout.episode import Waiting, WaitsFor
from trainers.run.standstill import STILL_SECONDS, Standstill, Where, still_text

WAITING = (
    Waiting("sort", 2, 4, WaitsFor.SANDBOX, 610.0),
    Waiting("copy", 0, 1, WaitsFor.SANDBOX, 700.4),
    Waiting("move", 1, 2, WaitsFor.REPLY, 650.0),
)


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (
            Where("held-out", "docker", WAITING),
            "step 13 has stood still for 12 minutes, in held-out: 1 episode for a reply of the policy (longest: move "
            "attempt 1, turn 2, 650 s); 2 episodes for a command or a grade (docker) (longest: copy attempt 0, turn 1, "
            "700 s)",
        ),
        (
            Where("rollout", "docker", ()),
            "step 13 has stood still for 12 minutes: no episode is under way here, so it learns, writes, or waits for "
            "other processes",
        ),
    ],
)
def test_the_line_says_phase_and_who_waits_longest(where: Where, line: str) -> None:
    assert still_text(13, 700.4, where) == line


def test_it_is_said_again_and_again_and_not_where_things_move() -> None:
    said: queue.Queue[str] = queue.Queue()
    watch = Standstill(said.put, lambda: 3, lambda: Where("rollout", "local", WAITING), seconds=0.02)
    watch.start()
    lines = [said.get(timeout=30) for _ in range(2)]
    watch.stop()
    watch.stop()
    assert all(line.startswith("step 3 has stood still") for line in lines) and STILL_SECONDS == 600
    while not said.empty():
        said.get()
    calm = Standstill(said.put, lambda: 3, lambda: Where("rollout", "local", ()), seconds=60)
    calm.start()
    calm.moved()
    calm.stop()
    assert said.empty()
