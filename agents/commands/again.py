"""`python -m agents replay` and `rescore`: stored episodes in today's world."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console

from agents.chat import ChatError, ChatTemplate
from agents.commands.pages import clean, replay_page
from agents.commands.recorded_tasks import recorded_tasks
from agents.jsonl import RecordError
from agents.models.card import find_card
from agents.models.errors import ModelError
from agents.policies.bytes import ByteTokenizer
from agents.replay import Replayed, ReplayError, replay, template_for
from agents.trajectory import Trajectory, write_jsonl
from tasks.atomic_file import LONE_SURROGATES
from tasks.task import Task


def again(args: argparse.Namespace, episodes: Iterable[tuple[int, Trajectory]]) -> int:
    """Play the episodes again and print what came of each.

    Returns:
        0 if all is as it was, 1 if something differs, 2 if an episode cannot be played again.

    Raises:
        RecordError: The tasks or the tokenizer cannot be loaded, or the file to write is there already.
        OSError: A file cannot be read or written.
    """
    grades_only = args.command == "rescore"
    tasks, where = recorded_tasks(args.file, args.tasks)
    try:
        named = _tokenizer(args.model) if not grades_only and args.model else None
    except (ModelError, ValueError) as error:
        raise RecordError(str(error)) from error
    if args.out and Path(args.out).exists():
        raise RecordError(f"{args.out} is already there: remove it, or choose another name")
    console = Console()
    if args.tasks is None:
        console.print(clean(f"tasks: {where}"), markup=False, soft_wrap=True)
    status = 0
    with _new(args.out) if args.out else contextlib.nullcontext() as file:
        for number, episode in episodes:
            try:
                result = _again(args, episode, tasks, where, named, grades_only)
            except (ReplayError, ChatError) as error:
                replay_page(number, error, console)
                status = 2
                continue
            replay_page(number, result, console, grades_only=grades_only)
            same = result.same_grade and (grades_only or not result.differences)
            status = max(status, 0 if same else 1)
            if file is not None:
                write_jsonl([result.now], file)
    return status


def _new(path: str) -> TextIO:
    return open(path, "x", encoding="utf-8", errors=LONE_SURROGATES)


def _again(
    args: argparse.Namespace, episode: Trajectory, tasks: dict[str, Task], where: str, named: Any, grades_only: bool
) -> Replayed:
    if episode.task_id not in tasks:
        raise ReplayError(f"there is no task '{episode.task_id}' in {where}: say where it is with --tasks")
    setting = {"prompt_style": args.prompt_style or _unsaid_style(args, episode), "max_turns": args.max_turns}
    template = None
    if named is not None:
        template = template_for(episode, named)
    elif not grades_only and episode.tokenizer is not None:
        template = _at_hand(episode)
    return replay(
        episode,
        tasks[episode.task_id],
        template=template,
        any_task=grades_only,
        sandbox=args.sandbox,
        setting={key: value for key, value in setting.items() if value is not None},
    )


def _unsaid_style(args: argparse.Namespace, episode: Trajectory) -> str | None:
    """The prompt style of a record that does not name it: of the model's card, or of the run that the file lies in."""
    if episode.environment.get("prompt_style"):
        return None
    model = getattr(args, "model", None)  # `rescore` has none
    named = [Path(model)] if model and Path(model).is_dir() else []
    cards = (find_card(folder) for folder in (*named, *Path(args.file).resolve().parents[:2]))
    try:
        return next((card.prompt_style for card in cards if card is not None), None)
    except ValueError as error:
        raise RecordError(str(error)) from error


def _at_hand(episode: Trajectory) -> ChatTemplate | None:
    """The template of a tokenizer that ships with this package, if the episode was recorded with one.

    Raises:
        ReplayError: Such a tokenizer cannot be loaded here.
    """
    for name in ("bytes", "quickstart"):
        try:
            template = template_for(episode, _tokenizer(name))
        except ModelError as error:
            raise ReplayError(f"its ids cannot be compared: {error}; `rescore` compares grades alone") from error
        if template.fingerprint == episode.tokenizer:
            return template
    return None


@cache
def _tokenizer(name: str) -> Any:
    if name == "bytes":
        return ByteTokenizer()
    from agents.models.loading import load_tokenizer

    return load_tokenizer(name)
