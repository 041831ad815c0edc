"""End a reply where its text holds a stop text, while it is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_SLACK = 8
"""Ids beyond the bytes of the longest stop text, for ids that stand for no text and half characters at the edge."""


class StopTexts:
    """Looks for the stop texts of one reply.

    Only a window of the last ids is decoded after each id (an id stands for at least a byte); what the window shows is
    confirmed on the whole reply. Only whole characters count: half a character at the end shows as U+FFFD, so a real
    U+FFFD counts as soon as another id follows it.

    Args:
        tokenizer: Decodes ids.
        stops: The texts; none may be empty.

    Raises:
        ValueError: A stop text is empty: every reply would end at once.
    """

    def __init__(self, tokenizer: Any, stops: Sequence[str]) -> None:
        if not all(stops):
            raise ValueError("an empty stop text would end every reply at once")
        self._decode = tokenizer.decode
        self._stops = tuple(stops)
        self._window = max(len(stop.encode("utf-8", "surrogatepass")) for stop in stops) + _SLACK

    def found(self, ids: Sequence[int]) -> bool:
        """Whether the last id of `ids` completed a stop text."""
        return self._in(ids[-self._window :]) and self._in(ids)

    def _in(self, ids: Sequence[int]) -> bool:
        text = self._decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False)
        text = text.rstrip("\ufffd")
        return any(stop in text for stop in self._stops)
