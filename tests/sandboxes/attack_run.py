"""Run the attack list in one session of one backend and print a JSON report. Started by test_attacks.py.

Usage: attack_run.py BACKEND ATTACKS.json
"""

from __future__ import annotations

import json
import sys
import time
from types import SimpleNamespace

from sandboxes import SandboxError, client, open_sandbox

client.GRACE = 60.0
"""Four sessions attack one machine at the same time: an answer may be late here, but it must come and be right."""

SECONDS = {"atk-70": 45.0}
"""`rm -rf /` walks the whole /usr of the host; everything else must end by itself within the default."""
DEFAULT_SECONDS = 2.0
AFTER = {"atk-62": "\\unset -f printf builtin eval exit declare command trap source kill read; \\unalias -a"}
"""Functions and aliases are kept on purpose: after that attack, do what a user would do to get rid of them."""


def main(backend: str, path: str) -> None:
    """Run and report."""
    with open(path) as file:
        attacks = json.load(file)["attacks"]
    report = []
    with open_sandbox(backend) as sandbox:
        sandbox.open({})
        sandbox.run("export KEPT=yes")
        for attack in attacks:
            command = attack["command"] if "command" in attack else eval(attack["command_python"])
            row = {"id": attack["id"], "name": attack["name"]}
            report.append(row)
            begin = time.monotonic()
            try:
                result = sandbox.run(command, timeout=SECONDS.get(attack["id"], DEFAULT_SECONDS))
                seen = SimpleNamespace(
                    rc=result.exit_code,
                    out=result.stdout,
                    err=result.stderr,
                    # what the command took inside: the machine of the test may be busy with anything
                    dt=min(result.seconds, time.monotonic() - begin),
                    timed_out=result.timed_out,
                )
                row["right"] = attack["expect"] is None or bool(eval(attack["expect"], {"r": seen}))
                row["seen"] = f"{seen.rc} {seen.out[:200]!r} {seen.err[:300]!r} {seen.dt:.2f} s"
                if attack["id"] in AFTER:
                    row["kept"] = sandbox.run("echo x").exit_code == 1
                    sandbox.run(AFTER[attack["id"]])
                row["alive"] = sandbox.run("/bin/echo ok", timeout=20).stdout == b"ok\n"
                row["state"] = sandbox.run('echo "$KEPT $PWD"', timeout=20).stdout.decode().strip()
                sandbox.snapshot()
            except SandboxError as error:
                row["lost"] = str(error)
                sandbox.open({})
                sandbox.run("export KEPT=yes")
        sandbox.reset()
        json.dump({"report": report, "left": sandbox.listing(), "starts": sandbox.starts}, sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
