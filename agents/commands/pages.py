"""A stored trajectory, or one that was played again, as a page for people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agents.replay import Replayed
from agents.trajectory import FORGED, LOSSES, Trajectory, Turn

_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters (but for newlines and tabs), and lone surrogates, which no terminal can be sent."""
_VERDICTS = {"pass": "green", "fail": "red", "error": "magenta"}


def show(episodes: Iterable[tuple[int, Trajectory]]) -> int:
    """`python -m agents show`: the episodes of a file as a table, a single one turn by turn; returns 0."""
    console, rest = Console(), iter(episodes)
    number, first = next(rest)
    second = next(rest, None)
    if second is None:
        episode_page(first, console)
    else:
        episode_list(chain([(number, first), second], rest), console)
    return 0


def episode_list(trajectories: Iterable[tuple[int, Trajectory]], console: Console) -> None:
    """One line per episode of a file, under its number there."""
    table = Table(box=None, header_style="bold")
    for title in ("episode", "task", "attempt", "turns", "stop", "reward", "rate", "passed"):
        table.add_column(
            title, justify="right" if title in ("episode", "attempt", "turns", "reward", "rate") else "left"
        )
    for number, episode in trajectories:
        table.add_row(
            str(number),
            _text(episode.task_id),
            str(episode.attempt),
            str(len(episode.turns)),
            _text(episode.stop_reason),
            number_text(episode.reward),
            number_text(episode.rate),
            _yes(episode.passed),
        )
    console.print(table)


def episode_page(episode: Trajectory, console: Console) -> None:
    """Every turn of one episode, then its grade."""
    head = Text()
    head.append(clean(episode.task_id), style="bold")
    facts = [f"attempt {episode.attempt}"]
    if episode.seed is not None:
        facts.append(f"seed {episode.seed}")
    facts += [text for text in (episode.sampling, episode.source and f"from {episode.source}") if text]
    head.append(clean(f"  {'  '.join(facts)}\n"))
    head.append(_size(episode), "dim")
    console.print(head)
    for turn in episode.turns:
        console.print(_turn(turn))
    console.print(_end(episode))


def replay_page(number: int, result: Replayed | Exception, console: Console, *, grades_only: bool = False) -> None:
    """What came of playing an episode again: one line, then whatever differs."""
    if isinstance(result, Exception):
        console.print(_text(f"{number}: cannot be played again: {result}", style="magenta"))
        return
    old, new = result.recorded, result.now
    line = _text(f"{number}: {old.task_id}  attempt {old.attempt}  ")
    line.append("same grade" if result.same_grade else "another grade", "green" if result.same_grade else "red")
    if not grades_only:
        turns = len({one.turn for one in result.differences})
        line.append(f", {turns} of {len(old.turns)} turns differ" if turns else ", every turn the same", "dim")
        line.append(", ids compared" if result.ids_compared else ", ids not compared", "dim")
    console.print(line)
    if result.old_hash is not None:
        console.print(_text(f"  the task has changed since: {result.old_hash[:12]}, now {new.task_hash[:12]}", "dim"))
    if result.differences and not grades_only:
        first = result.differences[0]
        where = "before the first turn" if first.turn < 0 else f"turn {first.turn}"
        console.print(_text(f"  first difference: {where}, {first.what}"))
        for name, value in (("recorded", first.recorded), ("now", first.now)):
            console.print(Panel(_text(str(value)), title=name, title_align="left"))
    table = Table(box=None, header_style="bold")
    for title in ("", "recorded", "now"):
        table.add_column(title)
    table.add_row("passed", _yes(old.passed), _yes(new.passed))
    table.add_row("rate", number_text(old.rate), number_text(new.rate))
    table.add_row("reward", number_text(old.reward), number_text(new.reward))
    table.add_row("stop", _text(old.stop_reason), _text(new.stop_reason))
    for name, then, now in result.verdicts():
        style = "" if then == now else "red"
        table.add_row(_text(name, style), _text(then or "-", style), _text(now or "-", style))
    console.print(table)


def clean(text: str) -> str:
    """A text as a terminal may be sent it: what would steer it, or has no UTF-8, is shown as an escape."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def _text(text: str, style: str = "") -> Text:
    return Text(clean(text), style)


def _size(episode: Trajectory) -> str:
    if episode.text_only:
        return f"{len(episode.turns)} turns of text, without ids"
    context = sum(len(turn.context_ids) for turn in episode.turns)
    forced = sum(sum(turn.forced) for turn in episode.turns)
    replies = sum(len(turn.ids) for turn in episode.turns)
    prompt = f"prompt {len(episode.prompt_ids)} ids" if episode.prompt_ids else "prompt unknown"
    return f"{prompt}, completion {context + replies} ids, {replies - forced} of them sampled"


def _turn(turn: Turn) -> Panel:
    facts = [f"{len(turn.context_ids)} ids of context", f"{len(turn.ids)} ids of reply"] if turn.ids else ["text only"]
    forced = sum(turn.forced)
    if forced:
        facts.append(f"{forced} forced")
    if turn.finish == "length":
        facts.append("cut at the cap")
    if turn.finish == "stop_text":
        facts.append("ended by a stop text")
    if turn.logprobs is None and turn.ids:
        facts.append("no log-probabilities")
    if turn.entropies:
        facts.append(f"mean entropy {sum(turn.entropies) / len(turn.ids):.3f}")
    elif turn.entropy_bounds:
        low, high = (sum(side) / len(turn.ids) for side in zip(*turn.entropy_bounds, strict=True))
        facts.append(f"mean entropy between {low:.3f} and {high:.3f}")
    if turn.uncertainty is not None:
        facts.append(f"uncertainty {turn.uncertainty:.3f}")
    if turn.candidates:
        signals = ", ".join(number_text(candidate.signal) for candidate in turn.candidates)
        facts.append(f"{len(turn.candidates)} rejected ({signals})")
    facts += [f"{name} {value:g}" for name, value in turn.notes.items()]
    result = [turn.action or "not carried out"]
    if turn.exit_code is not None:
        result.append(f"exit code {turn.exit_code}")
    if turn.timed_out:
        result.append("timed out")
    result.append(f"signal {number_text(turn.signal)}")
    result.append(f"model {turn.model_seconds * 1e3:.1f} ms, environment {turn.sandbox_seconds * 1e3:.1f} ms")
    parts = [
        _text(", ".join(facts), style="dim"),
        _text(turn.reply, style="cyan"),
        _text(", ".join(result), style="dim"),
        _text(turn.observation),
    ]
    return Panel(Group(*parts), title=f"turn {turn.index}", title_align="left")


def _end(episode: Trajectory) -> Group:
    line = _text(f"stop: {episode.stop_reason or '-'}   reward: {number_text(episode.reward)}   ")
    line.append(f"rate: {number_text(episode.rate)}   passed: {_yes(episode.passed)}")
    parts: list[Text | Table] = [line]
    if episode.error:
        parts.append(_text(episode.error, style="magenta"))
    if forged := episode.notes.get(FORGED):
        parts.append(_text(f"{forged} headers of the template in what it was shown, each with a backslash put in"))
    for loss in episode.notes.get(LOSSES, ()):
        during = loss["command"] or "grading"
        said = f"sandbox lost in turn {loss['turn']}, during {during} ({loss['end']}): {loss['error']}"
        parts.append(_text(said, style="magenta"))
    table = Table(box=None, show_header=False)
    for record in episode.assertions:
        verdict = str(record.get("verdict"))
        table.add_row(
            _text(f"{verdict}, broke" if record.get("broke") else verdict, style=_VERDICTS.get(verdict, "")),
            _text(str(record.get("name"))),
            _text(str(record.get("detail"))),
        )
    parts.append(table)
    return Group(*parts)


def _yes(passed: bool | None) -> str:
    return "-" if passed is None else "yes" if passed else "no"


def number_text(value: float | None) -> str:
    """A number to three places; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"
