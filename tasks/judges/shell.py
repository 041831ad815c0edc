"""What bash text of a judge does with the agent's code: which programs it starts, and what it sources or evaluates.

A program that bash starts is a process of its own, but what the grader writes for it (`python3 -c`, a here-document, a
script of the grader) is the judge as well: code of the agent that is loaded there decides the exit code. Only where
another command takes what it prints (`$(...)`, a pipe) is it no more than a program that was started.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tasks.judges.constructs import SHADOWED, Finding, JudgeUse, harmless
from tasks.judges.python import PythonText, Reach, read_python
from tasks.judges.shell_words import ShellCommand, Word, shell_commands

_SHELLS = {"bash", "sh", "dash", "zsh", "ksh"}
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_ASSIGNMENT = re.compile(r"(\w+)\+?=(.*)", re.DOTALL)
_WRAPPERS = {
    "env",
    "timeout",
    "nice",
    "nohup",
    "command",
    "exec",
    "setsid",
    "stdbuf",
    "sudo",
    "time",
    "xargs",
    "builtin",
}
"""Commands that run the command behind them."""

_OF_WRAPPERS = re.compile(r"-|\w+=|[\d.]+[smhd]?$|[A-Z]+$")
"""Options of those, their numbers and signals, and assignments."""

_TEST_RUNNERS = {"unittest", "pytest", "doctest", "nose", "nose2"}
_RUNNERS = {*_TEST_RUNNERS, "runpy", "pdb", "trace", "cProfile", "profile", "timeit", "coverage"}
"""Modules that run what they are given beside themselves."""

_OTHER_LANGUAGES: Mapping[str, tuple[tuple[str, ...], re.Pattern[str]]] = {
    "node": (
        ("-e", "-p", "--eval", "--print"),
        re.compile(r"(require|import)\s*\(?\s*[^)\s]*[./$`+]|from\s+['\"][./]|eval\s*\(|Function\s*\(|\bvm\b"),
    ),
    "perl": (("-e", "-E"), re.compile(r"\b(do|require|eval)\b")),
    "ruby": (("-e",), re.compile(r"\b(require_relative|load|\w*eval)\b|require\s*\(?\s*['\"][./]")),
    "php": (("-r",), re.compile(r"\b(include|require|eval)(_once)?\b")),
    "Rscript": (("-e",), re.compile(r"\b(source|eval|parse|load|readRDS)\b")),
}
"""Other interpreters: the options that take code, and words by which such code loads more."""

_WORKSPACE = {"$WORKSPACE/", "${WORKSPACE}/", "$PWD/", "${PWD}/", "$(pwd)/"}
_HARMLESS_VARIABLES = {"GRADER", "WORKSPACE", "PWD", "HOME", "TMPDIR"}


@dataclass(slots=True)
class ShellText:
    """Bash text of a judge.

    Attributes:
        source: The text.
        file: Where it stands, for findings.
        files: Files of the grader.
        safe_path: `PYTHONSAFEPATH` is set.
        line: Line at which it starts.
        seen: Files of the grader that were read.
        apart: It runs in a process of its own, and another command takes what it prints.
    """

    source: str
    file: str
    files: Mapping[str, str]
    safe_path: bool = False
    line: int = 1
    seen: set[str] = field(default_factory=set)
    apart: bool = False


def read_shell(text: ShellText) -> list[Finding]:
    """Find what bash text starts and loads, with the scripts of the grader that it runs."""
    reader = _Reader(text, shell_commands(text.source, text.line))
    for command in sorted(reader.commands, key=lambda command: command.apart):  # a script counts as where it decides
        reader.read(command)
    return reader.found


class _Reader:
    def __init__(self, text: ShellText, commands: Sequence[ShellCommand]) -> None:
        self.text = text
        self.commands = commands
        self.found: list[Finding] = []
        words = [word for command in commands for word in command.words]
        self._in_folder = any(
            command.words and command.words[0].text in ("cd", "pushd") and _in_grader(command.words[-1])
            for command in commands
        )
        self._python_path = any(word.text.startswith("PYTHONPATH=") and not _in_grader(word) for word in words)
        self._unsafe = any(
            [word.text for word in command.words[:2]] == ["unset", "PYTHONSAFEPATH"] for command in commands
        )
        self._values: dict[str, list[Word]] = {}
        self._known = self._fixed_variables()

    def read(self, command: ShellCommand) -> None:
        """Look at one command."""
        words = list(command.words)
        while words and _ASSIGNMENT.fullmatch(words[0].text):
            words.pop(0)
        while words and words[0].text in _WRAPPERS:
            if [word.text for word in words[:2]] in (["command", "-v"], ["command", "-V"]):
                return  # only looks for it
            words.pop(0)
            while words and _OF_WRAPPERS.match(words[0].text):
                words.pop(0)
        if words and words[0].text not in ("for", "export"):
            self._program(command, words)

    def _program(self, command: ShellCommand, words: list[Word]) -> None:
        first, rest = self._value(words[0]), words[1:]
        name = first.text.rpartition("/")[2] if first.text.startswith("/") else first.text
        if name in ("source", "."):
            self._source(command, rest)
        elif name == "eval":
            self._evaluate(command, rest)
        elif name == "trap":
            if rest and rest[0].text != "-":
                self._nested(command, rest[0], child=False)
        elif _PYTHON.fullmatch(name):
            self._python(command, rest)
        elif name in _SHELLS:
            self._shell(command, rest)
        elif name in _OTHER_LANGUAGES:
            self._other_language(command, name, rest)
        elif name in ("pytest", "py.test") and any(self._own(word) or _in_grader(word) for word in rest):
            self._flag(command, f"{name} runs the grader's tests beside the code that they import")
        elif own := self._own(first):
            self._script(command, own)
        elif name == "find" and any(word.text.startswith("-exec") for word in rest):
            start = next(place for place, word in enumerate(rest) if word.text.startswith("-exec"))
            if rest[start + 1 :]:
                self._program(command, rest[start + 1 :])
        elif not (first.fixed and harmless([name, *(word.text for word in rest)])):
            self._flag(command, _shown(words), JudgeUse.STARTS)
            for place, word in enumerate(rest):  # `uv run python -c ...`
                if _PYTHON.fullmatch(word.text):
                    self._python(command, rest[place + 1 :])
                    break

    # -- bash ---------------------------------------------------------------------------------------------------------

    def _source(self, command: ShellCommand, rest: Sequence[Word]) -> None:
        if not rest:
            return
        if own := self._own(rest[0]):
            self._script(command, own, inside=True)
        elif not rest[0].text.startswith(("/etc/", "/usr/", "/dev/null")):
            self._flag(command, f"source {_shown(rest[:1])}", leaves=False)

    def _evaluate(self, command: ShellCommand, rest: Sequence[Word]) -> None:
        if all(self._is_fixed(word) for word in rest):
            self._nested(command, Word(" ".join(word.text for word in rest)), child=False)
        else:
            self._flag(command, f"eval {_shown(rest)} runs text that is not fixed", leaves=False)

    def _shell(self, command: ShellCommand, rest: Sequence[Word]) -> None:
        options, rest = _options(rest, takes="oO")
        if any("c" in option.text for option in options if not option.text.startswith("--")):
            if rest:
                self._nested(command, rest[0])
        elif any(option.text == "-n" for option in options):
            return  # only reads it
        elif rest and not any("s" in option.text for option in options):
            if own := self._own(rest[0]):
                self._script(command, own)
            else:
                self._flag(command, f"bash {_shown(rest)}", JudgeUse.STARTS)
        elif command.stdin is not None:
            self._nested(command, command.stdin)
        else:
            self._flag(command, "bash runs its input", JudgeUse.STARTS)

    def _nested(self, command: ShellCommand, code: Word, *, child: bool = True) -> None:
        """Bash text inside the text: what is written there is read, and what is put into it must be known."""
        if code.dynamic:
            self._flag(command, f"runs text with the output of a command in it: {_shown([code])}", leaves=child)
        apart = self.text.apart or (child and command.apart)
        self.found += read_shell(replace(self.text, source=code.text, line=command.line, apart=apart))

    def _script(self, command: ShellCommand, path: str, *, inside: bool = False) -> None:
        """A script of the grader."""
        if path in self.text.seen:
            return
        self.text.seen.add(path)
        source = self.text.files[path]
        apart = self.text.apart or (command.apart and not inside)
        if path.endswith(".py") or re.match(r"#!.*python", source):
            self._keep(command, read_python(PythonText(source, path, self.text.files), self.text.seen), apart)
        else:
            self.found += read_shell(replace(self.text, source=source, file=path, line=1, apart=apart))

    # -- Python and others --------------------------------------------------------------------------------------------

    def _python(self, command: ShellCommand, rest: Sequence[Word]) -> None:
        options: list[str] = []
        while rest and rest[0].text.startswith("-") and len(rest[0].text) > 1:
            option, rest = rest[0].text, rest[1:]
            options.append(option)
            if not option.startswith("--") and option[-1] in "cm" and rest:
                self._python_inline(command, options, rest)
                return
            if option in ("-W", "-X"):
                rest = rest[1:]
        if rest and rest[0].text != "-":
            own = self._own(rest[0])
            if own and own not in self.text.seen:
                self.text.seen.add(own)
                wide = self._python_path and not _isolated(options)
                reach = Reach.ALL if wide else Reach.NONE
                code = PythonText(self.text.files[own], own, self.text.files, reach)
                self._keep(command, read_python(code, self.text.seen), self.text.apart or command.apart)
            elif not own:
                self._flag(command, f"python3 {_shown(rest)}", JudgeUse.STARTS)
        elif command.stdin is not None:
            self._code(command, options, command.stdin, command.line + 1)
        else:
            self._flag(command, "python3 runs its input", JudgeUse.STARTS)

    def _python_inline(self, command: ShellCommand, options: Sequence[str], rest: Sequence[Word]) -> None:
        if options[-1].endswith("c"):
            self._code(command, options, rest[0], command.line)
            return
        module, arguments = rest[0].text, rest[1:]
        isolated = _isolated(options)
        if module in _RUNNERS:
            mine = [self._own(word) for word in arguments if not word.text.startswith("-")]
            if isolated and mine and all(mine):
                for path in mine:
                    assert path is not None
                    code = PythonText(self.text.files[path], path, self.text.files)
                    self._keep(command, read_python(code, self.text.seen), self.text.apart or command.apart)
                return
            self._flag(command, f"python3 -m {_shown(rest)} runs code of the workspace beside itself")
        elif not isolated and module.partition(".")[0] in sys.stdlib_module_names:
            if not self._is_safe():
                self._flag(command, f"python3 -m {module}: {SHADOWED}")
        elif not isolated:
            self._flag(command, f"python3 -m {_shown(rest)}", JudgeUse.STARTS)

    def _code(self, command: ShellCommand, options: Sequence[str], code: Word, line: int) -> None:
        """Python in the text: the workspace is first on its import path, unless it is told not to."""
        if not self._is_fixed(code):
            self._flag(command, f"Python code with text in it that is not fixed: {_shown([code])}")
        reach = Reach.NONE if _isolated(options) else Reach.FOREIGN if self._is_safe() else Reach.ALL
        source = re.sub(r"\$\{?(\w+)\}?|\$\(.*?\)|`[^`]*`", "0", code.text) if not code.fixed else code.text
        text = PythonText(source, self.text.file, self.text.files, reach, self._in_folder, line)
        self._keep(command, read_python(text, self.text.seen), self.text.apart or command.apart)

    def _other_language(self, command: ShellCommand, name: str, rest: Sequence[Word]) -> None:
        flags, loads = _OTHER_LANGUAGES[name]
        inline = next((place for place, word in enumerate(rest) if word.text in flags), None)
        own = next((path for word in rest if (path := self._own(word))), None)
        if inline is not None and len(rest) > inline + 1:
            code = rest[inline + 1]
            if loads.search(code.text) or not self._is_fixed(code):
                self._flag(command, f"{name} {_shown(rest)} loads more code beside its own")
        elif own is not None:
            if loads.search(self.text.files[own]):
                self._flag(command, f"{name} {_shown(rest)} loads more code beside its own")
        else:
            self._flag(command, f"{name} {_shown(rest)}", JudgeUse.STARTS)

    # -- what words stand for -----------------------------------------------------------------------------------------

    def _own(self, word: Word) -> str | None:
        """The file of the grader that a word names, if it does."""
        for path in self.text.files:
            before = word.text.removesuffix(path)
            if before == word.text:
                continue
            if before in ("", "./") and self._in_folder:
                return path
            if before.endswith("/") and before.startswith(("$", "/", "`")) and before not in _WORKSPACE:
                return path
        return None

    def _value(self, word: Word) -> Word:
        """What a word that is one variable stands for, where that is one fixed text (`PY=python3; $PY -c ...`)."""
        if match := re.fullmatch(r"\$\{?(\w+)(?::[-=]([^}]+))?\}?", word.text):
            values = self._values.get(match[1], [])
            if len(values) == 1 and (assigned := _ASSIGNMENT.fullmatch(values[0].text)) and values[0].fixed:
                return Word(assigned[2])
            return Word(match[2]) if match[2] and not values else word
        return word

    def _is_fixed(self, word: Word) -> bool:
        return not word.dynamic and all(name in self._known for name in word.variables)

    def _is_safe(self) -> bool:
        return self.text.safe_path and not self._unsafe and not self._python_path

    def _fixed_variables(self) -> set[str]:
        """Variables that stand for texts of the source, or for folders, wherever they are set."""
        values = self._values
        for command in self.commands:
            if command.words and command.words[0].text == "for" and len(command.words) > 3:
                values.setdefault(command.words[1].text, []).extend(command.words[3:])
            for word in command.words:
                if match := _ASSIGNMENT.fullmatch(word.text):
                    values.setdefault(match[1], []).append(word)
            if command.words and command.words[0].text in ("read", "mapfile", "readarray", "printf"):
                for word in command.words[1:]:
                    values.setdefault(word.text, []).append(Word(dynamic=True))
        known = set(_HARMLESS_VARIABLES)
        for _ in values:  # until nothing is added
            known |= {
                name
                for name, words in values.items()
                if all(not word.dynamic and all(inner in known for inner in word.variables) for word in words)
            }
        return known

    # -- findings -----------------------------------------------------------------------------------------------------

    def _flag(
        self, command: ShellCommand, what: str, use: JudgeUse = JudgeUse.IN_PROCESS, *, leaves: bool = True
    ) -> None:
        """Note a finding; `leaves` says that it happens in a process that bash starts, and not in bash itself."""
        apart = self.text.apart or (leaves and command.apart)
        self.found.append(Finding(JudgeUse.STARTS if apart else use, self.text.file, command.line, what))

    def _keep(self, command: ShellCommand, found: Sequence[Finding], apart: bool) -> None:
        self.found += [replace(finding, use=JudgeUse.STARTS) for finding in found] if apart else found


def _isolated(options: Sequence[str]) -> bool:
    return any(letter in option for option in options if not option.startswith("--") for letter in "IP")


def _options(words: Sequence[Word], takes: str) -> tuple[list[Word], list[Word]]:
    """Split options from what follows; those that end in a letter of `takes` have a value."""
    left = list(words)
    options: list[Word] = []
    while left and left[0].text.startswith(("-", "+")) and left[0].text not in ("-", "--"):
        options.append(left.pop(0))
        if options[-1].text[-1] in takes and left:
            left.pop(0)
    return options, left


def _in_grader(word: Word) -> bool:
    return "GRADER" in word.variables


def _shown(words: Sequence[Word]) -> str:
    text = " ".join(" ".join(word.text for word in words).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
