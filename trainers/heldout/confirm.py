"""The headline of a run: start and best/ on tasks that nothing chose on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from agents.models.card import damage_of
from tasks.task import Task
from trainers.errors import BestLostError
from trainers.heldout.held_out import HeldOut
from trainers.heldout.selection import HeldOutSelection, load_weights, random_states_kept
from trainers.measure import Confirmation, Episodes
from trainers.settings.groups import take_apart

# ---------------------------------------------------------------------------------------------------------------------
# The headline of a run: its start and its `best/`, measured once more on tasks that nothing was trained or chosen on.
#
# The best of several measurements leans high, and its test against the start on those same tasks finds a difference
# where there is none more often than it says (`python -m benchmarks.selection`). So the chosen weights are measured
# again, at the end, on other tasks (see `trainers.run.tasks`), and so is the start: the same tasks, seeds and decode
# settings for both, compared task by task. Nothing is chosen by the outcome, and training is over: no draw of it
# moves.

PREFIX = "confirm_"
"""Of the arms' names where the seeds of the samples come from: other draws than those that chose."""
START, BEST = "start", "best"
"""The two policies."""


class Weights:
    """The weights that training changes, as they are now, copied into main memory.

    Args:
        model: A model of transformers or PEFT; of an adapter's model only the adapter is copied.
    """

    def __init__(self, model: Any) -> None:
        self._kept = {
            name: parameter.detach().to("cpu", copy=True)
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }

    def put(self, model: Any) -> None:
        """Write them into a model of the same names, in place.

        Raises:
            ValueError: It has other parameters.
        """
        into = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        if into.keys() != self._kept.keys():
            other = sorted(into.keys() ^ self._kept.keys())
            raise ValueError(f"these are weights of another model: {other[0]} is only in one of them")
        with torch.no_grad():
            for name, parameter in into.items():
                parameter.copy_(self._kept[name])


def not_needed(held_out: HeldOut | None, tasks: Sequence[Task], source: str) -> Confirmation | None:
    """Why a run that came to its end has nothing to confirm; `None` where it has."""
    if held_out is None or not tasks:
        return Confirmation(source, why=source.removeprefix("none: "))
    if held_out.best is None:
        return Confirmation(source, why="no held-out measurement chose any weights")
    if held_out.best.step == 0:
        return Confirmation(
            source, why="no step beat the start on the held-out tasks: `best/` is the start, and there is no difference"
        )
    return None


def confirm(
    trainer: HeldOutSelection, tasks: Sequence[Task], start: Weights | None, source: str = ""
) -> tuple[Confirmation, Episodes]:
    """Measure the start and `best/` on tasks; the model has the weights of `best/` afterwards.

    Args:
        trainer: Whose training is over; with several processes, each of them calls this.
        tasks: Nothing was trained or chosen on them.
        start: The weights that the run started with.
        source: Which tasks these are, for people.

    Returns:
        What came of it, and the episodes; none where nothing needed to be measured.

    Raises:
        BestLostError: A file of `best/` is not what was written.
    """
    held_out = trainer.held_out
    if (none := not_needed(held_out, tasks, source)) is not None:
        return none, {}
    assert held_out is not None and held_out.best is not None and held_out.output_dir is not None
    if start is None:
        raise ValueError("confirm: the weights of the start are needed (`Weights(model)` before training)")
    trainer.accelerator.wait_for_everyone()  # one process writes `best/`, all load it
    best = Path(held_out.output_dir) / BEST
    if damage := damage_of(best):
        raise BestLostError(f"{damage[0].path} {damage[0].what}: these are not the weights that were chosen")
    model = trainer.accelerator.unwrap_model(trainer.model)
    trainer.model.eval()
    with random_states_kept():
        start.put(model)
        before = held_out.play(trainer, tasks, PREFIX)
        load_weights(model, best)
        after = held_out.play(trainer, tasks, PREFIX)
    deciding = take_apart(held_out.metric).decode
    arms = sorted(before, key=lambda name: name != deciding)
    confirmation = Confirmation(
        source,
        held_out.best.step,
        {name: before[name][1] for name in arms},
        {name: after[name][1] for name in arms},
    )
    episodes = {policy: {name: played[name][0] for name in arms} for policy, played in ((START, before), (BEST, after))}
    return confirmation, episodes
