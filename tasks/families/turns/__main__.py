"""`python -m tasks.families.turns FILE...`: seal the pages under `metadata` of written tasks into their programs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from textwrap import indent

from tasks.families.turns.sealing import written
from tasks.yaml import load_task


def seal(path: Path) -> bool:
    """Write the program of a task file anew, from its `metadata`; return whether that changed the file.

    The program is the file `metadata.program` of the workspace, written as `text: |` with lines indented below it.

    Raises:
        TaskError: The file is no task.
        KeyError: Its metadata describe no program.
        ValueError: The program is not written in that form.
    """
    metadata = load_task(path).metadata
    text = path.read_text(encoding="utf-8")
    block = re.compile(rf"(?m)^    {re.escape(metadata['program'])}:\n      text: \|\n((?:        .*\n|\n)+)")
    found = block.search(text)
    if found is None:
        raise ValueError(f"{path}: the workspace has no file '{metadata['program']}' with `text: |` below it")
    fresh = text[: found.start(1)] + indent(written(metadata), " " * 8) + text[found.end(1) :]
    path.write_text(fresh, encoding="utf-8")
    return fresh != text


if __name__ == "__main__":
    for name in sys.argv[1:]:
        print(f"{name}: {'sealed anew' if seal(Path(name)) else 'as it was'}")
