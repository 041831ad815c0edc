from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes.owner import is_owner, owner, owner_lives, run_id

PRINT = "from sandboxes.owner import owner; print(owner(), flush=True); input()"


def test_a_token_names_this_process() -> None:
    assert re.fullmatch(r"[0-9a-f-]+", owner())
    assert owner().startswith(f"{os.getpid()}-")
    assert is_owner(owner())
    assert owner_lives(owner()) is True


def test_a_process_lives_until_it_is_killed_also_before_anybody_waits_for_it() -> None:
    root = str(Path(__file__).resolve().parents[2])
    child = subprocess.Popen(
        [sys.executable, "-c", PRINT], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    with child.stdin, child.stdout:
        token = child.stdout.readline().strip()
        assert token.startswith(f"{child.pid}-")
        assert owner_lives(token) is True
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert owner_lives(token) is False, "a zombie"
        child.wait()
    assert owner_lives(token) is False


def test_a_forked_copy_has_its_own_token() -> None:
    mine = owner()
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.write(write, owner().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    token = os.read(read, 200).decode()
    os.close(read)
    os.close(write)
    assert token.split("-")[0] == str(pid)
    assert owner() == mine


def test_a_reused_process_id_is_somebody_else() -> None:
    pid, started, boot, namespace = owner().split("-")
    assert owner_lives(f"{pid}-{int(started) + 1}-{boot}-{namespace}") is False


def test_what_cannot_be_told_from_here() -> None:
    pid, started, boot, namespace = owner().split("-")
    assert owner_lives(f"{pid}-{started}-{boot}-1") is None, "another pid namespace"
    other = f"{pid}-{started}-00000000-{namespace}"
    assert owner_lives(other) is None, "another boot, or another machine"
    assert owner_lives(other, here=True) is False, "another boot of this machine"
    for text in ("", "turngym", f"{owner()} ", f"-{owner()}"):
        assert not is_owner(text)
        assert owner_lives(text) is None


def test_a_run_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TURNGYM_RUN_ID", raising=False)
    assert run_id() == owner()
    monkeypatch.setenv("TURNGYM_RUN_ID", "night_3.b-1")
    assert run_id() == "night_3.b-1"
    for bad in ("a b", "a/b", "x" * 65, "ü"):
        monkeypatch.setenv("TURNGYM_RUN_ID", bad)
        with pytest.raises(ValueError, match="TURNGYM_RUN_ID"):
            run_id()
