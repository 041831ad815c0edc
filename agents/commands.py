"""The commands of `python -m agents`: show, replay, rescore, play; what they print."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import yaml
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from agents.chat import ChatError, ChatTemplate
from agents.models.card import ModelError, find_card
from agents.policies.human import HumanPolicy
from agents.policies.scripted import ByteTokenizer
from agents.policy import Sampling
from agents.records import read_trajectories
from agents.replay import Replayed, ReplayError, replay, template_for
from agents.rollout import Job, RolloutEngine
from agents.trajectory import FORGED, LOSSES, RecordError, Trajectory, Turn, write_jsonl
from envs.mixed import MixedEnv
from sandboxes import SandboxUnavailable, choose
from tasks.images import image_ids, other_images, recorded_images
from tasks.model import LONE_SURROGATES, TaskError
from tasks.sources import held_out_sources, load_tasks
from tasks.splits import SUFFIX
from tasks.task import Task

# -- The episodes of a file that a command is asked about -------------------------------------------------------------


class UsageError(ValueError):
    """What was asked for is not there."""


def chosen(args: argparse.Namespace) -> Iterator[tuple[int, Trajectory]]:
    """The episodes asked for, with their numbers in the file.

    Raises:
        UsageError: There is none such.
    """
    known: set[str] = set()
    last, found = -1, False
    for last, episode in enumerate(read_trajectories(args.file, allow_cut=args.allow_cut)):
        known.add(episode.task_id)
        if args.task in (None, episode.task_id) and args.episode in (None, last):
            found = True
            yield last, episode
            if args.episode is not None:
                return
    if found:
        return
    if last < 0:
        raise UsageError(f"{args.file} holds no episodes")
    if args.task is not None and args.task not in known:
        some = ", ".join(sorted(known)[:10])
        raise UsageError(f"no episode of task '{args.task}' in {args.file}; it has {some}")
    of_task = f" of task '{args.task}'" if args.task is not None else ""
    raise UsageError(f"there is no episode {args.episode}{of_task}: the numbers are 0 to {last}")


# ---------------------------------------------------------------------------------------------------------------------
# The tasks of stored episodes: those that are named, or those that the folder of their run names in its settings.

SETTINGS, MACHINE = "config.yaml", "environment.json"
"""Both lie in the folder of a run and of an evaluation; their episodes lie there too, or one or two folders below."""
DEFAULT = "library"


def recorded_tasks(file: str | Path, named: str | None) -> tuple[dict[str, Task], str]:
    """The tasks of the episodes in `file` by id, and where they come from, for people.

    Args:
        file: A file of episodes.
        named: What the user says; `None` takes what the run's folder says, and the library where there is none.

    Raises:
        RecordError: They cannot be loaded.
        OSError: A file cannot be read.
    """
    settings = None if named else _settings(Path(file))
    if settings is not None and not settings[1].get("tasks"):
        settings = None
    sources = [named or DEFAULT] if settings is None else _sources(settings[1])
    tasks: dict[str, Task] = {}
    try:
        for source in sources:
            for task in load_tasks(source):
                tasks.setdefault(task.id, task)  # of a pool and held-out tasks of one name, the run took the pool's
    except TaskError as error:
        if settings is None:
            raise RecordError(str(error)) from error
        raise RecordError(
            f"{settings[0]} names the tasks of these episodes, and they cannot be loaded: say with --tasks where they "
            f"are now\n{error}"
        ) from error
    where = ", ".join(map(str, sources))
    return tasks, where if settings is None else f"{where} (as {settings[0]} says)"


def recorded_model(file: str | Path) -> str | None:
    """The model of the run or evaluation that wrote `file`, as its user named it; `None` where there is none.

    Raises:
        RecordError: The settings cannot be read.
        OSError: As above.
    """
    settings = _settings(Path(file))
    named = None if settings is None else settings[1].get("model") or settings[1].get("model_name_or_path")
    return None if named is None else str(named)


def _sources(settings: dict[str, Any]) -> list[Any]:
    """Where the tasks are that the settings name."""
    held_out, sets = held_out_sources(str(settings.get("held_out") or "none"))
    by_itself = held_out not in ("", "none", "split") and not held_out.endswith(SUFFIX)
    return [settings["tasks"], *([held_out] if by_itself else []), *sets.values()]


def run_of(file: Path) -> Path | None:
    """The folder of the run or evaluation that wrote a file; `None` where it lies in none."""
    return next((f for f in file.parents[:3] if (f / SETTINGS).is_file() and (f / MACHINE).is_file()), None)


def _settings(file: Path) -> tuple[Path, dict[str, Any]] | None:
    """The settings of the run or evaluation that wrote `file`, and where they stand; `None` without."""
    folder = run_of(file.resolve())
    if folder is None:
        return None
    path = folder / SETTINGS
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RecordError(
            f"{path}: cannot be read ({error}): repair it, or say with --tasks where the tasks are"
        ) from error
    return (path, settings) if isinstance(settings, dict) else None


# -- A stored trajectory, or one that was played again, as a page for people ------------------------------------------

_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""Control characters (but for newlines and tabs), and lone surrogates, which no terminal can be sent."""
_VERDICTS = {"pass": "green", "fail": "red", "error": "magenta"}


def show(episodes: Iterable[tuple[int, Trajectory]], intents: Callable[[], Mapping[str, str]] = dict) -> int:
    """`python -m agents show`: the episodes of a file as a table, a single one turn by turn; returns 0.

    Args:
        episodes: With their numbers.
        intents: What tasks ask for, by id.
    """
    console, rest = Console(), iter(episodes)
    number, first = next(rest)
    second = next(rest, None)
    if second is None:
        episode_page(first, console, intents().get(first.task_id, ""))
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


def episode_page(episode: Trajectory, console: Console, intent: str = "") -> None:
    """What its task asks for, where that is known; every turn of one episode; its grade."""
    head = Text()
    head.append(clean(episode.task_id), style="bold")
    facts = [f"attempt {episode.attempt}"]
    if episode.seed is not None:
        facts.append(f"seed {episode.seed}")
    facts += [text for text in (episode.sampling, episode.source and f"from {episode.source}") if text]
    head.append(clean(f"  {'  '.join(facts)}\n"))
    head.append(_size(episode), "dim")
    console.print(head)
    if intent:
        console.print(_text(f"{intent}\n"))
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
    if episode.keep_observations is not None:
        longest = max(map(len, episode.prompts()), default=0)
        kept = f"prompts of at most {longest} ids with the last {episode.keep_observations} observations in full"
        return f"{prompt}, replies {replies} ids, {replies - forced} of them sampled; {kept}"
    return f"{prompt}, completion {context + replies} ids, {replies - forced} of them sampled"


def _turn(turn: Turn) -> Panel:
    facts = [f"{len(turn.context_ids)} ids of context", f"{len(turn.ids)} ids of reply"] if turn.ids else ["text only"]
    if turn.short_ids is not None:
        facts.append(f"{len(turn.short_ids)} of context as a line")
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


# -- `python -m agents replay` and `rescore`: stored episodes in today's world ----------------------------------------


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
        named = tokenizer_named(args.model) if not grades_only and args.model else None
    except (ModelError, ValueError) as error:
        raise RecordError(str(error)) from error
    if args.out and Path(args.out).exists():
        raise RecordError(f"{args.out} is already there: remove it, or choose another name")
    console = Console()
    if args.tasks is None:
        console.print(clean(f"tasks: {where}"), markup=False, soft_wrap=True)
    for line in _other_images(Path(args.file), tasks, args.sandbox):
        console.print(clean(f"warning: {line}"), markup=False, soft_wrap=True)
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


def _other_images(file: Path, tasks: Mapping[str, Task], sandbox: str) -> list[str]:
    """A line for each image that the run or evaluation that wrote `file` knew by another id.

    Raises:
        RecordError: Its record cannot be read.
        OSError: Likewise.
    """
    folder = run_of(file.resolve())
    if folder is None:
        return []
    path = folder / MACHINE
    try:
        before = recorded_images(path)
    except ValueError as error:
        raise RecordError(f"{path}: cannot be read ({error}): repair it, or copy the episodes elsewhere") from error
    try:
        return other_images(before, image_ids(list(tasks.values()), choose(sandbox))) if before else []
    except (SandboxUnavailable, ValueError):  # no such sandbox: each episode says so
        return []


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
            template = template_for(episode, tokenizer_named(name))
        except ModelError as error:
            raise ReplayError(f"its ids cannot be compared: {error}; `rescore` compares grades alone") from error
        except ChatError:  # it carries no tool calls, so the episode had another one
            continue
        if template.fingerprint == episode.tokenizer:
            return template
    return None


@cache
def tokenizer_named(name: str) -> Any:
    """The tokenizer of a model; `bytes` is the scripted policies'.

    Raises:
        ModelError: It cannot be loaded.
    """
    if name == "bytes":
        return ByteTokenizer()
    from agents.models.loading import load_tokenizer

    return load_tokenizer(name)


# -- `python -m agents play`: a person is the policy of one episode, which is stored like any other -------------------


def play(args: argparse.Namespace) -> int:
    """Play one episode in the terminal.

    Returns:
        0 if the task was passed, 1 if not, 3 if the machinery failed, 130 after Ctrl-C (nothing is stored).

    Raises:
        RecordError: There is no such task.
        OSError: The file to write to cannot be opened; nothing was played.
    """
    try:
        tasks = load_tasks(args.tasks)
        env = MixedEnv(tasks, args.task, sandbox=args.sandbox)
    except (TaskError, ValueError) as error:
        raise RecordError(str(error)) from error
    task = next(one for one in tasks if args.task in (None, one.id))
    job = Job(task, 0, args.seed)
    with _appending(args.out) if args.out else contextlib.nullcontext() as file:
        try:
            with RolloutEngine(HumanPolicy(), lambda: env, slots=1, workers=1) as engine:
                (episode,) = engine.run([job], Sampling(max_tokens=task.budget.turn_tokens)).trajectories
        except KeyboardInterrupt:
            print("\nleft without a grade", file=sys.stderr)
            return 130
        if file is not None:
            write_jsonl([episode], file)
    print(f"stopped: {episode.stop_reason}")
    for record in episode.assertions:
        print(f"  {record['verdict']:5} {record['name']}")
    if episode.passed is None:
        print(f"agents: {episode.error}", file=sys.stderr)
        return 3
    print(f"{'passed' if episode.passed else 'not passed'}: rate {episode.rate:.3f} after {len(episode.turns)} turns")
    return 0 if episode.passed else 1


@contextlib.contextmanager
def _appending(path: str) -> Iterator[TextIO]:
    """The file, open before anything is played; one that is new and stays empty is removed."""
    new = not Path(path).exists()
    with open(path, "a", encoding="utf-8", errors=LONE_SURROGATES) as file:
        try:
            yield file
        finally:
            if new and file.tell() == 0:
                Path(path).unlink(missing_ok=True)
