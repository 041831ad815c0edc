from __future__ import annotations

import json
import struct

import pytest

from sandboxes.inside import frames
from sandboxes.inside.frames import MAX_BODY, BrokenFrame, FrameBuffer, pack


def test_round_trip_byte_by_byte() -> None:
    heads = [{"id": 1, "path": "\udcff\n"}, {"id": 2}]
    data = pack(heads[0], b"\0\xff") + pack(heads[1])
    buffer = FrameBuffer()
    frames = []
    for index in range(len(data)):
        buffer.feed(data[index : index + 1])
        ready = buffer.ready
        frame = buffer.next()
        assert ready == (frame is not None)
        if frame:
            frames.append(frame)
    assert frames == [(heads[0], b"\0\xff"), (heads[1], b"")]
    assert buffer.next() is None


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("!II", 3, 0) + b"{x}",
        struct.pack("!II", 2, 0) + b"[]",
        struct.pack("!II", 2, 0) + b"\xff\xff",
        struct.pack("!II", 2, MAX_BODY + 1) + b"{}",
        struct.pack("!II", 0xFFFFFFFF, 0),
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    buffer = FrameBuffer()
    buffer.feed(data)
    with pytest.raises(BrokenFrame):
        buffer.next()


VALUES = {"a": [1, -2.5, True, False, None, 'x\n"\\\udcff\u20ac'], "b": {"c": {}}, "": [[], [0.1, 1e300, 10**30]]}


@pytest.mark.parametrize("parts", ["in C", "absent"])
def test_heads_are_plain_json(parts: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if parts == "absent":
        monkeypatch.setattr(frames, "_c", None)
    data = pack(VALUES)
    assert data[8:] == json.dumps(VALUES, separators=(",", ":")).encode()
    buffer = FrameBuffer()
    buffer.feed(data)
    assert buffer.next() == (VALUES, b"")
    for text in (b"", b"{} x", b'{"a":}', b"{,}", b'{"a":1', b"nope"):
        buffer = FrameBuffer()
        buffer.feed(struct.pack("!II", len(text), 0) + text)
        with pytest.raises(BrokenFrame):
            buffer.next()
    with pytest.raises(TypeError):
        pack({"a": b"bytes"})
