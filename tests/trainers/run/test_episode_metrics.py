from __future__ import annotations

import pytest

from agents.policy import FinishReason
from agents.rollout import RolloutResult, Timing
from agents.trajectory import Trajectory, Turn
from trainers.run.episode_metrics import episode_metrics


def result(*notes: dict[str, float]) -> RolloutResult:
    turns = [
        Turn(i, [], [1, 2], [0.0] * 2, [0.5] * 2, [False, "think_capped" in note], FinishReason.STOP, "", notes=note)
        for i, note in enumerate(notes)
    ]
    episode = Trajectory("a", "h", 0, 0, [1], turns, "submitted", 1.0, True, 1.0)
    return RolloutResult([episode], Timing())


def test_thinking_is_counted_where_it_is_limited() -> None:
    metrics = episode_metrics(
        result(
            {"thought_tokens": 8.0, "think_capped": 2.0},
            {"thought_tokens": 2.0, "think_stopped": 1.0},
            {"thought_tokens": 2.0},
            {"thought_tokens": 0.0},
        )
    )
    assert metrics["t2po/thought_tokens"] == pytest.approx(3.0)
    causes = {name: metrics[f"t2po/{name}_frac"] for name in ("think_capped", "think_reserved", "think_stopped")}
    assert causes == {"think_capped": 0.25, "think_reserved": 0.0, "think_stopped": 0.25}
    assert metrics["t2po/forced_token_frac"] == pytest.approx(1 / 8)


def test_what_the_infrastructure_ended_enters_no_mean() -> None:
    played = result({"thought_tokens": 8.0})
    whole = episode_metrics(played)
    turn = Turn(0, [], [1] * 50, [0.0] * 50, [9.0] * 50, [True] * 50, FinishReason.STOP, "", action="malformed")
    broken = Trajectory("a", "h", 1, 0, [1], [turn], "infrastructure", notes={"text_after_stop": 5})
    played.trajectories.append(broken)
    counted = {"env/infra_error_frac": 0.5, "env/episodes": 2.0}
    assert episode_metrics(played) == whole | counted


def test_no_figure_of_thinking_where_it_is_not_limited() -> None:
    assert not any(name.startswith("t2po/th") for name in episode_metrics(result({}, {})))
