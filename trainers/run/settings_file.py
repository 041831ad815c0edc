"""A YAML file of settings as plain data: readable, one mapping, each key once; each fault with its line."""

from __future__ import annotations

from pathlib import Path

from tasks.document import Document, parse
from trainers.errors import ConfigError


def read_settings(path: Path) -> Document:
    """The mapping in a file (`data`), and where each key stands (`lines`).

    Raises:
        ConfigError: It cannot be read, is not plain YAML, or holds something else.
    """
    try:
        document = parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error})") from error
    if document.problems:
        raise ConfigError("\n".join(map(str, document.problems)))
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}: must hold `key: value` lines")
    return document
