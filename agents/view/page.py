"""`python -m agents view`: one self-contained page of all episodes, which works from `file://` and asks nobody.

The page holds an index (a row for each episode) and the parts of `agents.view.collect`, each compressed and in base64:
the browser decodes a part when one of its episodes is shown. No text of an episode stands in the page as it is, so
none can be taken for markup; a policy for content (CSP) lets no other script than ours run and no request leave.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from agents.commands import UsageError
from agents.view.collect import Collection
from agents.view.pack import MARKS, TOP, Tokenizers
from agents.view.wanted import Wanted
from tasks.model import atomic_file

PAGE = "episodes.html"
"""Where the page of a folder stands, unless the user says otherwise."""


def write_page(
    sources: Sequence[str | Path],
    out: Path,
    tokenizers: Tokenizers | None = None,
    wanted: Wanted | None = None,
    *,
    allow_cut: bool = False,
) -> int:
    """Write the page of some files and folders; one that stands there is replaced.

    Args:
        sources: As `Collection` takes them.
        out: The page.
        tokenizers: Ids as text; default: those at hand are tried.
        wanted: Finds the tasks of the episodes; default: as the folders of their runs say.
        allow_cut: Leave out a last line that a crash cut.

    Returns:
        How many episodes there are.

    Raises:
        UsageError: There are none, or a source is not there.
        RecordError: A file holds something else than episodes.
        OSError: A file cannot be read or written.
    """
    episodes = Collection(sources, tokenizers or Tokenizers(), wanted or Wanted(), allow_cut=allow_cut)
    found = 0
    with atomic_file(out, sync=False) as file:
        head, tail = shell()
        file.write(head)
        for part in episodes.refresh():
            file.write(_block(f"part-{part.id}", part.packed))
            found += len(part.rows)
        if not found:
            raise UsageError(f"{', '.join(map(str, sources))}: no episodes there")
        file.write(_block("wanted", wanted_of(episodes)))
        file.write(_block("index", zlib.compress(json_bytes(index_of(episodes)), 6)))
        file.write(tail)
    return found


def index_of(episodes: Collection) -> dict[str, Any]:
    """What the page knows before it opens a part."""
    return {
        "marks": MARKS,
        "top": TOP,
        "intents": episodes.intents,
        "parts": [part.head() for part in episodes.parts],
    }


def wanted_of(episodes: Collection) -> bytes:
    """What the tasks wanted, compressed: the page opens it with the first episode."""
    return zlib.compress(json_bytes(episodes.wanted()), 6)


def json_bytes(value: Any) -> bytes:
    """JSON in ASCII alone: half a surrogate pair has no UTF-8, and comes through as an escape."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


# -- The page without its episodes: one HTML file, with our style and our script put in and named by their hashes -----


def shell(*, live: bool = False) -> tuple[str, str]:
    """What stands before the episodes, and what stands after them.

    Args:
        live: The page asks its own server for episodes, and for nothing else.
    """
    style, script = _file("view.css"), _script()
    policy = "; ".join(_policy(style, script, live))
    text = _file("view.html")
    for name, value in (("POLICY", policy), ("MODE", "live" if live else "file"), ("STYLE", style), ("SCRIPT", script)):
        text = text.replace(f"@{name}@", value)
    head, _, tail = text.partition("@EPISODES@")
    return head, tail


def _policy(style: str, script: str, live: bool) -> Iterator[str]:
    yield "default-src 'none'"
    yield f"style-src '{_digest(style)}'"
    yield f"script-src '{_digest(script)}'"
    yield "img-src data:"
    yield "base-uri 'none'"
    yield "form-action 'none'"
    if live:
        yield "connect-src 'self'"


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _block(name: str, packed: bytes) -> str:
    """Data that the browser neither runs nor shows."""
    text = base64.b64encode(packed).decode()
    return f'<script type="application/octet-stream" id="{name}">{text}</script>\n'


def _script() -> str:
    """Our script: its files, in one scope of their own."""
    parts = "".join(_file(f"{name}.js") for name in ("text", "list", "episode", "start"))
    return f'"use strict";\n(() => {{\n{parts}}})();\n'


@cache
def _file(name: str) -> str:
    return resources.files("agents.view").joinpath(name).read_text(encoding="utf-8")
