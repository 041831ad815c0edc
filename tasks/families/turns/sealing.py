"""Pages that can be read only when what the page before asked for is done, and the program that reads them out.

A family writes pages, each with the facts of the workspace (or the words of the call) that open it. The program that
is laid in the workspace holds each page encrypted with exactly these facts; which facts open the next page stands in
the page itself. Reading the source thus tells nothing: who wants the next page must have done what the last one said.
(This keeps out whoever reads. It does not withstand a search through all values that a fact could have.)
"""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SAID = "said"
"""The rule of a program that is called with words: they open a page."""

COST = 2000
"""Rounds of hashing that trying one set of facts takes: a few milliseconds."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page, and what opens it.

    Attributes:
        rules: Where to look; see `fact`.
        facts: What is to be found there, for each rule.
        text: What it says.
        into: The file that it goes to; empty: it is printed.
    """

    rules: tuple[str, ...]
    facts: tuple[str, ...]
    text: str
    into: str = ""


def fact(rule: str, said: Sequence[str], read: Callable[[str], str | None]) -> str:
    """Return what a rule looks at: the words of the call, a command's output, a file or part of it, a folder."""
    kind, path, key = (*rule.split("|", 2), "", "")[:3]
    if not kind:  # always the same
        return ""
    if kind == "said":
        return " ".join(said).casefold()
    if kind == "run":
        import subprocess  # only here: few programs start others, and each must start fast

        try:
            done = subprocess.run(["bash", "-c", rule[4:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=3)
        except subprocess.TimeoutExpired:
            return ""
        return done.stdout.decode(errors="replace").strip()
    lines = [line.rstrip() for line in (read(path) or "").strip().splitlines()]
    if kind == "text":  # also "FOLDER/", which reads as the names in it
        return "\n".join(lines)
    if kind == "head":  # the first lines, so many as the key says
        return "\n".join(lines[: int(key)])
    if kind == "row":  # of a table with commas, by its first cell
        return next((line for line in lines if line.split(",")[0] == key), "")
    if kind == "json":
        import json  # only here: few programs look into such files, and each must start fast

        try:
            value = json.loads("\n".join(lines))
            for step in key.split("."):
                value = value[step]
        except (ValueError, LookupError, TypeError):
            return ""
        return json.dumps(value)
    for line in lines:  # a setting: `key = value`, `key: value` or `"key": value,`
        sign = min((at for at in (line.find("="), line.find(":")) if at >= 0), default=0)
        if line[:sign].strip(" \t\"'") == key:
            return line[sign + 1 :].strip(" \t,").strip("\"'")
    return ""


def cipher(facts: str, data: bytes) -> bytes:
    """Encrypt or decrypt with a key stream made of the facts."""
    key = hashlib.pbkdf2_hmac("sha256", facts.encode(), b"page", COST)
    stream = hashlib.shake_256(key).digest(len(data))
    return bytes(one ^ other for one, other in zip(data, stream, strict=True))


def opened(facts: str, sealed: str) -> str | None:
    """Return the text of a page, or None if these are not the facts that open it."""
    plain = cipher(facts, bytes.fromhex(sealed))
    return plain[8:].decode() if plain[:8] == hashlib.sha256(plain[8:]).digest()[:8] else None


def on_disk(path: str) -> str | None:
    """Return the text of a file, or the names in a folder, a line each; None if there is nothing to read."""
    try:
        if path.endswith("/"):
            return "\n".join(sorted(os.listdir(path)))
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None


def read_out(rules: str, pages: Sequence[str], nothing: str) -> None:
    """Print the last page that opens. Its first line: the rules of the next page; its second: a file, or nothing."""
    last = None
    for number, sealed in enumerate(pages):
        facts = [fact(rule, sys.argv[1:], on_disk) for rule in rules.split("\t")]
        page = opened("\n".join([str(number), rules, *facts]), sealed)
        if page is not None:
            last = page
            rules = page.partition("\n")[0]
    if last is None:
        print(nothing)
        sys.exit(1)
    _, path, text = last.split("\n", 2)
    if path:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        text = "new: " + path
    print(text)


# -- Made by the family: the pages, sealed with the state that the workspace has at each step, and the program --------


def program(purpose: str, pages: Sequence[Page], nothing: str = "Nothing.") -> str:
    """Return the source of the program that reads the pages out: isolated Python, standard library only.

    Args:
        purpose: A line for people who read the source.
        pages: In order.
        nothing: What it prints when no page opens.
    """
    sealed = []
    for number, page in enumerate(pages):
        following = pages[number + 1].rules if number + 1 < len(pages) else page.rules
        plain = "\n".join(["\t".join(following), page.into, page.text]).encode()
        data = hashlib.sha256(plain).digest()[:8] + plain
        sealed.append(cipher("\n".join([str(number), "\t".join(page.rules), *page.facts]), data).hex())
    parts = [
        f'#!/usr/bin/env -S python3 -IS\n"""{purpose}"""\nfrom __future__ import annotations\n\n'
        f"import hashlib, os, sys\n\nCOST = {COST}\n",
        *(inspect.getsource(part) for part in (fact, cipher, opened, on_disk, read_out)),
        "PAGES = [\n" + "".join(f"    {page!r},\n" for page in sealed) + "]\n",
        f"read_out({chr(9).join(pages[0].rules)!r}, PAGES, {nothing!r})\n",
    ]
    return "\n".join(parts)


def written(metadata: Mapping[str, Any]) -> str:
    """Return the source of the program of a task file, from what its author wrote under `metadata`.

    Args:
        metadata: `purpose`, `nothing`, and `pages`: each has a `text`, and may have `opens` (rule to fact; without it
            the page is always open) and `into` (the file that it goes to).

    Raises:
        KeyError: Something of that is missing.
    """
    pages = [
        Page(
            tuple(page.get("opens", {"": ""})),
            tuple(page.get("opens", {"": ""}).values()),
            page["text"],
            page.get("into", ""),
        )
        for page in metadata["pages"]
    ]
    return program(metadata["purpose"], pages, metadata["nothing"])
