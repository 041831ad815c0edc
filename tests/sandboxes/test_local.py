"""The local backend, as a user without rights: no confinement, but the same semantics, and no hanging."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

PROGRAM = """
import os, sys, tempfile, warnings
from sandboxes import SandboxError, open_sandbox
assert os.geteuid() != 0
tempfile.tempdir = tempfile.mkdtemp()  # other tests run as this user at the same time
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    sandbox = open_sandbox("local")
    sandbox.open({"a": "1"})
    other = open_sandbox("local")
    other.open({})
    other.close()
assert len(seen) == 1 and "NO confinement" in str(seen[0].message), seen
assert sandbox.run("export X=2; cat /workspace/a").stdout == b"1"
assert sandbox.run("echo $X; pwd").stdout == b"2\\n/workspace\\n"
late = sandbox.run("echo part; sleep 50", timeout=0.5)
assert late.timed_out and late.stdout == b"part\\n", late
bomb = sandbox.run("for i in $(seq 60); do (setsid sleep 4321 >/dev/null 2>&1 &); done; :(){ :|:& };:", timeout=3)
assert sandbox.run("ps -eo args | grep -x 'sleep 4321'").stdout == b""
assert sandbox.run("yes", timeout=30).truncated
assert sandbox.run("echo $X").stdout == b"2\\n"
try:
    sandbox.run("kill -9 $PPID; sleep 1")
    sys.exit("a killed supervisor went unnoticed")
except SandboxError as error:
    assert "lost" in str(error), error
sandbox.open({"b": "3"})
assert sandbox.listing() == ["b"]
sandbox.close()
left = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("turngym-%d-" % os.geteuid())]
assert left == [], left
print("all right")
"""


def test_local_as_a_plain_user(start_plain: Callable[..., subprocess.Popen[str]]) -> None:
    out, err = start_plain("-c", PROGRAM).communicate(timeout=120)
    assert out == "all right\n", err
