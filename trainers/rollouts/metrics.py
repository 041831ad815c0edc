"""Figures of one step's episodes, under the names that logs, CSV and report use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from agents.rollout import RolloutResult
from agents.t2po.think import Cause
from agents.trajectory import FORGED, LOSSES, Trajectory, Turn
from envs.conversation import StopReason
from tasks.sources import SETS
from trainers.credit import TurnSignal
from trainers.credit.batch import turn_signals
from trainers.measure import broken_checks, is_graded, measure, wrote_on

SHELL = "shell"
"""Name of the set of all tasks that belong to no question set."""


def episode_metrics(result: RolloutResult, signal: TurnSignal = TurnSignal.PROGRESS) -> dict[str, float]:
    """Metrics of a rollout. Episodes without a reward are counted, by reason, and enter no mean but `env/pass_min`.

    Args:
        result: What was played.
        signal: What a turn earns by itself in this run.
    """
    episodes = result.trajectories
    graded = [e for e in episodes if is_graded(e)]
    out = {"env/infra_error_frac": 1 - len(graded) / len(episodes), "env/episodes": float(len(episodes))}
    out["env/pass_min"] = sum(bool(e.passed) for e in graded) / len(episodes)
    out["env/loss_frac"] = fmean(LOSSES in e.notes for e in episodes)
    if forged := sum(e.notes.get(FORGED, 0) for e in episodes):
        out["env/forged_headers"] = float(forged)
    for reason, count in measure(episodes, result.label).excluded.items():
        out[f"env/excluded/{reason}"] = count / len(episodes)
    if graded:
        out |= _outcomes(graded, signal) | _by_set(graded)
    if past := wrote_on(graded):
        out["env/wrote_past_stop_frac"] = past[0] / past[1]
    turns = [turn for e in graded for turn in e.turns]
    if turns:
        out["env/tokens_per_turn"] = fmean(len(turn.ids) for turn in turns)
        out["env/malformed_frac"] = fmean(turn.action == "malformed" for turn in turns)
        out["t2po/resampled_turn_frac"] = fmean(bool(turn.candidates) for turn in turns)
        out["t2po/resamples_per_episode"] = sum(len(turn.candidates) for turn in turns) / len(graded)
        out["t2po/forced_token_frac"] = sum(map(lambda t: sum(t.forced), turns)) / sum(len(t.ids) for t in turns)
        out |= _thinking(turns)
        entropies = [h for turn in turns for h in turn.entropies or ()]
        if entropies:
            out["sampling/entropy"] = fmean(entropies)
    if result.duplicates is not None:
        out["env/duplicate_frac"] = result.duplicates.share
        out["env/impossible_duplicate_frac"] = result.duplicates.impossible_share
    timing = result.timing
    out["time/rollout_seconds"] = timing.wall_seconds
    out["time/model_seconds"] = timing.model_seconds
    out["time/sandbox_seconds"] = timing.sandbox_seconds
    out["time/overhead_seconds"] = timing.overhead_seconds
    out["time/turns"] = float(timing.turns)
    return out


def _thinking(turns: Sequence[Turn]) -> dict[str, float]:
    """Length of thought, and how often each cause closed a block; nothing where thinking is not limited."""
    limited = [turn for turn in turns if "thought_tokens" in turn.notes]
    if not limited:
        return {}
    out = {"t2po/thought_tokens": fmean(turn.notes["thought_tokens"] for turn in limited)}
    return out | {f"t2po/{cause}_frac": fmean(turn.notes.get(cause, 0.0) > 0 for turn in limited) for cause in Cause}


def _by_set(graded: Sequence[Trajectory]) -> dict[str, float]:
    """Figures of each question set, and of the shell tasks among them; nothing where all are shell tasks."""
    sets: dict[str, list[Trajectory]] = {}
    for episode in graded:
        sets.setdefault(episode.family if episode.family in SETS else SHELL, []).append(episode)
    if set(sets) == {SHELL}:
        return {}
    out: dict[str, float] = {}
    for name, episodes in sorted(sets.items()):
        out[f"env/{name}/episodes"] = float(len(episodes))
        out[f"env/{name}/pass_rate"] = fmean(bool(e.passed) for e in episodes)
        out[f"env/{name}/reward"] = fmean(e.reward for e in episodes if e.reward is not None)
    return out


def _outcomes(graded: Sequence[Trajectory], signal: TurnSignal) -> dict[str, float]:
    n = len(graded)
    stops = Counter(e.stop_reason for e in graded)
    out = {f"env/stop/{reason}": stops.get(reason, 0) / n for reason in StopReason if reason != "infrastructure"}
    out["env/submitted"] = stops.get("submitted", 0) / n
    broke = [broken_checks(e) for e in graded]
    out["env/broke_frac"] = fmean(bool(kinds) for kinds in broke)
    for kind in sorted({kind for kinds in broke for kind in kinds}):
        out[f"env/broke/{kind}"] = fmean(kind in kinds for kinds in broke)
    out["env/pass_rate"] = fmean(bool(e.passed) for e in graded)
    if rates := [e.rate for e in graded if e.rate is not None]:
        out["env/assertion_rate"] = fmean(rates)
    out["env/mean_turns"] = fmean(len(e.turns) for e in graded)
    signals = [earned for e in graded for earned in turn_signals(e, signal) if earned is not None]
    if signals:
        out["env/turn_signal_mean"] = fmean(signals)
        out["env/turn_signal_zero_frac"] = fmean(s == 0 for s in signals)
    verdicts: dict[str, list[bool]] = {}
    for episode in graded:
        for record in episode.assertions:
            verdicts.setdefault(record["kind"], []).append(record["verdict"] == "pass")
    out |= {f"env/assert/{kind}": fmean(passes) for kind, passes in sorted(verdicts.items())}
    return out
