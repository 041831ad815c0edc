"""What a training step says about itself: figures of its episodes and of its loss, over all processes, and records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from accelerate.utils import gather_object

from agents.credited import Advantages
from agents.rollout import RolloutResult
from agents.t2po import T2PO
from trainers.construction import prompt_of
from trainers.credit import TurnSignal
from trainers.guards.parity import SAMPLED, TRAINED
from trainers.loss import k3_tail
from trainers.measure import check_rewards
from trainers.metric_names import MetricNames, retrain_figures
from trainers.processes import gathered, mean_figures, over_processes, sum_figures
from trainers.resume import ExactResume
from trainers.rollouts.metrics import episode_metrics
from trainers.rollouts.rules import Played


class TellsFigures(ExactResume):
    """The part of the trainer that keeps figures for the log. `GiGPOTrainer` plays, credits and computes the loss."""

    on_episodes: Callable[[int, RolloutResult], None] | None
    on_advantages: Callable[[int, Advantages], None] | None = None
    """Called with what each turn of a step's episodes was credited with, of all processes, for records."""
    _rows: list[dict[str, Any]]
    _played: Played | None

    # Set by transformers, which is not analysed.
    accelerator: Any

    def note_metric(self, name: str, value: float) -> None:
        """Add a value to the training metrics of the next log."""
        self._metrics["train"][name].append(value)

    def note_largest(self, name: str, value: float) -> None:
        """Add a value whose largest, not whose mean, belongs to the next log."""
        self._metrics["train"][name] = [max([value, *self._metrics["train"][name]])]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """As TRL, for a training step also under the names that `metric_names` asks for."""
        if self.args.metric_names is MetricNames.RETRAIN and "loss" in logs:
            kept = self._metrics["train"]
            means = {name: sum(values) / len(values) for name, values in kept.items() if values}
            before = [line for line in self.state.log_history if "loss" in line]
            figures = retrain_figures({**logs, **means}, before, self.num_generations)
            kept.update({name: [value] for name, value in figures.items()})
        super().log(logs, start_time)

    def _log_episodes(self, played: Played) -> None:
        """Figures and records of the episodes of all processes: means are over episodes, not over processes."""
        result = gathered(played.result)
        check_rewards(result.trajectories, f"step {self.state.global_step + 1}")  # before anything is learned from it
        measured = result if played.measured is played.result else gathered(played.measured)
        figures = episode_metrics(measured, TurnSignal(self.args.turn_signal))
        for name, value in {**figures, **over_processes(played.metrics)}.items():
            self.note_metric(name, value)
        if self.args.overlap:
            self.note_metric("time/rollout_hidden", played.hidden_seconds)
        if isinstance(self.policy, T2PO):
            for name, value in mean_figures(self.policy.metrics(), self.policy.meter.eligible).items():
                self.note_metric(name, value)
        if self.held_out is not None:
            self.held_out.saw_pool(self.state.global_step + 1, measured.trajectories)
        if self.on_episodes is not None:
            self.on_episodes(self.state.global_step, result)

    def _rename_rows(self, played: Played) -> None:
        """Rows whose task is another one now (a curriculum, a refill) say so, also in TRL's table of completions."""
        for row, episode in zip(self._rows, played.episodes, strict=True):
            if row["task_id"] != episode.task_id:
                row["task_id"] = episode.task_id
                row["prompt"][:] = prompt_of(self.rollouts.pool[episode.task_id])  # TRL holds on to this very list

    def _say_if_nothing_counts(self, local: list[float | None]) -> None:
        rewards: list[float | None] = gather_object(local)
        if self.accelerator.is_main_process and all(reward is None for reward in rewards):
            step = self.state.global_step + 1
            self.warn(
                step,
                f"step {step}: none of the {len(rewards)} episodes has a reward, the machinery failed under all of "
                "them. The step counts and nothing is learned from it.",
            )

    def _count_mask(self, batch: dict[str, Any]) -> None:
        """Tokens that the loss will see beside those that were sampled, for the guard that compares them."""
        assert self._played is not None
        mask = batch["completion_mask"] * batch["tool_mask"]
        rows = zip(self._played.episodes, self._played.flats, strict=True)
        counted = [turn for episode, flat in rows if any(flat.mask) for turn in episode.turns]
        sampled = sum(len(turn.ids) - sum(turn.forced) for turn in counted)
        self._note_sums({TRAINED: float(mask.sum()), SAMPLED: float(sampled)})

    def _note_sums(self, counts: dict[str, float]) -> None:
        """Counts of this process go to the log as those of all."""
        for name, value in sum_figures(counts).items():
            self.note_metric(name, value)

    def _note_kl_tail(self, inputs: dict[str, Any], trained: torch.Tensor) -> None:
        """Where the loss has a KL term: k3 of the trained tokens, the largest and the 99th percentile.

        The largest is of all processes and passes; percentiles are taken pass by pass, and their mean is logged.
        """
        if self.beta == 0.0 or inputs.get("ref_per_token_logps") is None:
            return
        tail = k3_tail(trained, inputs["ref_per_token_logps"], inputs["completion_mask"] * inputs["tool_mask"])
        rows = self.accelerator.gather(tail[None])
        self.note_largest("kl_max", float(rows[:, 0].max()))
        self.note_metric("kl_p99", float(rows[:, 1].mean()))
