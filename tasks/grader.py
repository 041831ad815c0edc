"""Running a grader's commands in the sandbox of an episode that is over.

What the agent wrote must not decide how it is judged. So the files of a grader come only now, into a folder whose name
is drawn now; commands run in clean state (no variable, function, alias or directory of the agent), with a home of their
own; and the folder is gone before anything else runs.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from shlex import quote

from sandboxes.sandbox import CommandResult, Sandbox
from tasks.outcome import NoRoom

__all__ = ["NoRoom", "SandboxGrader"]

_LAY_SECONDS = 30.0
_SHOWN = b"turngym-grader"
_PIECE = 100_000
"""Longest piece of a file, in characters, that one statement writes."""


class SandboxGrader:
    """The `GraderHandle` of an open sandbox.

    Args:
        sandbox: Where the agent worked. Its shell state is neither used nor changed.
        folder: Name of the folder for files; the default is drawn for each command. For tests.
    """

    def __init__(self, sandbox: Sandbox, folder: str | None = None) -> None:
        self._sandbox = sandbox
        self._folder = folder
        self._quiet = False

    def run(self, command: str, files: Mapping[str, str] | None = None, timeout: float | None = None) -> CommandResult:
        """See `GraderHandle.run`."""
        if not self._quiet:
            # Processes that were allowed to stay end with the first command that does not allow it. The folder for
            # temporary files may be the agent's, and closed.
            self._sandbox.run('chmod u+rwx -- "${TMPDIR:-/tmp}"', timeout=_LAY_SECONDS, state="clean")
            self._quiet = True
        folder = self._folder or f"turngym-{secrets.token_hex(16)}"
        where = f'"${{TMPDIR:-/tmp}}"/{folder}'
        remove = f"rm -rf -- {where}"
        for statement in self._packed(_lay(where, files or {}, self._piece())):
            self._lay(f"set -e; umask 077; {statement}", remove)
        result = self._sandbox.run(
            f'export GRADER={where} WORKSPACE="$PWD" HOME={where} PYTHONNOUSERSITE=1 PYTHONHASHSEED=0\n'
            f'"$BASH" --noprofile --norc -c {quote(command)}\n'
            f"_code=$?; {remove}; exit $_code",
            timeout=timeout,
            state="clean",
        )
        if result.timed_out or result.truncated:  # it was killed before it could clean up
            self._sandbox.run(remove, timeout=_LAY_SECONDS, state="clean")
        # Equal runs must read equal, so the name that was drawn does not show (in a traceback, for example).
        name = folder.encode()
        return replace(result, stdout=result.stdout.replace(name, _SHOWN), stderr=result.stderr.replace(name, _SHOWN))

    def _lay(self, statement: str, remove: str) -> None:
        done = self._sandbox.run(statement, timeout=_LAY_SECONDS, state="clean")
        if done.exit_code == 0:
            return
        self._sandbox.run(remove, timeout=_LAY_SECONDS, state="clean")
        why = done.stderr_text.strip()[-300:] or f"exit code {done.exit_code}"
        # A sandbox that broke raises; one that answers, but takes no files, is as the agent left it.
        raise NoRoom(f"the agent left no place for the grader's files: {why}")

    def _piece(self) -> int:
        return max(256, min(_PIECE, self._sandbox.limits.command_bytes // 8))

    def _packed(self, statements: Iterator[str]) -> Iterator[str]:
        """Join statements as long as the sandbox takes them as one command."""
        room = self._sandbox.limits.command_bytes - 256
        waiting: list[str] = []
        size = 0
        for statement in statements:
            length = len(statement.encode("utf-8", "surrogateescape")) + 1
            if waiting and size + length > room:
                yield "\n".join(waiting)
                waiting, size = [], 0
            waiting.append(statement)
            size += length
        if waiting:
            yield "\n".join(waiting)


def _lay(where: str, files: Mapping[str, str], piece: int) -> Iterator[str]:
    """Statements that make the folder, empty, and write each file by pieces; nothing that stands there is followed."""
    yield f"rm -rf -- {where}; mkdir -- {where}"
    made: set[str] = set()
    for path, text in files.items():
        parent = path.rpartition("/")[0]
        if parent and parent not in made:
            made.add(parent)
            yield f"mkdir -p -- {where}/{quote(parent)}"
        target = f"{where}/{quote(path)}"
        yield f": > {target}"
        for start in range(0, len(text), piece):
            yield f"printf %s {quote(text[start : start + piece])} >> {target}"
