"""The state of a shell between two commands: text that bash itself printed, and that the next bash sources."""

from __future__ import annotations

import os

# Set by bash itself, or ours; restoring them would fail or lie.
_NOT_KEPT = frozenset(
    b"BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_EXECUTION_STRING "
    b"BASH_LINENO BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO BASH_VERSION COMP_WORDBREAKS DIRSTACK EPOCHREALTIME "
    b"EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD HOSTTYPE LINENO MACHTYPE OSTYPE PIPESTATUS PPID PWD RANDOM SECONDS "
    b"SHELLOPTS SRANDOM UID _ _tg_b _tg_c _tg_d _tg_e _tg_p _tg_s".split()
)
_OPTIONS_NOT_KEPT = frozenset(
    (b"errexit", b"xtrace", b"verbose", b"noexec", b"monitor", b"onecmd", b"posix", b"privileged")
)
_SHOPTS_NOT_KEPT = frozenset((b"expand_aliases", b"login_shell", b"restricted_shell"))


class State:
    """What the next bash starts with.

    Attributes:
        cwd: Directory, as the shell names it.
        text: Everything else, as bash commands; without the trailing `$?`.
        status: `$?`.
    """

    def __init__(self, cwd: str, text: bytes, status: int = 0) -> None:
        self.cwd, self.text, self.status = cwd, text, status

    @classmethod
    def fresh(cls, cwd: str, env: dict) -> State:
        """The state of a new sandbox: the given environment, aliases on, nothing else."""
        lines = [b"declare -x %s=%s\n" % (name.encode(), quote(value.encode())) for name, value in env.items()]
        return cls(cwd, b"".join(lines) + b"IFS=$' \\t\\n'\nPS4='+ '\nOPTERR=1\nshopt -s expand_aliases\n")

    def carry(self, command: bytes) -> bytes:
        """The command, preceded by something that sets `$?` if the command asks for it."""
        asks = self.status and (b"$?" in command or b"${?" in command)
        return b"(\\exit %d);" % self.status + command if asks else command

    def following(self, dump: bytes, fallback: str | None) -> State | None:
        """The state after a command, read from its dump; None when the dump is missing or cut short."""
        if not dump.endswith(b"\0#STATE-OK"):
            return None
        parts = dump.split(b"\0")
        if len(parts) != 9:
            return None
        old_set, old_shopt, new_set, new_shopt, cwd, variables, aliases, functions, _ = parts
        lines = []
        for line in variables.splitlines(keepends=True):
            words = line.split(None, 2)
            if len(words) == 3 and words[0] == b"declare" and words[2].split(b"=", 1)[0].strip() in _NOT_KEPT:
                continue
            lines.append(line)
        lines += _toggles(b"set", b"-o", b"+o", old_set, new_set, _OPTIONS_NOT_KEPT)
        lines += _toggles(b"shopt", b"-s", b"-u", old_shopt, new_shopt, _SHOPTS_NOT_KEPT)
        # Aliases are defined while aliases are off, so that they do not expand again inside function bodies.
        lines += [aliases, functions]
        if b"expand_aliases" in new_shopt.split(b":"):
            lines.append(b"\\builtin shopt -s expand_aliases\n")
        where = os.fsdecode(cwd.rstrip(b"\n")) or self.cwd
        if fallback is not None and where == fallback:
            where = self.cwd  # the directory was closed to us; the command did not leave it
        return State(where, b"".join(lines), self.status)


def _toggles(builtin: bytes, on: bytes, off: bytes, old: bytes, new: bytes, left_out: frozenset) -> list:
    """Lines that turn the options of a new bash (`old`) into those at the end of a command (`new`)."""
    before, after = set(old.split(b":")) - left_out, set(new.split(b":")) - left_out
    lines = [b"%s %s %s\n" % (builtin, on, name) for name in sorted(after - before) if name]
    return lines + [b"%s %s %s\n" % (builtin, off, name) for name in sorted(before - after) if name]


def quote(value: bytes) -> bytes:
    """A word that bash reads as these bytes."""
    return b"'" + value.replace(b"'", b"'\\''") + b"'"
