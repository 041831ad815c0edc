"""Sandboxes that are lost while a rollout plays: what the trajectories say about them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agents.policies.scripted import OraclePolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine, RolloutResult
from envs.clawgym import ClawGymEnv
from tasks.task import Task
from tests.envs.fakes import FakeSandboxes, task

WRITE = "echo hello > greeting.txt"


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[..., RolloutResult]:
    """Plays one task with the oracle, in fake sandboxes of which those opened in these places fail at a call."""

    def play(given: Task, fail: list[str], deadly: str = "", **settings: object) -> RolloutResult:
        sandboxes = FakeSandboxes()
        sandboxes.fail_next, sandboxes.deadly = fail, [deadly] if deadly else []
        monkeypatch.setattr("envs.workplace.open_sandbox", sandboxes)

        def make() -> ClawGymEnv:
            return ClawGymEnv([given], prompt_style="compact", **settings)  # type: ignore[arg-type]

        with RolloutEngine(OraclePolicy(), make, slots=1, workers=1) as engine:
            result = engine.run([Job(given, 0, 0)], Sampling(0.0, 64))
        assert all(sandbox.closed for sandbox in sandboxes.all)
        return result

    return play


def test_a_loss_that_was_made_good_is_a_note(play: Callable[..., RolloutResult]) -> None:
    result = play(task(), ["run"])
    (episode,) = result.trajectories
    assert episode.passed and result.retries == 0 and episode.turns[0].observation == "ok"
    assert episode.notes["losses"] == [{"turn": 1, "command": WRITE, "end": "replayed", "error": "broken at run"}]
    assert "losses" not in play(task(), []).trajectories[0].notes


def test_what_the_agent_ended_is_a_fail_with_a_reward(play: Callable[..., RolloutResult]) -> None:
    result = play(task(), [], deadly=WRITE)
    (episode,) = result.trajectories
    assert (episode.stop_reason, episode.passed, episode.rate, result.retries) == ("lost", False, 0.0, 0)
    assert episode.reward == pytest.approx(-0.2 / 4) and episode.error is None
    turn = episode.turns[0]
    assert (turn.command, turn.exit_code, turn.signal, turn.observation) == (WRITE, None, None, "")


def test_tries_that_failed_keep_their_losses(play: Callable[..., RolloutResult]) -> None:
    once = play(task(), ["run", "open"])  # the first try: lost, and the canary with it
    (episode,) = once.trajectories
    assert episode.passed and once.retries == 1
    assert [loss["end"] for loss in episode.notes["losses"]] == ["infrastructure"]
    twice = play(task(), [], deadly=WRITE, agent_errors="error")
    (episode,) = twice.trajectories
    assert episode.stop_reason == "infrastructure" and episode.reward is None and twice.retries == 1
    assert [loss["command"] for loss in episode.notes["losses"]] == [WRITE, WRITE]
    assert episode.error is not None and episode.error.startswith("SandboxError: the sandbox was lost twice at this")
