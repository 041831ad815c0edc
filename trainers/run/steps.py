"""`steps.csv`: one row per optimizer step, in the column names of public per-step logs of shell-agent training."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from agents.trajectory import Trajectory
from trainers.jsonl import write_whole
from trainers.measure import is_graded
from trainers.rollouts.rules import by_place, first_drawn

FROM_METRICS = {
    "loss": "loss",
    "policy_loss": "policy_loss",
    "kl_loss": "kl",
    "grad_norm": "grad_norm",
    "weight_delta": "update/weight_delta",
    "learning_rate": "learning_rate",
    "entropy": "sampling/entropy",
    "rollout_seconds": "time/rollout_seconds",
    "model_seconds": "time/model_seconds",
    "sandbox_seconds": "time/sandbox_seconds",
    "overhead_seconds": "time/overhead_seconds",
    "hidden_seconds": "time/rollout_hidden",
    "staleness": "rollouts/staleness",
    "train_wall": "time/learn_seconds",
    "wall_seconds": "wall_seconds",
}
"""Column to the name of the logged metric that fills it."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """One row. Rates and means are over graded episodes; a figure that does not exist is an empty cell, never 0.

    Where a rule plays more than K attempts at a task, or other tasks for flat groups, every column is about the first
    draw alone: what is played beyond it depends on how it ended.

    Attributes:
        policy_loss: The loss without its KL term: `loss - beta * kl_loss`, which are means of the step's passes.
        weight_delta: L2 norm of the change of all trained weights.
        assertions_passed: Assertions that passed, of `assertions`, those of weight 0 too.
        wall_seconds: Of the run so far; `train_wall` of learning in this step.
        n_rollouts_used: Graded episodes; `n_rollouts_total` all; `infrastructure` the difference.
        zero_var_groups: Groups whose graded rewards are all equal: no episode signal. Of `n_groups`, in which a
            task that is drawn twice has two.
        task_pass_count: Episodes that passed; `task_pass_rate` their share.
        reward_stdev: Sample standard deviation (n - 1), as TRL logs `reward_std`.
        task_complete_pct: Percent that ended by submitting; `max_turns_pct` by the turn budget.
        mean_tds_regen: Rejected samples per episode (turn resampling).
        hidden_seconds: Of `rollout_seconds`, what passed while the step before was learned on; with `overlap` only.
        staleness: Optimizer steps between the weights that sampled and those that train; with a bound on it only.
    """

    step: int
    loss: float | None = None
    policy_loss: float | None = None
    kl_loss: float | None = None
    grad_norm: float | None = None
    weight_delta: float | None = None
    learning_rate: float | None = None
    n_rollouts_used: int = 0
    n_rollouts_total: int = 0
    infrastructure: int = 0
    n_groups: int = 0
    zero_var_groups: int = 0
    task_pass_count: int = 0
    task_pass_rate: float | None = None
    assertion_rate: float | None = None
    assertions_passed: int = 0
    assertions: int = 0
    reward_mean: float | None = None
    reward_stdev: float | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    mean_turns: float | None = None
    median_turns: float | None = None
    task_complete_pct: float | None = None
    max_turns_pct: float | None = None
    mean_tds_regen: float | None = None
    entropy: float | None = None
    train_wall: float | None = None
    rollout_seconds: float | None = None
    model_seconds: float | None = None
    sandbox_seconds: float | None = None
    overhead_seconds: float | None = None
    hidden_seconds: float | None = None
    staleness: float | None = None
    wall_seconds: float | None = None
    episodes: tuple[Trajectory, ...] = field(default=(), repr=False)
    """The episodes behind the figures; no column."""

    @classmethod
    def of(cls, step: int, trajectories: Sequence[Trajectory]) -> StepRow:
        """The row of one step's episodes, without the optimizer's figures."""
        everything = tuple(trajectories)
        trajectories = first_drawn(everything)
        graded = [t for t in trajectories if is_graded(t)]
        rewards = [float(t.reward) for t in graded if t.reward is not None]
        rates = [t.rate for t in graded if t.rate is not None]
        turns = [len(t.turns) for t in graded]
        groups = [[t.reward for t in place if is_graded(t)] for place in by_place(trajectories)]
        groups = [rewards for rewards in groups if rewards]
        n = len(graded)
        return cls(
            step=step,
            n_rollouts_used=n,
            n_rollouts_total=len(trajectories),
            infrastructure=len(trajectories) - n,
            n_groups=len(groups),
            zero_var_groups=sum(len(set(rewards)) == 1 for rewards in groups),
            task_pass_count=sum(bool(t.passed) for t in graded),
            task_pass_rate=fmean(bool(t.passed) for t in graded) if n else None,
            assertion_rate=fmean(rates) if rates else None,
            assertions_passed=sum(record["verdict"] == "pass" for t in graded for record in t.assertions),
            assertions=sum(len(t.assertions) for t in graded),
            reward_mean=fmean(rewards) if n else None,
            reward_stdev=stdev(rewards) if n > 1 else None,
            reward_min=min(rewards, default=None),
            reward_max=max(rewards, default=None),
            mean_turns=fmean(turns) if n else None,
            median_turns=float(median(turns)) if n else None,
            task_complete_pct=100 * fmean(t.stop_reason == "submitted" for t in graded) if n else None,
            max_turns_pct=100 * fmean(t.stop_reason == "max_turns" for t in graded) if n else None,
            mean_tds_regen=fmean(sum(len(turn.candidates) for turn in t.turns) for t in graded) if n else None,
            episodes=everything,
        )

    def joined(self, more: Sequence[Trajectory]) -> StepRow:
        """The row of these episodes and `more`, for a step that generates more than once."""
        return StepRow.of(self.step, [*self.episodes, *more])

    def with_metrics(self, metrics: Mapping[str, Any]) -> StepRow:
        """The row with what the trainer logged for the step."""
        found = {column: float(metrics[name]) for column, name in FROM_METRICS.items() if metrics.get(name) is not None}
        values: dict[str, Any] = found
        return replace(self, **values)


COLUMNS = tuple(f.name for f in fields(StepRow) if f.name != "episodes")


class StepsCsv:
    """The file. Each row is written whole; a resume cuts rows beyond the checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, row: StepRow) -> None:
        """Add one row (and the header, when the file is new)."""
        new = not self.path.exists() or self.path.stat().st_size == 0
        with open(self.path, "a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(COLUMNS)
            writer.writerow([_cell(getattr(row, name)) for name in COLUMNS])

    def cut(self, step: int, superseded: Path) -> None:
        """Keep rows up to `step`; move later ones to `superseded`; drop a torn last row."""
        if not self.path.exists():
            return
        header, *rows = list(csv.reader(io.StringIO(self.path.read_text(encoding="utf-8")))) or [list(COLUMNS)]
        found = [dict(zip(header, r, strict=True)) for r in rows if len(r) == len(header) and r[0].isdigit()]
        whole = [[row.get(name, "") for name in COLUMNS] for row in found]  # an earlier release had fewer columns
        later = [r for r in whole if int(r[0]) > step]
        write_whole(self.path, _csv_text([list(COLUMNS), *(r for r in whole if int(r[0]) <= step)]))
        if later:
            superseded.parent.mkdir(parents=True, exist_ok=True)
            with open(superseded, "a", newline="", encoding="utf-8") as file:
                file.write(_csv_text(later))


def _cell(value: float | int | None) -> str:
    if value is None:
        return ""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _csv_text(rows: Sequence[Sequence[str]]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
