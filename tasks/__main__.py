"""`python -m tasks`: list, show, prove, write, import, count and split tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sandboxes.command import started
from tasks import cli
from tasks.command_line import parser
from tasks.problems import TaskError, counted


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        Exit code: 0 all well, 1 `check` found a broken task or file, 2 a refusal: files that cannot be read as tasks, a
        command that makes no sense, a sandbox that is missing.
    """
    started()
    options = parser().parse_args(arguments)
    try:
        match options.command:
            case "list":
                wanted = cli.Filter(
                    families=options.family,
                    tags=options.tag,
                    difficulties=options.difficulty,
                    kinds=options.assertion,
                    words=options.grep,
                    proven=options.oracle,
                )
                return cli.list_tasks(options.spec, wanted)
            case "show":
                return cli.show(options.spec, options.id, as_yaml=options.yaml)
            case "new":
                return cli.new(options.name, options.dir)
            case "import":
                from tasks import transfer

                return transfer.import_tasks(options.source, options.destination)
            case "generate":
                from tasks import transfer

                return transfer.generate(options.family, options.n, options.seed, options.out)
            case "stats":
                from tasks import stats

                return stats.stats(cli.load_tasks(options.spec), as_json=options.json)
            case "split":
                from tasks import splitting

                return splitting.split(
                    options.spec,
                    fraction=options.fraction,
                    seed=options.seed,
                    unseen=options.unseen,
                    confirm=options.confirm,
                    out=options.out,
                )
            case _:
                from tasks import checking  # only here: it starts threads and sandboxes

                return checking.check(
                    options.spec,
                    every=options.all,
                    sample=options.sample,
                    seed=options.seed,
                    backend=options.sandbox,
                    jobs=options.jobs,
                    as_json=options.json,
                    junit=options.junit,
                )
    except TaskError as error:
        print(f"tasks: {error}", file=sys.stderr)
        print(f"{counted(len(error.problems), 'problem')}, nothing was done", file=sys.stderr)
        return 2


if __name__ == "__main__":
    try:
        code = run()
        sys.stdout.flush()
    except BrokenPipeError:  # `python -m tasks list | head`: the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 130
    sys.exit(code)
