"""Regular expressions that people write, searched in text that an agent wrote: checked first, and with a time limit."""

from __future__ import annotations

import time
from typing import Annotated

import regex
from pydantic import AfterValidator

from tasks.assertions.on_files import shorten
from tasks.model import Text, fault

REGEX_SECONDS = 2.0
"""Processor time that one regular expression may search."""
_TRIES = 4


class TooSlow(Exception):
    """A search ran out of time; the message names the pattern."""


def search(pattern: str, text: str) -> bool:
    """Whether the pattern is found in the text.

    Raises:
        TooSlow: not within `REGEX_SECONDS`.
    """
    for number in range(_TRIES):
        start = time.thread_time()
        try:
            return regex.search(pattern, text, timeout=REGEX_SECONDS * 2**number) is not None
        except TimeoutError:  # counted for all threads of the process, so others may have used it up
            if time.thread_time() - start > REGEX_SECONDS / 2:
                break
    raise TooSlow(f"the pattern {shorten(pattern)} took longer than {REGEX_SECONDS:g} s")


def _compiles(pattern: str) -> str:
    try:
        regex.compile(pattern)
    except regex.error as error:
        raise fault(f"the pattern {shorten(pattern)} is no regular expression: {error}") from error
    return pattern


Pattern = Annotated[Text, AfterValidator(_compiles)]
"""A regular expression in the syntax of the `regex` package, which takes that of `re`; no flags are set."""
