"""The command line of `python -m tasks synthesise`."""

from __future__ import annotations

import argparse
import os
import sys
from itertools import islice
from pathlib import Path
from typing import Any

from sandboxes.guard import add_command, positive
from sandboxes.sandbox import Backend, SandboxError
from tasks.endpoints import PRICE
from tasks.model import TaskError, counted, table
from tasks.sources import load_tasks


def add(commands: Any, spec: str) -> None:
    """Add the command; `spec` says what a source of tasks is."""
    command = add_command(
        commands,
        "synthesise",
        "have a model write tasks, and keep those that are proven",
        run,
        description="A persona and a skill become a prompt for a model at a chat endpoint. Its draft is proven in a\n"
        "sandbox as `check` does, compared with other tasks and with the drafts before it, and kept as a file, or\n"
        "refused. Each draft is a line of drafts.jsonl. The same command goes on where it was stopped.\n"
        "The endpoint's key is read from OPENAI_API_KEY.\n"
        f"SPEC: {spec}.",
        example="python -m tasks synthesise --endpoint http://localhost:8000/v1 --model M -n 200 --output drafts",
    )
    option = command.add_argument
    option("--endpoint", required=True, metavar="URL", help="address up to and with the version")
    option("--model", required=True, metavar="M", help="the model's name there")
    option("--output", required=True, type=Path, metavar="FOLDER", help="for the kept tasks and the record")
    option("-n", required=True, type=positive, metavar="N", help="drafts to ask for; more of them go on with a record")
    option("--personas", type=Path, metavar="FILE", help="who asks (default: the table that ships)")
    option("--skills", type=Path, metavar="FILE", help="what tasks are about (default: the table that ships)")
    option("--seed", type=int, default=0, help="of the order of personas and skills, and of sampling (default 0)")
    option("--pool", action="append", default=[], metavar="SPEC", help="tasks that none may be like; may be repeated")
    option("--held_out", action="append", default=[], metavar="SPEC", help="the same, for tasks that are held out")
    option("--temperature", type=float, default=1.0, metavar="X", help="of sampling (default 1)")
    option("--max_tokens", type=positive, default=4096, metavar="N", help="cap on a reply (default 4096)")
    option("--request_body", metavar="JSON", help="further keys of each request; null leaves one out")
    option("--price", **PRICE)
    option("--concurrency", type=positive, default=8, metavar="N", help="requests at a time (default 8)")
    option("--jobs", type=positive, metavar="N", help="sandboxes at a time (default: one per core, at most 8)")
    safe = ["auto", *(backend.value for backend in Backend if backend is not Backend.LOCAL)]
    option("--sandbox", default="auto", choices=safe, help="where drafts are proven (default: auto), never local")


def run(options: argparse.Namespace) -> int:
    """Begin, or go on, and print what it came to.

    Returns:
        Exit code: 0 all drafts have a verdict, 2 the endpoint or the sandbox failed.

    Raises:
        TaskError: The command makes no sense, or the folder cannot be used.
    """
    from sandboxes import open_sandbox  # only here: nothing else asks a model, and few commands open a sandbox
    from tasks.endpoints import PolicyError
    from tasks.endpoints.chat import ChatModel, read_body, read_price
    from tasks.synthesis import draft
    from tasks.synthesis.proving import Prover
    from tasks.synthesis.run import opened, settings_of, synthesise, yields

    tables = (
        draft.load_table(options.personas or draft.PERSONAS, draft.Personas),
        draft.load_table(options.skills or draft.SKILLS, draft.Skills),
    )
    others = {"pool": options.pool, "held_out": options.held_out}
    known = {where: [task for spec in specs for task in load_tasks(spec)] for where, specs in others.items()}
    try:
        price = read_price(options.price)
        body = {"temperature": options.temperature, "max_tokens": options.max_tokens, **read_body(options.request_body)}
        model = ChatModel(options.model, options.endpoint, body=body)
    except ValueError as error:
        raise TaskError(str(error)) from error
    settings = settings_of(model, options.seed, tables, known, options.sandbox)
    todo = islice(draft.orders(tables[0].personas, tables[1].skills, options.seed), options.n)
    with opened(options.output, settings) as folder:
        try:
            open_sandbox(options.sandbox).close()  # before anybody pays for a reply
            prover = Prover(options.sandbox, options.jobs or min(os.cpu_count() or 1, 8))
            synthesise(folder, todo, model, prover, known, concurrency=options.concurrency, say=print)
        except (PolicyError, SandboxError) as error:
            print(f"tasks: {error}", file=sys.stderr)
            print(f"{counted(len(folder.drafts), 'draft')} recorded; the same command goes on", file=sys.stderr)
            return 2
        rows, lines = yields(folder.drafts, price)
    print("\n".join(["", table(rows), *lines]))
    return 0
