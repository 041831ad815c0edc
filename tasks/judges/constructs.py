"""The constructs by which a judge starts a program, or runs code in its own process, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class JudgeUse(StrEnum):
    """What a judge does with the agent's code."""

    NEITHER = "neither"
    """It reads files, and runs nothing of the agent."""
    STARTS = "starts"
    """It starts programs that may be the agent's, each a process of its own."""
    IN_PROCESS = "in_process"
    """It imports or evaluates the agent's code in its own process, where that code can write the verdict and leave."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a judge starts or loads what may be the agent's.

    Attributes:
        use: Which of the two.
        file: A file of the grader, or `command`.
        line: Line in it.
        what: The construct, in words.
    """

    use: JudgeUse
    file: str
    line: int
    what: str

    def __str__(self) -> str:
        """Return place and construct."""
        return f"{self.file}:{self.line}: {self.what}"


LOADERS: Mapping[str, tuple[int, str]] = {
    "importlib.util.spec_from_file_location": (1, "location"),
    "importlib.machinery.SourceFileLoader": (1, "path"),
    "importlib.machinery.SourcelessFileLoader": (1, "path"),
    "importlib.machinery.ExtensionFileLoader": (1, "path"),
    "imp.load_source": (1, "pathname"),
    "imp.load_compiled": (1, "pathname"),
    "imp.load_dynamic": (1, "pathname"),
    "imp.load_module": (2, "pathname"),
    "zipimport.zipimporter": (0, "path"),
    "runpy.run_path": (0, "path_name"),
    "pydoc.importfile": (0, "path"),
    "ctypes.CDLL": (0, "name"),
    "ctypes.PyDLL": (0, "name"),
    "ctypes.cdll.LoadLibrary": (0, "name"),
    "doctest.testfile": (0, "filename"),
    "logging.config.fileConfig": (0, "fname"),
    "exec": (0, "source"),
    "builtins.exec": (0, "source"),
    "eval": (0, "source"),
    "builtins.eval": (0, "source"),
    "timeit.timeit": (0, "stmt"),
    "cProfile.run": (0, "statement"),
    "profile.run": (0, "statement"),
    "pickle.load": (0, "file"),
    "pickle.loads": (0, "data"),
    "pickle.Unpickler": (0, "file"),
    "dill.load": (0, "file"),
    "dill.loads": (0, "str"),
    "cloudpickle.load": (0, "file"),
    "cloudpickle.loads": (0, "data"),
    "joblib.load": (0, "filename"),
    "marshal.load": (0, "file"),
    "marshal.loads": (0, "bytes"),
    "shelve.open": (0, "filename"),
    "pandas.read_pickle": (0, "filepath_or_buffer"),
    "torch.load": (0, "f"),
    "numpy.load": (0, "file"),
    "yaml.load": (0, "stream"),
    "yaml.load_all": (0, "stream"),
    "yaml.full_load": (0, "stream"),
    "yaml.full_load_all": (0, "stream"),
    "yaml.unsafe_load": (0, "stream"),
    "yaml.unsafe_load_all": (0, "stream"),
}
"""What runs code that it is given as a path, a text or a pickle, with the place and the name of that argument."""

NAMED: Mapping[str, str] = {
    "importlib.import_module": "name",
    "importlib.__import__": "name",
    "__import__": "name",
    "builtins.__import__": "name",
    "runpy.run_module": "mod_name",
    "pkgutil.resolve_name": "name",
    "pydoc.locate": "path",
}
"""What imports a module by a name that is its first argument, with the name of that argument."""

STARTERS = re.compile(
    r"subprocess\.(run|call|check_call|check_output|Popen|getoutput|getstatusoutput)"
    r"|os\.(system|popen|posix_spawnp?|spawn\w+|exec[lv]p?e?)|pty\.spawn|asyncio\.create_subprocess_(exec|shell)"
)
"""What starts another program."""

PATHS = {name for name, (_, keyword) in LOADERS.items() if keyword.rstrip("s") in ("location", "path", "pathname")} | {
    "runpy.run_path",
    "doctest.testfile",
    "logging.config.fileConfig",
    "joblib.load",
    "shelve.open",
    "pandas.read_pickle",
    "torch.load",
    "numpy.load",
}
"""Those of `LOADERS` that take a path: a constant names a file, which may be the agent's."""

WHAT_LOADS = {
    "exec": "runs text that is not fixed",
    "eval": "evaluates text that is not fixed",
    "run_path": "runs a file in the judge",
    "spec_from_file_location": "loads a file into the judge",
    "SourceFileLoader": "loads a file into the judge",
}

SHADOWED = "a file of that name in the workspace comes first (say python3 -I)"
"""Why a module of the standard library may be the agent's."""

_NAMES = """
: [ [[ test true false echo printf read cat tac head tail cut tr sort uniq wc nl rev paste join comm diff cmp grep
egrep fgrep zgrep zcat ls stat file find du df tree basename dirname realpath readlink pwd date seq expr bc
md5sum sha1sum sha256sum sha512sum cksum b2sum base64 od xxd hexdump strings iconv fold fmt column expand tee
mkdir rmdir rm cp mv ln touch chmod chown install mktemp tar gzip gunzip bzip2 bunzip2 xz unxz zip unzip zstd
jq yq xmllint csvtool sed awk gawk mawk split csplit sleep kill wait id whoami hostname uname printenv which
cd pushd popd export unset local declare typeset readonly set shopt shift exit return break continue let umask
ulimit type hash alias unalias getopts mapfile readarray times history fc jobs disown
"""
TOOLS = frozenset(_NAMES.split())
"""By name; options that make one run a program are looked at in `harmless`."""

_RUN = {
    "find": ("-exec", "-execdir", "-ok", "-okdir"),
    "tar": ("--checkpoint-action", "--to-command", "--use-compress-program", "-I"),
    "sed": ("-f", "--file"),
    "awk": ("-f", "--file", "system("),
    "gawk": ("-f", "--file", "system("),
    "mawk": ("-f", "--file", "system("),
    "sort": ("--compress-program",),
    "split": ("--filter",),
}
"""Options (or words in a program) by which a tool runs what is named or written elsewhere."""


def harmless(words: Sequence[str]) -> bool:
    """Whether a command with these words is known to run nothing of the agent."""
    name = words[0].rpartition("/")[2] if words[0].startswith(("/bin/", "/usr/bin/")) else words[0]
    if name not in TOOLS:
        return False
    risky = _RUN.get(name, ())
    return not any(
        word.startswith(mark) if mark.startswith("-") else mark in word for word in words[1:] for mark in risky
    )
