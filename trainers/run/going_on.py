"""What `--resume` goes on from: the newest checkpoint, if it and the best that it points to are what was written.

A checkpoint that is damaged is not one that is absent: a run that has one is refused, with the file that is wrong and
the newest checkpoint that is whole, and nothing in its folder changes. It starts over only where there is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agents.models.card import Damage, damage_of
from trainers.errors import DamagedError
from trainers.heldout.best import Best, can_remake, kept
from trainers.run.checkpoints import Checkpoint


def going_on(folder: Path, start: int | None = None) -> Checkpoint | None:
    """The checkpoint that a run goes on from; `None` where there is none, so that it starts over.

    Args:
        folder: Of the run.
        start: `--from`: the step of the checkpoint to go back to; `None` takes the newest.

    Raises:
        DamagedError: It, or the best that it points to, is not what was written, or there is no such checkpoint.
    """
    found = Checkpoint.all_of(folder)
    if start is not None:
        found = [checkpoint for checkpoint in found if checkpoint.step == start]
        if not found:
            raise DamagedError(f"--from {start}: {folder} has no checkpoint of this step. {_remedy(folder)}")
    if not found:
        return None
    checkpoint = found[-1]
    if not checkpoint.whole:
        raise DamagedError(f"{_said(checkpoint.damage)}: checkpoint-{checkpoint.step} is damaged. {_remedy(folder)}")
    if why := _best_problem(checkpoint, goes_back=start is not None):
        raise DamagedError(why)
    return checkpoint


def damaged_best(folder: Path) -> str | None:
    """What is wrong with the `best/` that a run which is over left, with what to do; `None` where it is whole."""
    damage = damage_of(folder / "best")
    if not damage:
        return None
    return f"{_said(damage)}: what the run ended with is damaged. {_remedy(folder)}"


def _best_problem(checkpoint: Checkpoint, *, goes_back: bool) -> str | None:
    """Why a run cannot go on with the best of its checkpoint; `None` where it can, or its absence is told elsewhere."""
    folder, (best, listed) = checkpoint.folder.parent, _best_of(checkpoint)
    if best is None or kept(folder, best, listed=listed):
        return None
    if goes_back and can_remake(folder, best):
        return None
    places = (folder / "best", folder / "best.old")
    damage = [one for place in places if place.exists() for one in damage_of(place, needs_list=listed)]
    if can_remake(folder, best):
        remedy = f"`--resume --from {checkpoint.step}` goes on from this checkpoint and writes best/ again, from " + (
            f"checkpoint-{best.step}" if best.step else "the policy that the run started with"
        )
    else:
        remedy = f"Its weights are those of step {best.step}, which no checkpoint has any more. {_remedy(folder)}"
    if damage:
        return f"{_said(damage)}: the best that checkpoint-{checkpoint.step} points to is damaged. {remedy}"
    return (
        f"{folder / 'best'} is not step {best.step}, the best that checkpoint-{checkpoint.step} points to: its weights "
        f"are gone. {remedy}"
    )


def _best_of(checkpoint: Checkpoint) -> tuple[Best | None, bool]:
    """The best as a whole checkpoint has it, and whether it counts on a list of the best's files."""
    held_out = checkpoint.state.get("held_out")
    best = Best(**held_out["best"]) if held_out and held_out["best"] else None
    return best, checkpoint.lists_files


def _said(damage: Sequence[Damage]) -> str:
    more = len(damage) - 1
    return f"{damage[0]}" + (f" (and {more} more file{'s' * (more > 1)})" if more else "")


def _remedy(folder: Path) -> str:
    """The newest checkpoint that can be gone on from, in words."""
    for checkpoint in reversed(Checkpoint.all_of(folder)):
        if checkpoint.whole:
            best, listed = _best_of(checkpoint)
            if best is None or kept(folder, best, listed=listed) or can_remake(folder, best):
                step = checkpoint.step
                return (
                    f"The newest whole checkpoint is that of step {step}: `--resume --from {step}` goes on from it. "
                    "Nothing was changed"
                )
    return (
        "No checkpoint of this run can be gone on from: `--overwrite` starts anew (the old run is kept under another "
        "name). Nothing was changed"
    )
