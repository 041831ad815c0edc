"""The folder of a Harbor task, and its Dockerfile: what of it is the workspace, and what only an own image has."""

from __future__ import annotations

import json
import os
import posixpath
import re
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from sandboxes.docker.image import packages
from sandboxes.inside.variables import is_owned, is_variable, loads_code
from sandboxes.sandbox import EntryKind, FileEntry
from tasks.model import Problem, TaskError

# -- The folder: each file is read once, no link is followed, nothing but regular files is opened ----------------------

PARTS = ("environment", "tests", "solution")


@dataclass(frozen=True, slots=True)
class Tree:
    """A task folder, read.

    Attributes:
        folder: Where it is.
        files: What stands in it, by path; of other folders than `PARTS` nothing.
    """

    folder: Path
    files: dict[str, FileEntry]

    def place(self, name: str) -> str:
        """Where a file is, for messages."""
        return str(self.folder / name)

    def has(self, name: str) -> bool:
        """Whether a plain file stands there."""
        entry = self.files.get(name)
        return entry is not None and entry.kind is EntryKind.FILE

    def below(self, name: str) -> dict[str, FileEntry]:
        """What lies in a folder, by path in it."""
        start = f"{name}/"
        return {path[len(start) :]: entry for path, entry in self.files.items() if path.startswith(start)}

    def text(self, name: str) -> str:
        """The text of a file, with plain line ends.

        Raises:
            TaskError: It is missing, no plain file, or no UTF-8.
        """
        entry = self.files.get(name)
        if entry is None:
            raise TaskError(Problem("is missing", self.place(name)))
        if entry.content is None:
            raise TaskError(Problem("is no plain file (links are not followed)", self.place(name)))
        try:
            return entry.content.decode("utf-8-sig").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            raise TaskError(Problem(f"is not UTF-8 text ({error}): save it as UTF-8", self.place(name))) from error


def read_tree(folder: Path) -> Tree:
    """Read a task folder.

    Raises:
        TaskError: Something in it cannot be read, or is neither a file, a folder nor a link.
    """
    files: dict[str, FileEntry] = {}
    todo = [("", os.fspath(folder))]
    while todo:
        start, place = todo.pop()
        try:
            with os.scandir(place) as found:
                for item in found:
                    name = start + item.name
                    if start or not item.is_dir(follow_symlinks=False) or name in PARTS:
                        entry = files[name] = _entry(item)
                        if entry.kind is EntryKind.DIR:
                            todo.append((f"{name}/", item.path))
        except OSError as error:
            raise TaskError(Problem(f"cannot be read ({error.strerror})", str(error.filename or place))) from error
    return Tree(folder, dict(sorted(files.items())))


def _entry(item: os.DirEntry[str]) -> FileEntry:
    status = item.stat(follow_symlinks=False)
    if stat.S_ISREG(status.st_mode):
        with open(item.path, "rb") as file:
            content = file.read()
        return FileEntry(EntryKind.FILE, content, status.st_mode & 0o777, size=len(content))
    if stat.S_ISDIR(status.st_mode):
        return FileEntry(EntryKind.DIR, None, 0o755)
    if stat.S_ISLNK(status.st_mode):
        return FileEntry(EntryKind.SYMLINK, None, 0o777, os.readlink(item.path))
    raise TaskError(Problem("is neither a file, a folder nor a link", item.path))


# -- The Dockerfile ----------------------------------------------------------------------------------------------------

DOCKERFILE = "environment/Dockerfile"
PLAIN_BASES = re.compile(
    r"(?:docker\.io/)?(?:library/)?(?:debian|ubuntu|python|turngym-shell)(?::[\w.-]+)?(?:@sha256:\w+)?"
)
"""Images that hold nothing of a task: where no more than our own packages is added, any sandbox stands in for them."""
_APT = re.compile(r"apt(?:-get)?$")
_ALWAYS = {"apt", "ca-certificates", "python3-minimal", "python3-venv", "python-is-python3"}
_INSTALLERS = ("apt", "apt-get", "gem", "groupadd", "ln", "npm", "pip", "pip3", "rm", "set", "useradd")
_NO_EFFECT = ("CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "SHELL", "STOPSIGNAL", "VOLUME")


@dataclass(slots=True)
class Built:
    """What a Dockerfile makes, as far as it can be read.

    Attributes:
        workdir: The last WORKDIR; None where it names none.
        files: What it copies into the workdir, by path there.
        environment: Its ENV, but for what the image alone can give: what extends another variable or leads to programs.
        beyond: Why no sandbox without this image can stand in for it; empty where one can.
        text: The Dockerfile without what lays the workspace: an engine needs no folder to build it.
    """

    workdir: str | None = None
    files: dict[str, FileEntry] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    beyond: str = ""
    text: str = ""


def read_dockerfile(tree: Tree) -> Built:
    """Read the Dockerfile of a task, and what it copies.

    Raises:
        TaskError: It brings files to where no workspace is, or runs in the workspace what an image would keep.
    """
    built = Built()
    path = tree.place(DOCKERFILE)
    copies: list[tuple[int, str, list[str], str]] = []
    place = "/"
    runs: list[tuple[int, str, str, bool]] = []
    for line, word, rest in instructions(tree.text(DOCKERFILE)):
        if word not in ("COPY", "ADD", *_NO_EFFECT):
            built.text += f"{word} {rest}\n"
        if word == "WORKDIR":
            place = built.workdir = posixpath.normpath(posixpath.join(place, _unquoted(rest)))
        elif word in ("COPY", "ADD"):
            copies.append((line, word, *_sources(path, line, word, rest, place)))
        elif word == "ENV":
            found = _variables(rest)
            for name, value in found.items():
                built.environment.pop(name, None)
                if name == "PATH" or loads_code(name) or "$" in value:
                    built.beyond = built.beyond or f"line {line} sets {name}"
                elif is_variable(name) and not is_owned(name):
                    built.environment[name] = value
            if not found:
                built.beyond = built.beyond or f"line {line} is one that an engine reads"
        elif word == "FROM":
            built.environment.clear()  # of a stage that came before
            if not PLAIN_BASES.fullmatch(rest):
                built.beyond = built.beyond or f"line {line} starts from {rest}"
        elif word == "RUN":
            if why := _beyond_us(rest):
                built.beyond = built.beyond or f"line {line} runs `{why}`"
                runs.append((line, rest, place, bool(copies)))
        elif word not in _NO_EFFECT and (word != "USER" or rest not in ("root", "0")):
            built.beyond = built.beyond or f"line {line} has {word}"
    for line, command, there, after in runs:
        if why := _touches_workspace(command, there, built.workdir or "/", after):
            raise TaskError(Problem(f"RUN {why}: the workspace is laid anew for each episode", path, line))
    for line, word, sources, target in copies:
        _copy(tree, line, word, sources, target, built)
    return built


def instructions(text: str) -> Iterator[tuple[int, str, str]]:
    """The line, the name and the rest of each instruction, continued lines joined."""
    joined, start = "", 0
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        start = start if joined else number
        joined += line.rstrip()
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        word, _, rest = joined.strip().partition(" ")
        joined = ""
        yield start, word.upper(), rest.strip()
    if joined.strip():
        word, _, rest = joined.strip().partition(" ")
        yield start, word.upper(), rest.strip()


def _unquoted(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] == word[-1] in "\"'" else word


def _variables(rest: str) -> dict[str, str]:
    try:
        words = shlex.split(rest)
    except ValueError:
        return {}
    if words and "=" not in words[0]:
        return {words[0]: " ".join(words[1:])}
    return dict(word.split("=", 1) for word in words if "=" in word)


@cache
def _ours() -> frozenset[str]:
    return frozenset({*packages(), *_ALWAYS})


@lru_cache(maxsize=4096)
def _beyond_us(command: str) -> str:
    """The first part of a RUN that does more than to install what our sandboxes have; empty if none does."""
    ours = _ours()
    for part in re.split(r"&&|;|\n", command):
        try:
            words = [word for word in shlex.split(part) if "=" not in word]
        except ValueError:
            return part.strip()[:80]
        if not words or words[0] in ("true", "set") or words[:2] == ["rm", "-rf"]:
            continue
        if _APT.match(words[0]):
            plain = [word for word in words[1:] if not word.startswith("-")]
            if plain[:1] == ["update"] or plain[:1] == ["clean"]:
                continue
            if plain[:1] == ["install"] and all(word in ours for word in plain[1:]):
                continue
        return part.strip()[:80]
    return ""


def _touches_workspace(command: str, place: str, workdir: str, after_copy: bool) -> str:
    """Why a RUN may change or need what stands in the workdir; empty if it only installs."""
    if after_copy:
        return "comes after a COPY and may need what that brings; put it before"
    if re.search(rf"(?<![\w.-]){re.escape(workdir)}(?![\w.-])", command):
        return f"names the workdir {workdir}"
    first = [part.split()[:1] for part in re.split(r"&&|;|\n", command)]
    if place == workdir != "/" and any(word and word[0] not in _INSTALLERS for word in first):
        return "runs in the workdir and may leave files there; put it before WORKDIR"
    return ""


# -- COPY and ADD: only into the workdir, which is laid anew for each episode ------------------------------------------


def _sources(path: str, line: int, word: str, rest: str, place: str) -> tuple[list[str], str]:
    """What an instruction copies, and where to, as an absolute path that ends in `/` if it is a folder."""
    flags = re.match(r"(?:--\S+\s+)*", rest)
    options, rest = (flags[0], rest[flags.end() :]) if flags else ("", rest)
    try:
        words = json.loads(rest) if rest.startswith("[") else shlex.split(rest)
    except ValueError:
        words = []
    if len(words) < 2 or not all(isinstance(item, str) for item in words) or "--from" in options or "$" in rest:
        raise TaskError(
            Problem(
                f"`{word} {rest[:60]}` brings what is not in the task's folder, or under a variable", str(path), line
            )
        )
    if word == "ADD" and any(re.search(r"://|\.(?:tar|tgz|txz|tbz2|tar\.\w+)$", item) for item in words[:-1]):
        raise TaskError(Problem(f"`{word} {rest[:60]}` unpacks or downloads: use COPY of files", path, line))
    target = posixpath.join(place, words[-1])
    folder = words[-1].endswith(("/", "/.")) or words[-1] == "." or len(words) > 2
    return words[:-1], posixpath.normpath(target) + ("/" if folder else "")


def _copy(tree: Tree, line: int, word: str, sources: list[str], target: str, built: Built) -> None:
    place = (built.workdir or "/").rstrip("/") + "/"
    if not (target.rstrip("/") + "/").startswith(place) or place == "/":
        raise TaskError(
            Problem(
                f"`{word} ... {target}` brings files to where the workspace ({built.workdir or 'no WORKDIR'}) is not: "
                "sandboxes lay files in the workdir alone",
                tree.place(DOCKERFILE),
                line,
            )
        )
    inside = target.rstrip("/")[len(place) :] if target.rstrip("/") + "/" != place else ""
    for source in sources:
        name = posixpath.normpath(posixpath.join("environment", source.lstrip("/")))
        entry = tree.files.get(name)
        if entry is None:
            why = f"{word} names '{source}', which is not beside the Dockerfile"
            raise TaskError(Problem(why, tree.place(DOCKERFILE), line))
        if entry.kind is EntryKind.DIR:
            for path, item in tree.below(name).items():
                if f"{name}/{path}" != DOCKERFILE:
                    built.files[posixpath.join(inside, path)] = item
        else:
            built.files[posixpath.join(inside, posixpath.basename(name)) if target.endswith("/") else inside] = entry
