"""YAML without its surprises: plain data, where each value stands, and what is wrong with the YAML itself."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import yaml

from tasks.model import BAD_SCALAR, MAX_NUMBER, Problem

Place = tuple[str | int, ...]
"""Where a value stands in a document: keys and list positions from the top."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_PLAIN = ("str", "int", "float", "bool", "null", "timestamp", "value", "seq", "map")
_PLAIN_TAGS = {_TAG + name for name in _PLAIN}

MAX_NODES = 100_000
"""Values that one file may hold, anchors counted as often as they are used."""


class _Hopeless(Exception):
    """Reading the rest of a document makes no sense; why is among its problems."""


@dataclass(slots=True)
class Document:
    """A YAML file as plain data, with what is needed to complain about it.

    Attributes:
        file: Name for messages.
        data: The content.
        lines: Line (from 1) of each key or list item.
        raw: How a scalar was written, before YAML gave it a type.
        nodes: Values read so far.
        problems: What is wrong with the YAML itself.
        origin: Where a value is written that stands at another place in the content (made from a template, or read
            from a folder).
    """

    file: str
    data: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    raw: dict[Place, str] = field(default_factory=dict)
    nodes: int = 0
    problems: list[Problem] = field(default_factory=list)
    origin: dict[Place, Place] = field(default_factory=dict)

    def written(self, place: Place) -> Place:
        """Where in the file the value at a place is written."""
        for end in range(len(place), 0, -1) if self.origin else ():
            if place[:end] in self.origin:
                return self.origin[place[:end]] + place[end:]
        return place

    def complain(self, message: str, place: Place, line: int | None = None) -> Problem:
        """Build the problem at `place`; the line is that of the nearest known key above it."""
        place = self.written(place)
        known = place
        while line is None and known and known not in self.lines:
            known = known[:-1]
        return Problem(message, self.file, line or self.lines.get(known, 1), dotted(place))


def parse(text: str, file: str) -> Document:
    """Read YAML text into plain data; what is wrong with it is in the document's `problems`."""
    document = Document(file)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        document.problems.append(Problem("holds half a surrogate pair, which is no character", file, line))
        return document
    loader = _LOADER(text)
    try:
        root = loader.get_single_node()
        if root is not None:
            document.data = _plain(loader, root, (), document, set())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        why = error.problem or "cannot be read"
        if "another document" in why:
            why = "holds two documents (a line `---`): give each a file of its own"
        elif "\\t" in why or "cannot start any token" in why:
            why += " (indent with spaces; put text that starts with @, ` or % in quotes)"
        elif "mapping values are not allowed" in why:
            why += " (put a text that holds `: ` in quotes)"
        document.problems.append(Problem(f"not valid YAML: {why}", file, mark.line + 1 if mark else None))
    except yaml.YAMLError as error:
        document.problems.append(Problem(f"not valid YAML: {error}", file))
    except RecursionError:
        document.problems.append(Problem("is nested too deeply", file))
    except _Hopeless:
        pass
    finally:
        loader.dispose()
    return document


def _plain(loader: Any, node: yaml.Node, place: Place, document: Document, above: set[int]) -> Any:
    """Turn a YAML node into plain data, noting lines; `above` holds the nodes on the way here."""
    line = node.start_mark.line + 1
    document.lines.setdefault(place, line)
    document.nodes += 1
    if document.nodes > MAX_NODES or id(node) in above:
        document.problems.append(
            document.complain("an anchor (`&`, `*`) repeats without end: write it out", place, line)
        )
        raise _Hopeless
    if node.tag not in _PLAIN_TAGS:
        document.problems.append(
            document.complain(f"YAML tags such as {_short_tag(node.tag)} are not used", place, line)
        )
        return None
    if isinstance(node, yaml.ScalarNode):
        document.raw[place] = node.value
        if len(node.value) > MAX_NUMBER and node.tag != _TAG + "str":
            message = f"is a number of {len(node.value)} characters; if text is meant, put it in quotes"
            document.problems.append(document.complain(message, place, line))
            return None
        try:
            return node.value if node.tag == _TAG + "value" else loader.construct_object(node)
        except (*BAD_SCALAR, yaml.YAMLError):  # an impossible date such as 2024-99-99, or a tag such as !!bool maybe
            document.problems.append(document.complain(quote_hint(node.value, "a broken date or number"), place, line))
            return None
    above = above | {id(node)}
    if isinstance(node, yaml.SequenceNode):
        return [_plain(loader, item, (*place, index), document, above) for index, item in enumerate(node.value)]
    assert isinstance(node, yaml.MappingNode)
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key_line = key_node.start_mark.line + 1
        if key_node.tag == _TAG + "merge":
            document.problems.append(
                document.complain("merge keys (`<<`) are not used: write the keys out", place, key_line)
            )
            continue
        if key_node.tag != _TAG + "str" or not isinstance(key_node, yaml.ScalarNode):
            written = getattr(key_node, "value", "?")
            shown = written if isinstance(written, str) else "?"
            message = f'the key `{shown}` is not read as text: put it in quotes: "{shown}"'
            document.problems.append(document.complain(message, place, key_line))
            continue
        key = key_node.value
        if key in data:
            first = document.lines[(*place, key)]
            message = f"the key '{key}' stands here twice (first in line {first}): remove or rename one"
            document.problems.append(document.complain(message, (*place, key), key_line))
            continue
        document.lines[(*place, key)] = key_line
        data[key] = _plain(loader, value_node, (*place, key), document, above)
    return data


def quote_hint(written: str, read_as: str) -> str:
    """Word the complaint about a bare word that YAML takes for something else than text."""
    quoted = json.dumps(written, ensure_ascii=False)
    return f"`{written}` is read by YAML as {read_as}, but text is meant here: put it in quotes: {quoted}"


def dotted(place: Place) -> str:
    """Write a place as people do: `assertions[1].path`."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _short_tag(tag: str) -> str:
    return tag.replace(_TAG, "!!")
