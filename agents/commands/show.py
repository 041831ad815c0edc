"""`python -m agents show`: the episodes of a file as a table, a single one turn by turn."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from rich.console import Console

from agents.commands.pages import episode_list, episode_page
from agents.trajectory import Trajectory


def show(episodes: Iterable[tuple[int, Trajectory]]) -> int:
    """Print them; returns 0."""
    console, rest = Console(), iter(episodes)
    number, first = next(rest)
    second = next(rest, None)
    if second is None:
        episode_page(first, console)
    else:
        episode_list(chain([(number, first), second], rest), console)
    return 0
