"""The parts of the inside shell that need no sandbox."""

from __future__ import annotations

from sandboxes.inside.processes import Capture
from sandboxes.inside.shell import State


def test_capture_keeps_head_and_tail() -> None:
    capture = Capture(10)
    for letter in b"abcdefghijklmnopqrstuvwxyz":
        capture.feed(bytes([letter]))
    assert capture.value() == b"abcde\n[... 16 bytes not shown ...]\nvwxyz"
    assert (capture.cut, capture.total) == (16, 26)


def test_capture_of_a_short_stream_is_the_stream() -> None:
    capture = Capture(10)
    capture.feed(b"0123456789")
    assert (capture.value(), capture.cut) == (b"0123456789", 0)


def test_capture_in_large_pieces() -> None:
    capture = Capture(1000)
    data = bytes(range(256)) * 100
    for start in range(0, len(data), 7000):
        capture.feed(data[start : start + 7000])
    value = capture.value()
    assert value.startswith(data[:500])
    assert value.endswith(data[-500:])
    assert capture.cut == len(data) - 1000


DUMP = (
    b"hashall\0cmdhist\0hashall:nounset:errexit\0cmdhist:nullglob:expand_aliases\0/workspace/d\n\0"
    b'declare -x A="1"\ndeclare -ir PPID="1"\ndeclare -- _tg_b="x"\ndeclare -r SHELLOPTS="y"\n\0'
    b"umask 0022\nalias l='ls'\n\0f () \n{ \n    :\n}\n\0#STATE-OK"
)


def test_state_follows_a_dump() -> None:
    state = State("/workspace", b"").following(DUMP, None)
    assert state is not None
    assert state.cwd == "/workspace/d"
    text = state.text.decode()
    assert 'declare -x A="1"' in text
    assert "set -o nounset" in text
    assert "shopt -s nullglob" in text
    assert text.rstrip().endswith("shopt -s expand_aliases"), "functions are read while aliases are off"
    for name in ("PPID", "_tg_b", "SHELLOPTS", "errexit"):
        assert name not in text


def test_no_state_without_its_end() -> None:
    state = State("/workspace", b"old")
    assert state.following(DUMP[:-3], None) is None
    assert state.following(b"", None) is None
    assert state.following(b"\0#STATE-OK", None) is None


def test_a_closed_directory_is_not_left() -> None:
    state = State("/workspace/shut", b"").following(DUMP.replace(b"/workspace/d", b"/"), "/")
    assert state is not None
    assert state.cwd == "/workspace/shut"


def test_exit_code_is_carried_only_when_asked_for() -> None:
    state = State("/", b"", 3)
    assert state.carry(b"echo $?") == b"(\\exit 3);echo $?"
    assert state.carry(b"ls") == b"ls"
    assert State("/", b"", 0).carry(b"echo $?") == b"echo $?"
