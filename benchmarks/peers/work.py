"""The work that every contender does: one episode of 10 files and 6 commands, and its right result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FILES = {f"data/file{number}.txt": f"line {number}\n" * 20 for number in range(10)}
COMMANDS = (
    "ls -l | wc -l",
    "cd data && grep -c line file1.txt",
    "sort file2.txt | uniq -c > ../counts.txt",
    "sed -i 's/line/row/' file3.txt; head -n 3 file3.txt | tail -n 1",
    "cp file4.txt ../copy.txt",
    "cat ../counts.txt; echo done",
)
"""Ten processes besides the shells. The third and those after it stand in the folder that the second went to."""
STATELESS = tuple(f"cd data && {{ {command}; }}" if index > 1 else command for index, command in enumerate(COMMANDS))
"""The same for peers whose commands keep no directory."""
OUTPUTS = (b"2\n", b"20\n", b"", b"row 3\n", b"", b"     20 line 2\ndone\n")


@dataclass(frozen=True, slots=True)
class Done:
    """What an episode came to: the output of each command, and the content of each file."""

    outputs: tuple[bytes, ...]
    files: Mapping[str, bytes]


def expected() -> Done:
    """The right result."""
    files = {path: text.encode() for path, text in FILES.items()}
    files["data/file3.txt"] = files["data/file3.txt"].replace(b"line", b"row")
    files["counts.txt"] = b"     20 line 2\n"
    files["copy.txt"] = files["data/file4.txt"]
    return Done(OUTPUTS, files)


def check(who: str, done: Done) -> None:
    """Refuse to measure what is wrong. Raises RuntimeError."""
    right = expected()
    if done.outputs != right.outputs:
        raise RuntimeError(f"{who}: the commands printed {done.outputs}, not {right.outputs}")
    if done.files != right.files:
        raise RuntimeError(f"{who}: the files are {sorted(done.files)}, or their contents are wrong")
