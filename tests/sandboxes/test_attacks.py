"""Every hostile or awkward command of the shared list, in one session per backend, as we are and as a plain user.

After each one the session must live, the directory and an exported variable must be as before. All sessions run at the
same time: most of the list's seconds are time-outs.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxes import Backend
from tests.sandboxes.conftest import ENGINE_VARIABLE, engine_for, require
from tests.shared_data import shared

# Fork bombs and floods of one module must not starve the start of another: one worker runs them in turn.
pytestmark = pytest.mark.xdist_group("sandbox stress")

Start = Callable[..., "subprocess.Popen[str]"]
SCRIPT = Path(__file__).with_name("attack_run.py")
SESSIONS = [(backend, user) for backend in (Backend.BUBBLEWRAP, Backend.LANDLOCK) for user in ("ourselves", "plain")]
# A plain user may not reach the engine of these tests.
SESSIONS += [(Backend.DOCKER, "ourselves")] if os.environ.get(ENGINE_VARIABLE) else []
EXCEPTIONS = {
    Backend.DOCKER: {},
    Backend.BUBBLEWRAP: {},
    Backend.LANDLOCK: {
        "atk-30": "no pseudo-terminals: /dev/ptmx would lead to the terminals of the host",
        "atk-70": "the root directory of the host is not listed",
    },
}


@pytest.fixture(scope="module")
def sessions(start_here: Start, start_plain: Start) -> dict[tuple[Backend, str], subprocess.Popen[str]]:
    path = str(shared("fixtures/sandbox_attacks.json"))
    starters = {"ourselves": start_here, "plain": start_plain}
    found = {}
    for backend, user in SESSIONS:
        with engine_for(backend):
            found[backend, user] = starters[user](str(SCRIPT), backend, path)
    return found


@pytest.mark.parametrize(
    ("backend", "user"),
    [
        pytest.param(*session, marks=pytest.mark.docker) if session[0] is Backend.DOCKER else session
        for session in SESSIONS
    ],
)
def test_attacks(sessions: dict[tuple[Backend, str], subprocess.Popen[str]], backend: Backend, user: str) -> None:
    with engine_for(backend):
        require(backend)
    out, err = sessions[backend, user].communicate(timeout=280)
    assert sessions[backend, user].returncode == 0, err
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
