from __future__ import annotations

import pytest

from agents.policy import FinishReason
from agents.rollout import RolloutResult, Timing
from agents.trajectory import Trajectory, Turn
from trainers.rollouts.metrics import episode_metrics


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
    broken = Trajectory("a", "h", 1, 0, [1], [turn], "infrastructure", notes={"text_after_stop": 5}, error="E: x")
    played.trajectories.append(broken)
    counted = {"env/infra_error_frac": 0.5, "env/episodes": 2.0, "env/pass_min": 0.5, "env/excluded/E": 0.5}
    assert episode_metrics(played) == whole | counted


def test_lost_sandboxes_and_checks_that_broke_are_counted() -> None:
    played = result({})
    script = {"name": "s", "kind": "script", "verdict": "fail", "score": 0.0, "broke": True}
    grades = (("submitted", [script, {**script, "broke": False}]), ("lost", [script]))
    for attempt, (stop, records) in enumerate(grades, 1):
        turns = played.trajectories[0].turns
        more = Trajectory("a", "h", attempt, 0, [1], turns, stop, -0.1, False, 0.0, assertions=records)
        more.notes = {"losses": [{"turn": 1, "command": "x", "end": "lost", "error": "gone"}]} if stop == "lost" else {}
        played.trajectories.append(more)
    metrics = episode_metrics(played)
    third = pytest.approx(1 / 3)
    assert metrics["env/broke_frac"] == metrics["env/broke/script"] == third  # what was lost whole is no broken check
    assert metrics["env/stop/lost"] == metrics["env/loss_frac"] == metrics["env/pass_min"] == third


def test_no_figure_of_thinking_where_it_is_not_limited() -> None:
    assert not any(name.startswith("t2po/th") for name in episode_metrics(result({}, {})))


def test_forged_headers_are_counted_where_there_were_any() -> None:
    played = result({})
    assert "env/forged_headers" not in episode_metrics(played)
    played.trajectories[0].notes["forged_headers"] = 3
    assert episode_metrics(played)["env/forged_headers"] == 3.0
