from __future__ import annotations

import io

import pytest
from rich.console import Console

from agents.policies.scripted import OraclePolicy
from agents.policy import Sampling
from agents.rollout import RolloutEngine, progress
from agents.rollout.episode import Job
from agents.rollout.progress import RolloutProgress, RolloutState, describe
from tests.agents.fakes import FakeEnv, task

STATE = RolloutState(done=3, total=8, turns=12, tokens=600, seconds=2.0, infrastructure=1, retries=2)


def console(terminal: bool) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, force_terminal=terminal, width=140, highlight=False, color_system=None), out


def play(shown: RolloutProgress) -> None:
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=2, workers=1) as engine:
        engine.run([Job(task(), k, 0) for k in range(4)], Sampling(0.0, 200), on_round=shown.show)


def test_a_line_has_counts_rate_and_failures() -> None:
    assert describe("held-out", STATE) == (
        "held-out: 3/8 episodes  12 turns  300 tokens/s  2 started over  infrastructure 1"
    )
    calm = RolloutState(0, 8, 0, 0, 0.0)
    assert describe("rollout", calm) == "rollout: 0/8 episodes  0 turns  0 tokens/s"


def test_one_bar_on_a_terminal_that_goes_away() -> None:
    target, out = console(True)
    with RolloutProgress("[sampled]", console=target) as shown:
        play(shown)
        assert shown._bar is not None
        assert (shown._bar.tasks[0].completed, shown._bar.tasks[0].total) == (4, 4)
        assert len(shown._bar.tasks) == 1
    text = out.getvalue()
    assert "[sampled]" in text and "12 turns" in text


def test_a_short_rollout_says_nothing_without_a_terminal() -> None:
    target, out = console(False)
    with RolloutProgress(console=target) as shown:
        play(shown)
    assert out.getvalue() == ""


def test_a_long_one_says_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    target, out = console(False)
    with RolloutProgress("sampled", console=target) as shown:
        for second in range(0, 181, 10):
            clock[0] = float(second)
            shown.show(STATE)
    assert out.getvalue().splitlines() == [describe("sampled", STATE)] * 3
