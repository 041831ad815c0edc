"""The variables of a shell in a sandbox: who sets them, and which a grader may have."""

from __future__ import annotations

import os

# Set by bash itself, or ours; restoring them would fail or lie.
NOT_KEPT = frozenset(
    b"BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_EXECUTION_STRING "
    b"BASH_LINENO BASH_SOURCE BASH_SUBSHELL BASH_VERSINFO BASH_VERSION COMP_WORDBREAKS DIRSTACK EPOCHREALTIME "
    b"EPOCHSECONDS EUID FUNCNAME GROUPS HISTCMD HOSTTYPE LINENO MACHTYPE OSTYPE PIPESTATUS PPID PWD RANDOM SECONDS "
    b"SHELLOPTS SRANDOM UID _ _tg_b _tg_c _tg_d _tg_e _tg_p _tg_s".split()
)
LOADS_CODE = frozenset(
    ("BASH_ENV", "CLASSPATH", "ENV", "GIT_EXEC_PATH", "NODE_OPTIONS", "NODE_PATH", "PERL5LIB", "PERL5OPT", "PERLLIB")
    + ("PYTHONHOME", "PYTHONINSPECT", "PYTHONPATH", "PYTHONPYCACHEPREFIX", "PYTHONSTARTUP", "PYTHONUSERBASE")
    + ("RUBYLIB", "RUBYOPT")
)
"""Variables that say where programs load code from; so do all that begin with `LD_`."""


def environment(workspace: str, tmp: str) -> dict[str, str]:
    """Environment of a new shell. The same on every backend, except for the two folders."""
    return {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "HOME": workspace,
        "TMPDIR": tmp,
        "LC_CTYPE": "C.UTF-8",  # not LANG: the other categories are the same, and every program would load them
        "TERM": "dumb",
        "USER": "user",
        "LOGNAME": "user",
        "SHELL": "/bin/bash",
        "PAGER": "cat",
        "HISTFILE": "/dev/null",
        "PYTHONDONTWRITEBYTECODE": "1",
    }


_OWNED = frozenset(
    {*environment("", ""), *(name.decode() for name in NOT_KEPT)}
    | {"PWD", "OLDPWD", "IFS", "PS4", "OPTERR", "GRADER", "WORKSPACE"}
)


def is_owned(name: str) -> bool:
    """Whether the sandbox, its shell or a grader sets the variable of this name, so that nobody else does."""
    return name in _OWNED or name.startswith(("BASH", "_tg_"))


def is_variable(name: str) -> bool:
    """Whether a shell can have a variable of this name."""
    return name.isidentifier() and name.isascii()


def with_image(own: dict[str, str], told: list[str]) -> dict[str, str]:
    """The environment of a new shell in an image that sets variables.

    Args:
        own: Of a shell in any other sandbox. It stays, but for PATH, where the image's folders come first.
        told: `NAME=VALUE`, as an engine tells of the image.
    """
    image = {name: value for name, _, value in (line.partition("=") for line in told)}
    path = dict.fromkeys(f"{image.get('PATH', '')}:{own['PATH']}".split(":"))
    taken = {name: value for name, value in image.items() if is_variable(name) and not is_owned(name)}
    return {**own, **taken, "PATH": ":".join(filter(None, path))}


def loads_code(name: str) -> bool:
    """Whether programs load code from where a variable of this name says."""
    return name in LOADS_CODE or name.startswith("LD_")


def graders_part(env: dict, writable: list) -> dict:
    """The variables of a new shell that graders may have: none leads a program of theirs to what the agent wrote.

    Of a variable that says where code is, absolute paths stay that neither lie in a place the agent can write to nor
    hold one; a variable of which nothing stays is left out.

    Args:
        env: An image may have set some of them.
        writable: Directories that the agent can write to.
    """
    closed = [os.path.realpath(place) for place in (*writable, "/proc", "/dev")]

    def fit(place: str) -> bool:
        if not place.startswith("/"):
            return False
        meant = os.path.normpath(place), os.path.realpath(place)  # `/proc/self/cwd` is another one for each process
        return all(os.path.commonpath((one, other)) not in (one, other) for one in meant for other in closed)

    kept = {}
    for name, value in env.items():
        if name == "PATH" or loads_code(name):
            value = ":".join(place for place in ":".join(value.replace(";", ":").split()).split(":") if fit(place))
        if value or not env[name]:
            kept[name] = value
    return kept
