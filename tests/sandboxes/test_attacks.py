"""Every hostile or awkward command of the shared list, one after the other in one session.

After each one the session must live, the directory and an exported variable must be as before. Each of them is a check
of the conformance list, too, which every backend is held to; so CI plays two sessions, and `whole` all.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxes import Backend
from tests.sandboxes.conftest import engine_for, require
from tests.shared_data import shared

# Fork bombs and floods of one module must not starve the start of another: one worker runs them in turn.
pytestmark = pytest.mark.xdist_group("sandbox stress")

Start = Callable[..., "subprocess.Popen[str]"]
SCRIPT = Path(__file__).with_name("attack_run.py")
# A plain user may not reach the engine of these tests.
SESSIONS = [
    (Backend.BUBBLEWRAP, "ourselves"),
    (Backend.LANDLOCK, "plain"),
    pytest.param(Backend.BUBBLEWRAP, "plain", marks=pytest.mark.whole),
    pytest.param(Backend.LANDLOCK, "ourselves", marks=pytest.mark.whole),
    pytest.param(Backend.DOCKER, "ourselves", marks=[pytest.mark.docker, pytest.mark.whole]),
]
EXCEPTIONS = {
    Backend.DOCKER: {},
    Backend.BUBBLEWRAP: {},
    Backend.LANDLOCK: {
        "atk-30": "no pseudo-terminals: /dev/ptmx would lead to the terminals of the host",
        "atk-70": "the root directory of the host is not listed",
    },
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("backend", "user"), SESSIONS)
def test_attacks(request: pytest.FixtureRequest, backend: Backend, user: str) -> None:
    with engine_for(backend):
        require(backend)
        start: Start = request.getfixturevalue("start_here" if user == "ourselves" else "start_plain")
        process = start(str(SCRIPT), backend, str(shared("fixtures/sandbox_attacks.json")))
    out, err = process.communicate(timeout=580)
    assert process.returncode == 0, err
    answer = json.loads(out)
    rows = answer["report"]
    assert [row for row in rows if "lost" in row] == []
    wrong = {row["id"]: (row["name"], row["seen"]) for row in rows if not row["right"]}
    exceptions = EXCEPTIONS[backend]
    assert wrong.keys() == exceptions.keys(), wrong
    assert [row for row in rows if not row["alive"]] == []
    # The one directory that a command removed under itself is gone for the next one, too.
    assert [row for row in rows if row["state"] != "yes /workspace"] == []
    assert all(row["kept"] for row in rows if "kept" in row)
    assert answer["left"] == []
    assert answer["starts"] == 1
