"""A stored trajectory as a page for people."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agents.trajectory import Trajectory, Turn

_VERDICTS = {"pass": "green", "fail": "red", "error": "magenta"}


def show_list(trajectories: Sequence[Trajectory], console: Console) -> None:
    """One line per episode of a file."""
    table = Table(box=None, header_style="bold")
    for title in ("episode", "task", "attempt", "turns", "stop", "reward", "rate", "passed"):
        table.add_column(
            title, justify="right" if title in ("episode", "attempt", "turns", "reward", "rate") else "left"
        )
    for number, episode in enumerate(trajectories):
        table.add_row(
            str(number),
            Text(episode.task_id),
            str(episode.attempt),
            str(len(episode.turns)),
            episode.stop_reason,
            number_text(episode.reward),
            number_text(episode.rate),
            "-" if episode.passed is None else "yes" if episode.passed else "no",
        )
    console.print(table)


def show(episode: Trajectory, console: Console) -> None:
    """Every turn of one episode, then its grade."""
    flat = episode.flat()
    head = Text()
    head.append(f"{episode.task_id}", style="bold")
    head.append(f"  attempt {episode.attempt}  seed {episode.seed}  {episode.sampling}\n")
    head.append(
        f"prompt {len(episode.prompt_ids)} ids, completion {len(flat.ids)} ids, {sum(flat.mask)} of them sampled", "dim"
    )
    console.print(head)
    for turn in episode.turns:
        console.print(_turn(turn))
    console.print(_end(episode))


def _turn(turn: Turn) -> Panel:
    facts = [f"{len(turn.context_ids)} ids of context", f"{len(turn.ids)} ids of reply"]
    forced = sum(turn.forced)
    if forced:
        facts.append(f"{forced} forced")
    if turn.finish == "length":
        facts.append("cut at the cap")
    if turn.ids:
        facts.append(f"mean entropy {sum(turn.entropies) / len(turn.ids):.3f}")
    if turn.uncertainty is not None:
        facts.append(f"uncertainty {turn.uncertainty:.3f}")
    if turn.candidates:
        signals = ", ".join(number_text(candidate.signal) for candidate in turn.candidates)
        facts.append(f"{len(turn.candidates)} rejected ({signals})")
    facts += [f"{name} {value:g}" for name, value in turn.notes.items()]
    result = [turn.action or "not carried out"]
    if turn.exit_code is not None:
        result.append(f"exit code {turn.exit_code}")
    result.append(f"signal {number_text(turn.signal)}")
    result.append(f"model {turn.model_seconds * 1e3:.1f} ms, environment {turn.sandbox_seconds * 1e3:.1f} ms")
    parts = [
        Text(", ".join(facts), style="dim"),
        Text(turn.reply, style="cyan"),
        Text(", ".join(result), style="dim"),
        Text(turn.observation),
    ]
    return Panel(Group(*parts), title=f"turn {turn.index}", title_align="left")


def _end(episode: Trajectory) -> Group:
    line = Text(f"stop: {episode.stop_reason}   reward: {number_text(episode.reward)}   ")
    line.append(f"rate: {number_text(episode.rate)}   passed: {episode.passed}")
    parts: list[Text | Table] = [line]
    if episode.error:
        parts.append(Text(episode.error, style="magenta"))
    table = Table(box=None, show_header=False)
    for record in episode.assertions:
        verdict = str(record.get("verdict"))
        table.add_row(
            Text(verdict, style=_VERDICTS.get(verdict, "")),
            Text(str(record.get("name"))),
            Text(str(record.get("detail"))),
        )
    parts.append(table)
    return Group(*parts)


def number_text(value: float | None) -> str:
    """A number to three places; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"
