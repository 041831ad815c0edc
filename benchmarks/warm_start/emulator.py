"""A small part of bash and the GNU tools, in process, for making demonstrations by the hundred thousand.

It knows just the forms that the generated tasks and their wrong variants use, and raises on anything else: it never
guesses. What it does know it answers as bash 5.2 and coreutils 9, sed 4.9 and grep 3.8 do, to the byte; a test
compares it with the real programs, command by command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from sandboxes.sandbox import EntryKind, FileEntry

State = Mapping[str, str | None]
"""Path to text; None stands for a folder."""

_MISSING = "No such file or directory"
_FOREIGN = re.compile(r"[^a-zA-Z0-9 ./<>_-]")
_SUBSTITUTE = re.compile(r"s/([a-z]+)/([a-z]+)/")
_DELETE = re.compile(r"/([a-z]+)/d")


class UnsupportedCommandError(ValueError):
    """The emulator does not know this form of the command; run it in a real sandbox."""


class Effect(NamedTuple):
    """What a command did: the workspace after it, its exit code and both outputs."""

    files: State
    exit_code: int
    stdout: str
    stderr: str


class _Reply(NamedTuple):
    stdout: str = ""
    stderr: str = ""
    exit_code: int = 0


def run(files: State, command: str) -> Effect:
    """Run one command line on a workspace; `files` itself is left as it is.

    Raises:
        UnsupportedCommandError: outside the part that is emulated.
    """
    words, redirects = _parse(command)
    program = _PROGRAMS.get(words[0])
    if program is None:
        raise _unsupported(command)
    state = dict(files)
    stdin: str | None = None
    target: tuple[str, str] | None = None
    for operator, path in redirects:
        if state.get(path, "") is None or path in words[1:] or "/" in path:
            raise _unsupported(command)  # a folder, or the same file as input and output
        if operator == "<":
            if path not in state:
                return Effect(state, 1, "", f"bash: line 1: {path}: {_MISSING}\n")
            stdin = state[path]
        else:
            target = operator, path
            if operator == ">" or path not in state:
                state[path] = ""
    reply = program(state, words[1:], stdin)
    if reply is None:
        raise _unsupported(command)
    if target is None:
        return Effect(state, reply.exit_code, reply.stdout, reply.stderr)
    state[target[1]] = (state[target[1]] or "") + reply.stdout
    return Effect(state, reply.exit_code, "", reply.stderr)


def snapshot(files: State) -> dict[str, FileEntry]:
    """Return an emulated workspace as a sandbox's snapshot would show it."""
    return {path: _entry(text) for path, text in sorted(files.items())}


def _entry(text: str | None) -> FileEntry:
    if text is None:
        return FileEntry(kind=EntryKind.DIR, content=None, mode=0o755)
    content = text.encode()
    return FileEntry(content=content, size=len(content))


def _parse(command: str) -> tuple[list[str], list[tuple[str, str]]]:
    if _FOREIGN.search(command):
        raise _unsupported(command)
    words: list[str] = []
    redirects: list[tuple[str, str]] = []
    parts = iter(command.split())
    for part in parts:
        if part in ("<", ">", ">>"):
            path = next(parts, "")
            if not path or "<" in path or ">" in path:
                raise _unsupported(command)
            redirects.append((part, path))
        elif "<" in part or ">" in part:
            raise _unsupported(command)
        else:
            words.append(part)
    paths = [path for _, path in redirects]
    if not words or len(set(paths)) < len(paths) or sum(operator != "<" for operator, _ in redirects) > 1:
        raise _unsupported(command)
    return words, redirects


def _unsupported(command: str) -> UnsupportedCommandError:
    return UnsupportedCommandError(f"the emulator does not know this command: {command}")


# Each program takes the workspace (which it may change), its arguments and its standard input, and returns its reply,
# or None for a form that is not emulated.


def _plain(names: list[str]) -> bool:
    """Whether these are plain names: no options, no paths with folders."""
    return bool(names) and not any(name.startswith("-") or "/" in name or name == "." for name in names)


def _echo(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    if args and args[0].startswith("-"):
        return None
    return _Reply(" ".join(args) + "\n")


def _ls(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    if args:
        return None
    return _Reply("".join(f"{name}\n" for name in sorted(state) if "/" not in name))


def _cat(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    if not _plain(args):
        return None
    out, err = "", ""
    for name in args:
        text = state.get(name, "")
        if name not in state:
            err += f"cat: {name}: {_MISSING}\n"
        elif text is None:
            err += f"cat: {name}: Is a directory\n"
        else:
            out += text
    return _Reply(out, err, 1 if err else 0)


def _copy_or_move(program: str) -> Callable[[dict[str, str | None], list[str], str | None], _Reply | None]:
    def act(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
        if not _plain(args) or len(args) != 2 or args[0] == args[1]:
            return None
        source, target = args
        if source not in state:
            return _Reply("", f"{program}: cannot stat '{source}': {_MISSING}\n", 1)
        text = state[source]
        if text is None:
            return None
        if target in state and state[target] is None:
            target = f"{target}/{source}"
        state[target] = text
        if program == "mv":
            del state[source]
        return _Reply()

    return act


def _rm(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    if not _plain(args):
        return None
    err = ""
    for name in args:
        if name not in state:
            err += f"rm: cannot remove '{name}': {_MISSING}\n"
        elif state[name] is None:
            err += f"rm: cannot remove '{name}': Is a directory\n"
        else:
            del state[name]
    return _Reply("", err, 1 if err else 0)


def _mkdir(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    if len(args) != 2 or args[0] != "-p" or not _plain(args[1:]) or state.get(args[1]) is not None:
        return None
    state[args[1]] = None
    return _Reply()


def _sed(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    in_place = args[:1] == ["-i"]
    args = args[in_place:]
    if len(args) != 2 or not _plain(args[1:]):
        return None
    script, name = args
    substitute, delete = _SUBSTITUTE.fullmatch(script), _DELETE.fullmatch(script)
    if name not in state:
        known = substitute or delete
        return _Reply("", f"sed: can't read {name}: {_MISSING}\n", 2) if known else None
    text = state[name]
    if text is None:
        return None
    lines = text.splitlines(keepends=True)
    if substitute:
        lines = [line.replace(substitute[1], substitute[2], 1) for line in lines]
    elif delete:
        lines = [line for line in lines if delete[1] not in line]
    else:
        return None
    if not in_place:
        return _Reply("".join(lines))
    state[name] = "".join(lines)
    return _Reply()


def _grep(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    if len(args) != 2 or not args[0].isalnum() or not _plain(args):
        return None
    key, name = args
    if name not in state:
        return _Reply("", f"grep: {name}: {_MISSING}\n", 2)
    text = state[name]
    if text is None:
        return None
    found = [line for line in text.splitlines(keepends=True) if key in line]
    return _Reply("".join(found), "", 0 if found else 1)


def _sort(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    option = args[0] if args and args[0] in ("-r", "-u") else ""
    args = args[1:] if option else args
    if len(args) != 1 or not _plain(args):
        return None
    if args[0] not in state:
        return _Reply("", f"sort: cannot read: {args[0]}: {_MISSING}\n", 2)
    text = state[args[0]]
    if text is None:
        return None
    lines = text.splitlines(keepends=True)
    return _Reply("".join(sorted(set(lines) if option == "-u" else lines, reverse=option == "-r")))


def _head_or_tail(program: str) -> Callable[[dict[str, str | None], list[str], str | None], _Reply | None]:
    def act(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
        count = 10
        if len(args) == 3 and args[0] == "-n" and args[1].isdigit():
            count, args = int(args[1]), args[2:]
        if len(args) != 1 or not _plain(args) or count == 0:
            return None
        if args[0] not in state:
            return _Reply("", f"{program}: cannot open '{args[0]}' for reading: {_MISSING}\n", 1)
        text = state[args[0]]
        if text is None:
            return None
        lines = text.splitlines(keepends=True)
        return _Reply("".join(lines[:count] if program == "head" else lines[-count:]))

    return act


def _wc(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    if args == ["-l"] and stdin is not None:
        return _Reply(f"{stdin.count(chr(10))}\n")
    if len(args) != 2 or args[0] != "-l" or not _plain(args[1:]):
        return None
    if args[1] not in state:
        return _Reply("", f"wc: {args[1]}: {_MISSING}\n", 1)
    text = state[args[1]]
    return None if text is None else _Reply(f"{text.count(chr(10))} {args[1]}\n")


def _tr(state: dict[str, str | None], args: list[str], stdin: str | None) -> _Reply | None:
    if args != ["a-z", "A-Z"] or stdin is None:
        return None
    return _Reply(stdin.upper())


_PROGRAMS: dict[str, Callable[[dict[str, str | None], list[str], str | None], _Reply | None]] = {
    "cat": _cat,
    "cp": _copy_or_move("cp"),
    "echo": _echo,
    "grep": _grep,
    "head": _head_or_tail("head"),
    "ls": _ls,
    "mkdir": _mkdir,
    "mv": _copy_or_move("mv"),
    "rm": _rm,
    "sed": _sed,
    "sort": _sort,
    "tail": _head_or_tail("tail"),
    "tr": _tr,
    "wc": _wc,
}
