"""Frames: how the host and the supervisor talk.

One frame = two big-endian 32-bit lengths, a JSON object, a binary body. Both directions are the same. Requests carry
an `id` that their reply repeats. Text that is not valid UTF-8 (odd file names) travels as surrogate escapes in the
JSON; contents of files and output of commands travel in the body, byte for byte.
"""

from __future__ import annotations

import os
import struct

try:
    # `json` takes a third of a supervisor's start, for regular expressions that frames do not need: its parts in C do.
    import _json as _c
except ImportError:  # another Python
    _c = None  # type: ignore[assignment]

HEADER = struct.Struct("!II")
MAX_HEAD = 64 << 20
MAX_BODY = 1 << 30


class BrokenFrame(Exception):
    """Bytes that are no frame: the two ends no longer understand each other."""


class _Plain:
    """What the scanner asks how to read; as in `json.JSONDecoder` without options."""

    strict, object_hook, object_pairs_hook = True, None, None
    parse_float, parse_int, parse_constant = float, int, float
    memo: dict = {}


def _refuse(value: object) -> object:
    raise TypeError(f"{type(value).__name__} has no place in a frame")


def _dumps(value: dict) -> str:
    if _c is None:
        import json

        return json.dumps(value, separators=(",", ":"))
    encoder = _c.make_encoder(None, _refuse, _c.encode_basestring_ascii, None, ":", ",", False, False, True)
    return "".join(encoder(value, 0))


def _loads(text: str) -> object:
    if _c is None:
        import json

        return json.loads(text)
    try:
        value, end = _c.make_scanner(_Plain)(text, 0)  # type: ignore[arg-type]
    except StopIteration as error:
        raise ValueError(f"nothing stands at {error.value}") from None
    if end != len(text):
        raise ValueError(f"more text after {end}")
    return value


def pack(head: dict, body: bytes = b"") -> bytes:
    """One frame as bytes. Raises BrokenFrame when it is too large."""
    return pack_head(head, len(body)) + body


def pack_head(head: dict, size: int) -> bytes:
    """A frame without its body of `size` bytes. Raises BrokenFrame when the frame is too large."""
    text = _dumps(head).encode("ascii")
    if len(text) > MAX_HEAD or size > MAX_BODY:
        raise BrokenFrame(f"frame of {len(text)} + {size} bytes is larger than {MAX_HEAD} + {MAX_BODY}")
    return HEADER.pack(len(text), size) + text


class FrameBuffer:
    """Collects bytes as they come and hands out whole frames."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> None:
        """Add bytes that arrived."""
        self._data += data

    @property
    def ready(self) -> bool:
        """Whether a whole frame has arrived."""
        if len(self._data) < HEADER.size:
            return False
        return len(self._data) >= HEADER.size + sum(HEADER.unpack_from(self._data))

    def take(self) -> bytes:
        """Everything that arrived, to be fed elsewhere."""
        data = bytes(self._data)
        self._data.clear()
        return data

    def next(self) -> tuple | None:
        """The next whole frame as (head, body), or None while it is incomplete.

        Raises:
            BrokenFrame: The bytes cannot be a frame.
        """
        if len(self._data) < HEADER.size:
            return None
        head_size, body_size = HEADER.unpack_from(self._data)
        if head_size > MAX_HEAD or body_size > MAX_BODY:
            raise BrokenFrame(f"a frame claims {head_size} + {body_size} bytes")
        end = HEADER.size + head_size + body_size
        if len(self._data) < end:
            return None
        try:
            head = _loads(bytes(self._data[HEADER.size : HEADER.size + head_size]).decode("ascii"))
        except ValueError as error:
            raise BrokenFrame(f"the head of a frame is no JSON: {error}") from error
        if not isinstance(head, dict):
            raise BrokenFrame("the head of a frame is no JSON object")
        body = bytes(self._data[HEADER.size + head_size : end])
        del self._data[:end]
        return head, body


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte to a blocking descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
