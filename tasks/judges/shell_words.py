"""Bash text as simple commands: words, here-documents, and whether anything but the command's own end is seen of it.

No shell is run and nothing is expanded. Quotes, here-documents, substitutions, pipes and groups are followed; words of
the grammar (`if`, `then`, ...) are left out, and what `case` looks at is no command.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache


@dataclass(slots=True)
class Word:
    """One word of a command.

    Attributes:
        text: Without its quotes; expansions as they are written (`$GRADER/check.py`).
        variables: Names of the variables in it.
        dynamic: What a command prints stands in it.
    """

    text: str = ""
    variables: list[str] = field(default_factory=list)
    dynamic: bool = False

    @property
    def fixed(self) -> bool:
        """Whether it is known as it is written."""
        return not (self.variables or self.dynamic)


@dataclass(slots=True)
class ShellCommand:
    """A simple command.

    Attributes:
        line: Line at which it starts.
        words: Its words, assignments in front of it included.
        stdin: What a here-document or here-string gives it.
        stdin_from: The file that its input comes from.
        apart: What it prints goes to another command (`$(...)`, a pipe), which alone decides what becomes of it.
        piped_into: It reads what another command prints.
    """

    line: int
    words: list[Word] = field(default_factory=list)
    stdin: Word | None = None
    stdin_from: Word | None = None
    apart: bool = False
    piped_into: bool = False


_KEYWORDS = {
    "if",
    "then",
    "else",
    "elif",
    "fi",
    "while",
    "until",
    "do",
    "done",
    "esac",
    "{",
    "}",
    "!",
    "time",
    "coproc",
}
_REDIRECT = re.compile(r"\d*(<<<|<<-?|<&|<>|>>|>\||>&|&>>|&>|<|>)")
_VARIABLE = re.compile(r"\$(\w+|[@*#?!$-])")
_BRACED = re.compile(r"\$\{[#!]?(\w+)?")


@lru_cache(maxsize=256)
def shell_commands(text: str, line: int = 1) -> tuple[ShellCommand, ...]:
    """Split bash text into its simple commands, those in substitutions included, in the order they are written.

    Many tasks of a set share one text, so what was read is kept.
    """
    lexer = _Lexer(text, line)
    while lexer.at < len(text):
        lexer.sequence("", apart=False)
    return tuple(sorted(lexer.commands, key=lambda command: command.line))


class _Lexer:
    def __init__(self, text: str, line: int) -> None:
        self.text = text
        self.at = 0
        self.first = line
        self.commands: list[ShellCommand] = []
        self._documents: list[tuple[ShellCommand, str, bool, bool]] = []

    def sequence(self, closing: str, *, apart: bool, is_list: bool = False) -> None:
        """Read commands up to `closing`, or to the end."""
        command = ShellCommand(self._line(self.at), apart=apart)
        piped = False

        def finish(by: str) -> None:
            nonlocal command, piped
            command.piped_into = piped
            command.apart = apart or by == "|"
            piped = by == "|"
            while command.words and command.words[0].text in _KEYWORDS:
                command.words.pop(0)
            walks = bool(command.words) and command.words[0].text in ("case", "select", "function")
            if (command.words or command.stdin or command.stdin_from) and not walks and not is_list:
                self.commands.append(command)  # one with `for` too: it says what a variable stands for
            command = ShellCommand(self._line(self.at), apart=apart)

        while self.at < len(self.text):
            rest = self.text[self.at : self.at + 3]
            if closing and rest.startswith(closing):
                self.at += len(closing)
                finish("")
                return
            if rest[0] in " \t":
                self.at += 1
            elif rest.startswith("\\\n"):
                self.at += 2
            elif rest[0] == "\n":
                finish("")
                self.at += 1
                self._read_documents()
            elif rest[0] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif rest.startswith(("<(", ">(")):
                self.at += 2
                self.sequence(")", apart=True)
                command.words.append(Word("<(...)", dynamic=True))
            elif match := _REDIRECT.match(self.text, self.at):
                command.line = command.line if command.words else self._line(self.at)
                self._redirect(match, command)
            elif rest.startswith("(("):
                self._skip("))")
            elif rest[0] == "(":
                self.at += 1
                is_definition = len(command.words) == 1 and self.text[self.at : self.at + 1] == ")"
                if is_definition:
                    command.words.clear()
                    self.at += 1
                else:
                    self.sequence(")", apart=apart)
            elif rest[0] == ")":  # of a pattern in `case`
                command.words.clear()
                piped = False
                self.at += 1
            elif rest.startswith(("||", "&&", ";;")):
                self.at += 2
                finish(rest[:2])
            elif rest[0] in ";&|":
                self.at += 1 + rest.startswith("|&")
                finish(rest[0])
            else:
                command.line = command.line if command.words else self._line(self.at)
                command.words.append(self._word(apart))
        finish("")

    def _line(self, at: int) -> int:
        return self.first + self.text.count("\n", 0, at)

    def _word(self, apart: bool) -> Word:
        word = Word()
        while self.at < len(self.text):
            character = self.text[self.at]
            if character in " \t\n;&|<>)":
                break
            if character == "(":
                if not word.text.endswith("="):
                    break
                self.at += 1
                self.sequence(")", apart=apart, is_list=True)
                word.dynamic = True
            elif character == "'":
                end = self._find("'", self.at + 1)
                word.text += self.text[self.at + 1 : end]
                self.at = end + 1
            elif character == '"':
                self.at += 1
                self._quoted(word, '"')
            elif character == "\\":
                word.text += self.text[self.at + 1 : self.at + 2].replace("\n", "")
                self.at += 2
            elif self.text.startswith("$'", self.at):
                end = self.at + 2
                while end < len(self.text) and self.text[end] != "'":
                    end += 1 + (self.text[end] == "\\")
                word.text += self.text[self.at + 2 : end].replace("\\n", "\n").replace("\\'", "'")
                self.at = end + 1
            elif character in "$`":
                self._expansion(word)
            else:
                word.text += character
                self.at += 1
        return word

    def _quoted(self, word: Word, closing: str) -> None:
        while self.at < len(self.text) and not (closing and self.text[self.at] == closing):
            character = self.text[self.at]
            if character == "\\" and self.text[self.at + 1 : self.at + 2] in ("$", "`", '"', "\\", "\n"):
                word.text += self.text[self.at + 1 : self.at + 2].replace("\n", "")
                self.at += 2
            elif character in "$`":
                self._expansion(word)
            else:
                word.text += character
                self.at += 1
        self.at += 1

    def _expansion(self, word: Word) -> None:
        start = self.at
        if self.text.startswith("$((", start):
            self._skip("))")
            word.text += "0"  # a number, whatever it is
        elif self.text.startswith("$(", start):
            self.at += 2
            self.sequence(")", apart=True)
            word.text += self.text[start : self.at]
            word.dynamic = True
        elif self.text[start] == "`":
            end = self._find("`", start + 1)
            for command in shell_commands(self.text[start + 1 : end], self._line(start)):
                self.commands.append(replace(command, apart=True))
            self.at = end + 1
            word.text += self.text[start : self.at]
            word.dynamic = True
        elif match := _BRACED.match(self.text, start):
            depth = 0
            while self.at < len(self.text):
                depth += (self.text[self.at] == "{") - (self.text[self.at] == "}")
                self.at += 1
                if not depth and self.text[self.at - 1] == "}":
                    break
            word.text += self.text[start : self.at]
            word.variables.append(match[1] or "?")
            word.dynamic = word.dynamic or "$(" in self.text[start : self.at]
        elif match := _VARIABLE.match(self.text, start):
            self.at = match.end()
            word.text += match[0]
            word.variables.append(match[1])
        else:
            word.text += "$"
            self.at += 1

    def _redirect(self, match: re.Match[str], command: ShellCommand) -> None:
        self.at = match.end()
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        start = self.at
        if match[1] in ("<", "<>") and self.text.startswith("<(", self.at):
            self.at += 2
            self.sequence(")", apart=True)
            command.stdin_from = Word("<(...)", dynamic=True)
            return
        target = self._word(apart=command.apart)
        if match[1].startswith("<<") and match[1] != "<<<":
            quoted = any(mark in self.text[start : self.at] for mark in "'\"\\")
            self._documents.append((command, target.text, quoted, match[1] == "<<-"))
        elif match[1] == "<<<":
            command.stdin = target
        elif match[1] == "<":
            command.stdin_from = target

    def _read_documents(self) -> None:
        waiting, self._documents = self._documents, []
        for command, delimiter, quoted, tabs in waiting:
            lines: list[str] = []
            while self.at < len(self.text):
                end = self._find("\n", self.at)
                line = self.text[self.at : end]
                self.at = min(end + 1, len(self.text))
                if (line.lstrip("\t") if tabs else line) == delimiter:
                    break
                lines.append(line.lstrip("\t") if tabs else line)
            body = "\n".join(lines)
            command.stdin = Word(body)
            if not quoted:
                inner = _Lexer(body, command.line + 1)
                command.stdin = Word()
                inner._quoted(command.stdin, "")
                self.commands += inner.commands

    def _skip(self, closing: str) -> None:
        self.at = self._find(closing, self.at) + len(closing)

    def _find(self, what: str, start: int) -> int:
        end = self.text.find(what, start)
        return len(self.text) if end < 0 else end
