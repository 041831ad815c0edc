"""`turn_signal=outcome`: GiGPO as published, where the step return carries the episode's reward, discounted."""

from __future__ import annotations

import numpy as np
import pytest

from agents.rollout import RolloutResult, Timing
from agents.trajectory import Trajectory, Turn
from tests.trainers.credit.fixtures import block
from tests.trainers.guards.planted import facts, kinds, on, only, result, steps
from tests.trainers.replay import make_scripted
from tests.trainers.test_hand import episodes as scripted_episodes
from trainers.credit import CreditSettings, EpisodeScale, TurnSignal, credit_terms, discounted_returns
from trainers.credit.batch import turn_records, turn_signals
from trainers.guards import GuardName
from trainers.guards.signal import GroupKind, read_groups
from trainers.rollouts.metrics import episode_metrics
from trainers.rollouts.rules import weightless

OUTCOME = TurnSignal.OUTCOME


def episode(reward: float | None, anchors: list[str], *, attempt: int = 0) -> Trajectory:
    """An episode of a task without file assertions: no turn has a signal of its own, and the last one submits."""
    turns = [
        Turn(
            index, [], [1, 2], [0.0] * 2, None, [False] * 2, None, "", anchor=anchor,
            action="submit" if index == len(anchors) - 1 else "command",
        )
        for index, anchor in enumerate(anchors)
    ]  # fmt: skip
    return Trajectory("a", "h", attempt, 0, [1], turns, "submitted", reward, bool(reward), reward)


def test_the_return_of_a_turn_is_the_reward_discounted_by_the_turns_that_follow():
    signals = turn_signals(episode(0.8, ["s", "t", "u"]), OUTCOME)
    assert signals == [0.0, 0.0, 0.8]
    assert discounted_returns(signals, 0.5) == pytest.approx([0.2, 0.4, 0.8])  # gamma^(T-1-t) R, by hand
    assert turn_signals(episode(-0.2, ["s"]), OUTCOME) == [-0.2]
    assert turn_signals(episode(0.8, []), OUTCOME) == []
    assert turn_signals(episode(None, ["s", "t"]), OUTCOME) == [None, None]


def test_returns_of_the_reference():
    for case in block("gigpo_step_returns"):
        for name in dict.fromkeys(case["traj"]):
            rows = [row for row, other in enumerate(case["traj"]) if other == name]
            rewards = [case["rewards"][row] for row in rows]
            if any(rewards[:-1]):
                continue  # a reward before the end is no outcome
            signals = turn_signals(episode(rewards[-1], ["s"] * len(rows)), OUTCOME)
            assert discounted_returns(signals, case["gamma"]) == pytest.approx([case["out"][r] for r in rows], abs=5e-6)


def test_steps_of_the_reference_from_episodes_with_a_reward_alone():
    """Every recorded step pays at the end only; its episode means are over rows, and the rest must agree."""
    for case in block("gigpo_joint"):
        divide = case["mode"] == "mean_std_norm"
        got, wanted = np.zeros(len(case["traj"])), np.array(case["advantage_tokens"])[:, 0]
        for uid in dict.fromkeys(case["uid"]):
            names = list(dict.fromkeys(t for t, u in zip(case["traj"], case["uid"], strict=True) if u == uid))
            rows_of = {name: [row for row, other in enumerate(case["traj"]) if other == name] for name in names}
            played = []
            for name in names:
                rows = rows_of[name]
                played.append(episode(case["rewards"][rows[-1]], [case["anchor"][r] for r in rows]))
                for turn, row in zip(played[-1].turns, rows, strict=True):
                    turn.action = "command" if case["action_valid"][row] else "malformed"
            settings = CreditSettings(turn_gamma=case["gamma"], turn_std=divide, invalid_action_penalty=case["coef"])
            records = [turn_records(one, OUTCOME) for one in played]
            rewards = [one.reward for one in played]
            turns = credit_terms(rewards, records, len(played), settings)[1].advantages
            scores = [case["row_scores_after_penalty"][row] for name in names for row in rows_of[name]]
            scale = EpisodeScale.GROUP if divide else EpisodeScale.NONE
            rows = [row for name in names for row in rows_of[name]]
            got[rows] = row_weighted(scores, scale) + case["step_w"] * np.concatenate(turns)
        assert got == pytest.approx(wanted, abs=5e-6), case["name"]


def row_weighted(scores: list[float], scale: EpisodeScale) -> np.ndarray:
    """The reference's episode part: mean and deviation over the rows of a task."""
    values = np.array(scores)
    centred = values - values.mean()
    return centred / (values.std(ddof=1) + 1e-6) if scale is EpisodeScale.GROUP else centred


def group() -> list[Trajectory]:
    """One attempt passes after two turns, one fails after one."""
    return [episode(1.0, ["s", "t"], attempt=0), episode(0.0, ["s"], attempt=1)]


def tied() -> list[Trajectory]:
    """Both pass, one a turn later: no episode signal, and the shorter one is better from the start on."""
    return [episode(1.0, ["s", "t"], attempt=0), episode(1.0, ["s"], attempt=1)]


def test_a_task_without_file_assertions_has_a_turn_term():
    settings = CreditSettings(turn_gamma=0.5)

    def turn_term(signal: TurnSignal) -> list[list[float]]:
        return credit_terms([1.0, 0.0], [turn_records(e, signal) for e in group()], 2, settings)[1].advantages

    assert turn_term(OUTCOME) == [[0.25, 0.0], [-0.25]]
    assert turn_term(TurnSignal.PROGRESS) == [[0.0, 0.0], [0.0]]


def test_figures_of_a_run_are_those_of_its_signal():
    played = RolloutResult(group(), Timing())
    metrics = episode_metrics(played, OUTCOME)
    assert metrics["env/turn_signal_mean"] == pytest.approx(1 / 3)
    assert metrics["env/turn_signal_zero_frac"] == pytest.approx(2 / 3)
    assert "env/turn_signal_mean" not in episode_metrics(played)  # progress: no turn has one
    for turn, code in zip([t for e in played.trajectories for t in e.turns], (0, 1, 0), strict=True):
        turn.action, turn.exit_code = "command", code
    assert episode_metrics(played, TurnSignal.EXIT_CODE)["env/turn_signal_mean"] == pytest.approx(2 / 3)


def test_the_meter_counts_groups_whose_turns_are_told_apart_by_the_signal_of_the_run():
    equal = [episode(1.0, ["s", "t"], attempt=i) for i in range(2)]  # same reward, same length: nothing to learn
    for one in equal:
        for turn in one.turns:
            turn.signal = 0.25 * turn.index  # progress that both made alike
    assert read_groups(tied(), signal=OUTCOME).turn_signal == 1 and read_groups(tied()).turn_signal == 0
    assert read_groups(equal, signal=OUTCOME).turn_signal == 0
    assert read_groups(group(), signal=OUTCOME).counts == {GroupKind.SIGNAL: 1}
    watch = on(GuardName.SIGNAL_METER, facts({"turn_signal": "outcome"}))
    for step in range(1, 13):
        watch.episodes(step, result(tied()))
    watch.step(12, {"gigpo/frac_zero_adv": 0.0})
    assert "1 of the others have turn signal" in only(watch).message


def test_refill_keeps_a_tied_group_whose_turns_differ_by_outcome():
    settings = CreditSettings()
    assert not weightless(tied(), settings, OUTCOME) and weightless(tied(), settings, TurnSignal.PROGRESS)


def test_the_note_on_a_turn_term_that_does_nothing_fits_the_signal():
    for signal, says, not_says in (
        ("outcome", "equally long", "file assertions"),
        ("progress", "turn_signal=outcome", "equally long"),
        ("exit_code", "commands end alike", "file assertions"),
    ):
        watch = on(GuardName.INERT_INTERVENTION, facts({"beta_turn": 1.0, "turn_signal": signal}))
        steps(watch, [{"gigpo/turn_adv_abs_mean": 0.0}] * 7)
        assert kinds(watch) == [(6, "warn", "no_turn_signal")]
        assert says in only(watch).message and not_says not in only(watch).message


def test_a_trainer_learns_from_turns_of_tasks_without_file_assertions(tmp_path):
    """The scripted episodes' own signals taken away: progress leaves the turn term at 0, outcome does not."""
    means = {}
    for signal in ("progress", "outcome"):
        batch = scripted_episodes()
        for one in batch:
            for turn in one.turns:
                turn.signal = None
        changes = {"num_generations": 2, "beta_turn": 0.5, "turn_gamma": 0.5, "max_steps": 1, "turn_signal": signal}
        trainer = make_scripted(tmp_path / signal, batch, **changes)
        trainer._prepare_inputs(next(iter(trainer.get_train_dataloader())))
        metrics = trainer._metrics["train"]
        means[signal] = metrics["gigpo/turn_adv_abs_mean"][0], "env/turn_signal_mean" in metrics
        trainer.close()
    assert means["progress"] == (0.0, False)
    assert means["outcome"][0] > 0 and means["outcome"][1]
