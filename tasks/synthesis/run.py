"""Tasks from a model: each draft is asked for, proven in a sandbox, compared, kept or refused, and recorded.

The record, `drafts.jsonl`, is what counts: a line a draft, in order, and a file for each kept task is made from its
line. Whoever is killed goes on behind the last line; replies that had no line yet are asked for again.
"""

from __future__ import annotations

import fcntl
import hashlib
import itertools
import json
import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from tasks.comparable import Known
from tasks.endpoints.chat import ChatModel, Price, Reply
from tasks.model import Problem, StrictModel, TaskError, atomic_file, remove_part_files
from tasks.synthesis.draft import Order, Reason, example, prompt_of, prompter
from tasks.synthesis.proving import PROVEN, Judged, Prover
from tasks.task import Task
from tasks.yaml import parse_task

KEPT = "kept"
"""Verdict of a draft that became a task; the others are reasons."""


@dataclass(frozen=True, slots=True)
class Draft:
    """What is recorded of a draft: one line of `drafts.jsonl`.

    Attributes:
        index: Of all drafts, from 0.
        task_id: What the task is called.
        persona: Name of who asks.
        skill: Name of what it is about.
        seed: Sent with the prompt.
        prompt: What the model was asked.
        reply: What it said, without the key of the endpoint.
        prompt_tokens: As the server counts, `None` where it does not; the next two likewise.
        completion_tokens: Of the reply.
        cached_tokens: Of the prompt.
        verdict: `kept`, or why not: a `Reason` or a `tasks.proof.Fault`.
        details: Why not, in full.
        content_hash: Of the kept task.
        task: The kept task as YAML.
    """

    index: int
    task_id: str
    persona: str
    skill: str
    seed: int
    prompt: str
    reply: str
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    verdict: str
    details: list[str] = field(default_factory=list)
    content_hash: str = ""
    task: str = ""


# -- The folder: settings, a line a draft, a file a kept task ---------------------------------------------------------

SETTINGS, DRAFTS = "synthesis.json", "drafts.jsonl"


def settings_of(
    model: ChatModel, seed: int, tables: Sequence[StrictModel], others: Mapping[str, Sequence[Task]], sandbox: str
) -> dict[str, Any]:
    """What decides what becomes of drafts, JSON-able; tables and tasks by a digest."""
    made_of = {type(table).__name__.lower(): table.model_dump_json() for table in tables}
    made_of["prompt"] = prompter().template
    made_of |= {where: "\n".join(sorted(task.content_hash for task in tasks)) for where, tasks in others.items()}
    digests = {name: hashlib.sha256(text.encode()).hexdigest()[:16] for name, text in made_of.items()}
    return {"endpoint": model.base_url, "request": model.body, "seed": seed, "sandbox": sandbox, **digests}


class Folder:
    """An output folder that this process alone writes to. Made by `opened`.

    Attributes:
        drafts: What is recorded, in order.
    """

    def __init__(self, path: Path, lines: BinaryIO) -> None:
        self.path, self._lines = path, lines
        self.drafts = list(_read(path / DRAFTS, lines))
        for draft in self.drafts:
            self._lay(draft)

    def add(self, draft: Draft) -> None:
        """Record a draft, and write its task if it is kept."""
        self._lines.write(json.dumps(asdict(draft), ensure_ascii=True).encode() + b"\n")
        self._lines.flush()
        os.fsync(self._lines.fileno())
        self.drafts.append(draft)
        self._lay(draft)

    def _lay(self, draft: Draft) -> None:
        path = self.path / f"{draft.task_id}.yaml"
        if draft.verdict == KEPT and not path.exists():  # one that somebody has edited since is theirs
            with atomic_file(path) as file:
                file.write(draft.task)


@contextmanager
def opened(path: Path, settings: Mapping[str, Any]) -> Iterator[Folder]:
    """Begin a synthesis in a new or empty folder, or go on with the one that is there.

    Raises:
        TaskError: It cannot be written, holds something else, was begun with other settings, or another process is at
            work in it.
    """
    try:
        _begin(path, settings)
        with open(path / DRAFTS, "a+b") as lines:
            try:
                fcntl.flock(lines, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise TaskError(Problem("another process is at work here: wait for it to end", str(path))) from None
            remove_part_files(path)  # of a killed process
            yield Folder(path, lines)
    except OSError as error:
        raise TaskError(Problem(f"cannot be written: {error.strerror or error}", str(path))) from error


def _begin(path: Path, settings: Mapping[str, Any]) -> None:
    """Write the settings, or compare them with those that are there."""
    path.mkdir(parents=True, exist_ok=True)
    if not (path / SETTINGS).exists():
        if any(not name.startswith(SETTINGS) for name in os.listdir(path)):
            raise TaskError(Problem(f"holds something, but no {SETTINGS}: choose a new folder", str(path)))
        with atomic_file(path / SETTINGS) as file:
            json.dump(settings, file, indent=1)
    try:
        begun = dict(json.loads((path / SETTINGS).read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise TaskError(Problem(f"holds no settings: {error}", str(path / SETTINGS))) from error
    if differ := [key for key in {**begun, **settings} if begun.get(key) != settings.get(key)]:
        said = "; ".join(f"{key} was {begun.get(key)!r} and is {settings.get(key)!r}" for key in differ)
        raise TaskError(Problem(f"was begun with other settings ({said}): give those, or a new folder", str(path)))


def _read(path: Path, lines: BinaryIO) -> Iterator[Draft]:
    """Yield what is recorded; a last line that was not finished is cut off."""
    lines.seek(0)
    content = lines.read()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        lines.truncate(len(whole))
    for number, line in enumerate(whole.splitlines()):
        try:
            draft = Draft(**json.loads(line))
            if draft.index != number:
                raise ValueError(f"index {draft.index} where {number} is next")
        except (ValueError, TypeError) as error:
            raise TaskError(Problem(f"is no line of a synthesis: {error}", str(path), number + 1)) from error
        yield draft


# -- Asking, proving, comparing ---------------------------------------------------------------------------------------


def synthesise(
    folder: Folder,
    todo: Iterator[Order],
    model: ChatModel,
    prover: Prover,
    others: Mapping[str, Sequence[Task]],
    *,
    concurrency: int,
    say: Callable[[str], None],
) -> None:
    """Ask for drafts, and record what became of each, in their order.

    Args:
        folder: Where they are recorded.
        todo: What is asked for; those that are recorded are left out.
        model: Who is asked. It is closed at the end.
        prover: Who proves; likewise.
        others: Tasks that drafts must not be like, under the names of their sources.
        concurrency: Requests under way at a time.
        say: Takes a line for people, about each draft.

    Raises:
        PolicyError: The endpoint failed. What came before that is recorded.
        SandboxUnavailable: No sandbox can be opened.
    """
    known = Known()
    known.add(example(), "the prompt")
    for where, tasks in others.items():
        for task in tasks:
            known.add(task, where)
    for draft in folder.drafts:
        if draft.verdict == KEPT:
            known.add(parse_task(draft.task, draft.task_id), DRAFTED)
    rest = itertools.islice(todo, len(folder.drafts), None)
    with closing(_judged(rest, model, prover, concurrency)) as judged:
        for order, prompt, reply, found in judged:
            draft = _compared(order, prompt, reply, found, known)
            folder.add(draft)
            why = f": {draft.details[0]}" if draft.details else ""
            say("".join(mark if mark.isprintable() else "?" for mark in f"{draft.task_id}  {draft.verdict}{why}"))


DRAFTED = "the drafts"
"""Where a kept draft is from, for its twins."""

_Found = tuple[Order, str, Reply, Judged]


def _judged(todo: Iterator[Order], model: ChatModel, prover: Prover, concurrency: int) -> Generator[_Found, None, None]:
    """Yield what drafts came to in the order of `todo`; some are asked for and proven ahead."""
    template = prompter()

    def one(order: Order) -> _Found:
        prompt = prompt_of(template, order)
        reply = model.ask(prompt, order.seed)
        return order, prompt, reply, prover.judge(reply, order)

    ahead: deque[Future[_Found]] = deque()
    pool = ThreadPoolExecutor(concurrency, thread_name_prefix="draft")
    try:
        while True:
            ahead += [pool.submit(one, order) for order in itertools.islice(todo, 2 * concurrency - len(ahead))]
            if not ahead:
                return
            yield ahead.popleft().result()
    finally:
        model.close()  # ends what is under way
        prover.close()
        pool.shutdown(wait=True, cancel_futures=True)


def _compared(order: Order, prompt: str, reply: Reply, found: Judged, known: Known) -> Draft:
    """The record of a draft; a proven one is kept if it is like no other task."""
    verdict, details, content_hash = found.verdict, list(found.details), ""
    if verdict == PROVEN:
        task = parse_task(found.task, order.task_id)
        twin = known.twin_of(task)
        if twin is not None:
            where, pair = twin
            verdict = Reason.TWIN.value
            details = [f"is like {pair.other.id} of {where} (similarity {pair.similarity:.2f})"]
        else:
            verdict, content_hash = KEPT, task.content_hash
            known.add(task, DRAFTED)
    return Draft(
        index=order.index,
        task_id=order.task_id,
        persona=order.persona.name,
        skill=order.skill.name,
        seed=order.seed,
        prompt=prompt,
        reply=reply.text,
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cached_tokens=reply.cached_tokens,
        verdict=verdict,
        details=details,
        content_hash=content_hash,
        task=found.task if verdict == KEPT else "",
    )


# -- What it came to --------------------------------------------------------------------------------------------------


def yields(drafts: Sequence[Draft], price: Price | None = None) -> tuple[list[list[str]], list[str]]:
    """What became of drafts, for people.

    Returns:
        Rows of a table (what, which, drafts, kept), and lines on tokens and cost.
    """
    kept = [draft for draft in drafts if draft.verdict == KEPT]
    rows = [["", "", "drafts", "kept"], ["all", "", str(len(drafts)), str(len(kept))]]
    refused = Counter(draft.verdict for draft in drafts if draft.verdict != KEPT)
    rows += [["refused", reason, str(number), ""] for reason, number in sorted(refused.items())]
    for what in ("persona", "skill"):
        every, good = (Counter(str(getattr(draft, what)) for draft in some) for some in (drafts, kept))
        rows += [[what, name, str(every[name]), str(good[name])] for name in sorted(every)]
    counts = [
        (draft.prompt_tokens, draft.completion_tokens, draft.cached_tokens or 0)
        for draft in drafts
        if draft.prompt_tokens is not None and draft.completion_tokens is not None
    ]
    missing = len(drafts) - len(counts)
    note = f" ({missing} of {len(drafts)} replies came without counts)" if missing else ""
    prompt, completion, cached = (sum(numbers) for numbers in zip((0, 0, 0), *counts, strict=True))
    lines = [f"tokens: prompt {prompt:,}, completion {completion:,}{note}"]
    if price is not None:
        cost = price.cost(prompt, completion, cached)
        lines.append(f"cost: {cost:.6g}" + (f", {cost / len(kept):.6g} for each kept task" if kept else "") + note)
    return rows, lines
