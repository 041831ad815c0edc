"""Conformance of services: they outlive commands, whatever ends those, and end before a judge and with the episode."""

from __future__ import annotations

from sandboxes.conformance.check import Attack, Group, Run, Step, Trial, Wrong, again, brief, check, gone, must, sees
from sandboxes.sandbox import Terms

SERVICES = Group("services")

_SHORT = 1.5
"""Time-out of a command that never ends by itself."""
_BEAT = "while :; do echo x >> /tmp/beat; sleep 0.02; done"
_SIZE = "stat -c %s /tmp/beat 2>/dev/null || echo 0"
_GROWS = f'a=$({_SIZE}); for i in $(seq 100); do [ "$({_SIZE})" -gt "$a" ] && echo lives && exit; sleep 0.02; done'
_BEATS = Run(_GROWS, out=b"lives\n")
"""A step: the service writes on."""
_RESTS = 'a=$(stat -c %s /tmp/beat); sleep 0.3; b=$(stat -c %s /tmp/beat); [ "$a" = "$b" ] && echo '
_STILL = Run(f"{_RESTS}gone", out=b"gone\n")
_BESIDE = "(setsid bash -c 'sleep 300; :' @token@ >/dev/null 2>&1 &); "


def _serve(command: str) -> Step:
    """A step: start a service, and let it begin."""

    def start(trial: Trial) -> None:
        trial.sandbox.serve(trial.fill(command))
        trial.out("for i in $(seq 200); do [ -s /tmp/beat ] && exit; sleep 0.02; done; exit 1")

    return start


def _judged(command: str) -> Step:
    """A step: a judge says `still`."""

    def step(trial: Trial) -> None:
        said = trial.sandbox.judge('export WORKSPACE="$PWD"\n' + command, {}, timeout=20, env={}, private=False)
        must(said.stdout == b"still\n", f"the judge: {brief(said)}")

    return step


def _has(codes: list[int | None]) -> Step:
    """A step: so many services are known, which run (None) or ended with these codes."""
    return lambda trial: must(trial.sandbox.services() == codes, f"services: {trial.sandbox.services()}")


def _beats_or_ended(trial: Trial) -> None:
    """A step: the service writes on, or has ended. A bash that could not fork tries again after up to 16 seconds."""
    for _ in range(60):
        if trial.sandbox.services() != [None]:
            return _STILL(trial)
        if b"lives" in trial.run(_GROWS).stdout:
            return None
    raise Wrong("the service runs, and does nothing")


SERVICES.table(
    check(
        "service-outlives-commands-and-what-ends-them",
        "A plain command, a time-out, a flood and a killed shell, each with a daemon of its own, which ends.",
        _serve(_BEAT),
        Attack(_BESIDE + "echo d", out=b"d\n"),
        gone(),
        Attack(_BESIDE + "while :; do :; done", timeout=_SHORT, timed_out=True),
        gone(),
        Attack(_BESIDE + "yes", code=137, timeout=60.0),
        Attack(_BESIDE + "kill -9 $$", code=137),
        gone(),
        _BEATS,
    ),
    check(
        "service-of-several-processes-lives-whole",
        "What a service started lives on while it has a parent there.",
        _serve(f"bash -c 'bash -c \"{_BEAT}\"; :'; :"),
        Run(_BESIDE + "echo d", out=b"d\n"),
        gone(),
        _BEATS,
    ),
    check(
        "service-ends-before-a-judge",
        "A service writes while a judge would read.",
        _serve(_BEAT),
        _judged(f"{_RESTS}still"),
        _STILL,
        _has([]),
    ),
    check(
        "service-ends-with-the-episode",
        "A service writes into the workspace while the next episode begins.",
        _serve(f"({_BEAT}) & while :; do echo x >> bg; sleep 0.02; done"),
        again,
        sees("the new episode is empty", lambda found: not found),
        Run("sleep 0.2; ls -A; ls /tmp", code=0, out=b""),
    ),
    check(
        "service-can-be-ended",
        "Services end when the task says so; what a service left without a parent ended before.",
        _serve(f"(setsid bash -c 'sleep 300; :' @token@ &); {_BEAT}"),
        gone(),
        _BEATS,
        lambda trial: trial.sandbox.end_services(),
        _STILL,
        _has([]),
    ),
    check(
        "sealed-start-keeps-the-workspace-and-services-alone",
        "Closed trees and hidden files elsewhere, and a daemon; what stands in the workspace keeps its mode and owner.",
        _serve(_BEAT),
        lambda trial: trial.sandbox.run(
            trial.fill(f"{_BESIDE}echo kept > kept; chmod 400 kept; mkdir -p /tmp/a/b /tmp/.h; echo x > /tmp/a/b/c")
            + "; chmod 000 /tmp/a",
            state="clean",
            keep_background=True,
        ),
        Run("export KEPT=x; cd here", code=0),
        lambda trial: trial.sandbox.seal(),
        gone(),
        Run("ls -A /tmp | grep -v beat", fails=True, out=b""),
        Run(
            'stat -c %a ../kept; [ -O ../kept ] && cat ../kept; echo "$KEPT $PWD"',
            out=b"400\nkept\nx /workspace/here\n",
        ),
        Run("chmod u+w ../kept && echo again > ../kept && cat ../kept", out=b"again\n"),
        _BEATS,
    ),
    check(
        "service-starts-clean-and-is-not-heard",
        "It has nothing of the agent's shell, and what it prints reaches no command. How it ended is known.",
        Run("export LEFT=x; cd /tmp; bash() { :; }"),
        _serve('echo "[$LEFT] $PWD $(type -t bash)" > /tmp/beat; echo loud; echo louder >&2; exit 7'),
        Run("/bin/cat /tmp/beat", code=0, out=b"[] /workspace file\n", err=b""),
        _has([7]),
    ),
    check(
        "service-outlives-a-fork-bomb-or-is-known-to-have-ended",
        "What forks faster than it can be looked up may cost the service, never the session.",
        _serve(_BEAT),
        Attack(":(){ :|:& };:", timed_out=None, timeout=2.0),
        _beats_or_ended,
        stress=True,
        unsafe=True,
    ),
    check(
        "environment-of-the-episode-is-in-every-command",
        "Commands, clean ones, judges and services have it, whatever the agent unset; the next episode has not.",
        lambda trial: trial.sandbox.open({}, terms=Terms({"PLACE": "a 'b'\nc", "DATA": "/workspace/d"})),
        Run('printf %s "$PLACE|$DATA"; unset PLACE DATA', out=b"a 'b'\nc|/workspace/d"),
        Run('printf %s "$PLACE|$DATA"', out=b"|"),
        Run('printf %s "$PLACE|$DATA"', clean=True, out=b"a 'b'\nc|/workspace/d"),
        _judged('[ "$DATA" = "$WORKSPACE/d" ] && [ -n "$PLACE" ] && echo still'),
        _serve('printf %s "$PLACE" > /tmp/beat'),
        Run("cat /tmp/beat", out=b"a 'b'\nc"),
        again,
        Run('printf %s "$PLACE|$DATA"', out=b"|"),
    ),
    check(
        "limits-of-the-episode-hold-for-the-episode",
        "A smaller workspace, and after it the sandbox's own again.",
        lambda trial: trial.sandbox.open({}, terms=Terms(limits={"workspace_mb": 4})),
        Run("head -c 30000000 /dev/zero > big; code=$?; sleep 0.5; exit $code", fails=True),
        lambda trial: must(trial.sandbox.limits.workspace_mb == 4, "the limit is not known"),
        again,
        Run("head -c 30000000 /dev/zero > big; stat -c %s big", code=0, out=b"30000000\n"),
    ),
)
