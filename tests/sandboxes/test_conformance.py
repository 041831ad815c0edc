"""The conformance list: complete, held by every backend that works here, and able to fail."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from sandboxes import Backend, CommandResult, Files, Limits, SandboxError, SupervisedSandbox, client
from sandboxes.bubblewrap import BubblewrapLauncher
from sandboxes.conformance import CHECKS, Check, Status, Trial, conform, hostile, passed, run_checks, select, summary
from sandboxes.conformance.check import UNSAFE, Run, Wrong, folders, must
from sandboxes.local import LocalLauncher
from sandboxes.opening import launcher, open_sandbox, probe
from sandboxes.sandbox import Terms
from tests.sandboxes.conftest import engine_for, require
from tests.shared_data import REPOSITORY, shared

# Bombs and floods of one module must not starve the start of another: one worker runs them in turn.
pytestmark = pytest.mark.xdist_group("sandbox stress")

Start = Callable[..., "subprocess.Popen[str]"]

COVERS = {
    "atk-00": "streams-and-exit-code-are-real",
    "atk-01": "fork-bomb-ends-with-its-command",
    "atk-02": "fork-bomb-in-python-ends-with-its-command",
    "atk-03": "builtin-name-as-function-can-be-unset",
    "atk-04": "one-file-is-bounded",
    "atk-06": "forty-thousand-files-cost-nothing",
    "atk-07": "writing-without-end-is-ended",
    "atk-08": "memory-bomb-ends-with-its-command",
    "atk-10": "endless-output-is-ended-and-cut",
    "atk-11": "endless-errors-are-ended-and-cut",
    "atk-12": "endless-binary-output-is-ended-and-cut",
    "atk-13": "long-output-is-cut-to-head-and-tail",
    "atk-14": "background-process-does-not-hold-the-command",
    "atk-15": "daemon-does-not-outlive-its-command",
    "atk-16": "daemon-does-not-outlive-its-command",
    "atk-17": "exit-ends-only-its-command",
    "atk-19": "exec-of-a-shell-ends-its-command",
    "atk-21": "shell-that-stops-itself-is-timed-out",
    "atk-22": "killing-everything-ends-only-the-command",
    "atk-23": "supervisor-cannot-be-killed",
    "atk-24": "standard-input-is-empty",
    "atk-26": "interpreter-without-input-ends",
    "atk-29": "interactive-shell-ends-with-its-input",
    "atk-30": "pseudo-terminal-of-a-command-ends-with-it",
    "atk-31": "there-is-no-controlling-terminal",
    "atk-32": "binary-output-is-byte-exact",
    "atk-33": "invalid-utf8-is-byte-exact",
    "atk-34": "escape-sequences-are-byte-exact",
    "atk-35": "printed-prompts-and-markers-are-only-text",
    "atk-38": "shell-that-ignores-signals-is-timed-out",
    "atk-39": "traps-and-noexec-are-for-one-command",
    "atk-42": "nounset-ends-only-its-command",
    "atk-44": "tracing-is-for-one-command",
    "atk-46": "unterminated-double-quote-is-an-error-at-once",
    "atk-47": "unterminated-single-quote-is-an-error-at-once",
    "atk-48": "unterminated-heredoc-ends-with-the-command",
    "atk-49": "incomplete-if-is-an-error-at-once",
    "atk-50": "stray-parenthesis-is-an-error",
    "atk-51": "trailing-backslash-continues-nothing",
    "atk-52": "only-a-remark-succeeds",
    "atk-53": "empty-command-succeeds",
    "atk-55": "five-kilobyte-line-arrives-whole",
    "atk-56": "huge-line-arrives-whole",
    "atk-58": "redirections-are-for-one-command",
    "atk-59": "redirections-are-for-one-command",
    "atk-60": "redirections-are-for-one-command",
    "atk-61": "missing-path-is-back-in-the-next-command",
    "atk-62": "redefined-builtins-change-nothing-for-us",
    "atk-63": "busy-loop-of-builtins-is-timed-out",
    "atk-64": "spinning-processes-end-with-their-command",
    "atk-66": "umask-and-closed-workspace-change-nothing-for-us",
    "atk-67": "umask-and-closed-workspace-change-nothing-for-us",
    "atk-68": "removed-directory-leads-back-to-the-workspace",
    "atk-69": "removed-directory-leads-back-to-the-workspace",
    "atk-70": "removing-everything-removes-nothing-of-the-system",
    "atk-71": "readonly-variables-lock-nobody-out",
    "atk-72": "suspended-shell-costs-nothing",
    "atk-73": "prompt-variables-do-nothing",
    "atk-74": "startup-file-of-the-agent-is-not-ours",
    "atk-75": "startup-file-of-the-agent-is-not-ours",
    "atk-77": "namespaces-mounts-devices-and-roots-cannot-be-made",
    "atk-78": "nothing-can-be-written-outside",
    "atk-79": "zombies-cost-nothing",
    "atk-80": "traps-for-the-grader-are-named-and-not-opened",
    "atk-81": "tree-of-1500-levels-resets-to-nothing",
}
"""Attack of the shared list -> the check that makes it part of the product."""

ALLOWED = {
    Backend.DOCKER: set(),
    Backend.BUBBLEWRAP: {
        "locks-on-system-files-do-not-reach-a-neighbour",
        "memory-files-count-as-memory",
    },
    Backend.LANDLOCK: {
        "command-line-of-the-kernel-is-hidden",
        "locks-on-system-files-do-not-reach-a-neighbour",
        "memory-files-count-as-memory",
        "modes-and-times-of-host-files-stay",
        "name-of-the-host-is-hidden",
        "number-of-files-is-bounded",
        "processes-do-not-reach-a-neighbour",
        "processes-of-the-host-are-invisible",
        "pseudo-terminal-of-a-command-ends-with-it",
        "removing-everything-removes-nothing-of-the-system",
        "shared-memory-folder-resets-to-nothing",
        "workspace-is-bounded",
    },
}
"""The documented exceptions, once more: none comes in unseen."""

# --- the list -------------------------------------------------------------------------------------------------------


def test_names_say_what_must_hold_and_are_unique() -> None:
    names = [check.name for check in CHECKS]
    assert len(names) == len(set(names)) >= 60
    assert [name for name in names if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", name)] == []
    assert [
        check.name for check in CHECKS if check.body is None or (not check.about and "empty" not in check.name)
    ] == []
    assert {check.group for check in CHECKS}.isdisjoint(names)
    assert f"| {len(names)} named, adversarial checks" in (REPOSITORY / "docs/sandboxes.md").read_text()


def test_every_attack_of_the_shared_list_is_a_check() -> None:
    attacks = json.loads(shared("fixtures/sandbox_attacks.json").read_text())["attacks"]
    assert {attack["id"] for attack in attacks} <= set(COVERS)
    assert set(COVERS.values()) <= {check.name for check in CHECKS}


def test_exceptions_are_those_that_are_known() -> None:
    for backend, names in ALLOWED.items():
        assert {check.name for check in CHECKS if backend in check.exceptions} == names, backend


def test_what_would_harm_a_host_is_marked() -> None:
    hostile = re.compile(r"kill -9 -1|rm -rf (--no-preserve-root )?/|os\.fork\(\)\n  except|mknod b b|:\(\)\{")
    for check in CHECKS:
        if hostile.search(check.about):
            assert check.unsafe, check.name


# --- every backend --------------------------------------------------------------------------------------------------

SEEDS = {
    (Backend.DOCKER, "ourselves"): range(3),
    (Backend.BUBBLEWRAP, "ourselves"): range(6, 9),
    (Backend.BUBBLEWRAP, "plain"): range(12, 13),
    (Backend.LANDLOCK, "ourselves"): range(14, 17),
    (Backend.LANDLOCK, "plain"): range(20, 21),
}
"""Sessions, and their hostile inputs of each kind. The supervisor that must survive them is the same in all, so each
session draws other ones. `whole` tries thousands on every backend."""
SESSIONS = [
    pytest.param(backend, user, marks=pytest.mark.docker if backend is Backend.DOCKER else ())
    for backend, user in SEEDS
]
ONCE = {
    "many-small-files-push-no-answer-out": Backend.LANDLOCK,
    "hash-of-sparse-giants-reads-no-more-than-a-few-workspaces": Backend.BUBBLEWRAP,
    "text-of-a-tree-is-bounded-and-the-cut-is-told": Backend.BUBBLEWRAP,
    "ten-thousand-folders-reset-to-nothing": Backend.LANDLOCK,
    "judges-leave-no-descriptor": Backend.BUBBLEWRAP,
}
"""Half of a session's time, for what the supervisor does, which is the same in all backends: each is tried on one.
`whole` tries them on every backend."""
COUNTED = (
    *ONCE,
    "number-of-files-is-bounded",
    "forty-thousand-files-cost-nothing",
    "sparse-giants-do-not-fill-the-host",
    "answer-that-never-comes-is-an-error",
)
"""What host and supervisor count the same whoever started them: `ourselves` tries it."""


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("backend", "user"), SESSIONS)
def test_backend_conforms(request: pytest.FixtureRequest, backend: Backend, user: str) -> None:
    if user == "plain" and os.geteuid() != 0:
        pytest.skip("we are a plain user: `ourselves` has tried it")
    with engine_for(backend):
        require(backend)
        start: Start = request.getfixturevalue("start_here" if user == "ourselves" else "start_plain")
        script = str(REPOSITORY / "tests/sandboxes/conformance_run.py")
        # What need not hold here and uses up the machine is not tried: whatever came of it, this test would pass.
        left_out = {check.name for check in CHECKS if check.stress and backend in check.exceptions}
        left_out.update(COUNTED if user == "plain" else (name for name, chosen in ONCE.items() if chosen != backend))
        seeds = SEEDS[backend, user]
        process = start(script, backend, str(seeds.start), str(seeds.stop), *left_out, HOME=str(REPOSITORY / "docs"))
        try:
            out, err = process.communicate(timeout=580)
        finally:
            process.kill()
    assert process.returncode == 0, err
    rows = json.loads(out)
    assert len(rows) >= len(CHECKS) - len(left_out) - 1
    assert [row for row in rows if row[1] not in (Status.OK, Status.EXCEPTION)] == []
    assert {row[0] for row in rows if row[1] == Status.EXCEPTION} <= ALLOWED[backend]


@pytest.mark.whole
@pytest.mark.timeout(600)
def test_what_ci_tries_on_one_backend_holds_on_each(safe_backend: Backend) -> None:
    assert not [str(verdict) for verdict in conform(safe_backend, only=[*ONCE]) if verdict.status is not Status.OK]


@pytest.mark.whole
@pytest.mark.timeout(3600)
def test_two_thousand_hostile_inputs_cost_nothing(safe_backend: Backend) -> None:
    found: list[str] = []
    with open_sandbox(safe_backend) as sandbox:
        for seed in range(1000, 1000 + 2000 // len(hostile.KINDS) + 1):
            for kind in hostile.KINDS:
                sandbox.open(folders("here"))
                try:
                    hostile.survive(Trial(sandbox, lambda: sandbox), kind, seed)
                except Wrong as error:
                    found.append(str(error))
    assert found == []


def test_a_hostile_input_is_the_same_again() -> None:
    for kind in hostile.KINDS:
        assert hostile.command(kind, 3) == hostile.command(kind, 3) != hostile.command(kind, 4)


def test_local_says_what_it_does_not_hold() -> None:
    unsafe = [check for check in CHECKS if check.unsafe]
    assert {"fork-bomb-ends-with-its-command", "removing-everything-removes-nothing-of-the-system"} <= {
        check.name for check in unsafe
    }
    sandboxes: list[SupervisedSandbox] = []

    def opener() -> SupervisedSandbox:
        sandboxes.append(SupervisedSandbox(LocalLauncher(Limits(), allow_root=True)))
        return sandboxes[-1]

    verdicts = list(run_checks(unsafe, opener, lanes=2))
    assert {(verdict.status, verdict.detail) for verdict in verdicts} == {(Status.EXCEPTION, UNSAFE)}
    assert sum(sandbox.starts for sandbox in sandboxes) == 0, "nothing was started, so nothing was run"


@pytest.mark.filterwarnings("ignore:the local sandbox backend")
def test_local_is_open_and_the_checks_see_it() -> None:
    names = ["tcp-to-the-host-fails", "files-of-the-host-are-unreadable", "processes-of-the-host-are-invisible"]
    found = {
        v.check.name: v.status for v in conform("local", only=[*names, "exit-ends-only-its-command"], allow_root=True)
    }
    assert found == {**dict.fromkeys(names, Status.EXCEPTION), "exit-ends-only-its-command": Status.OK}


# --- sandboxes that are broken on purpose -----------------------------------------------------------------------------


class MergesStreams(SupervisedSandbox):
    def run(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        result = super().run(command, **options)  # type: ignore[arg-type]
        return replace(result, stdout=result.stdout + result.stderr, stderr=b"")


class ThinksOutputIsText(SupervisedSandbox):
    def run(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        result = super().run(command, **options)  # type: ignore[arg-type]
        return replace(result, stdout=result.stdout.decode("utf-8", "replace").replace("\r\n", "\n").encode())


class KnowsTwoExitCodes(SupervisedSandbox):
    def run(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        result = super().run(command, **options)  # type: ignore[arg-type]
        return replace(result, exit_code=min(result.exit_code, 1))


class MakesResultsOfFailures(SupervisedSandbox):
    def run(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        try:
            return super().run(command, **options)  # type: ignore[arg-type]
        except SandboxError:
            return CommandResult(1, b"", b"")


class HasNoCleanState(SupervisedSandbox):
    def run(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        return super().run(command, **{**options, "state": "agent"})  # type: ignore[arg-type]


class LetsProcessesLive(SupervisedSandbox):
    def run(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        return super().run(command, **{**options, "keep_background": True})  # type: ignore[arg-type]


class LosesTheState(SupervisedSandbox):
    def run(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        return super().run(command, **{**options, "state": "clean"})  # type: ignore[arg-type]


class ReadsWithCat(SupervisedSandbox):
    def read(self, path: str) -> bytes:
        result = super().run(f"cat -- '{path}'", timeout=1, state="clean")
        if result.exit_code:
            raise FileNotFoundError(path)
        return result.stdout


class NeverResets(SupervisedSandbox):
    def open(self, files: Files, *, workdir: str | None = None, terms: Terms | None = None) -> None:
        self._ensure(workdir, terms or Terms())
        self.put(files)

    def reset(self) -> None:
        self._ensure(None, Terms())


class EndsServices(SupervisedSandbox):
    def run(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        try:
            return super().run(command, **options)  # type: ignore[arg-type]
        finally:
            self.end_services()


class SealsNothing(SupervisedSandbox):
    def seal(self) -> None:
        pass


class ForgetsTerms(SupervisedSandbox):
    def open(self, files: Files, *, workdir: str | None = None, terms: Terms | None = None) -> None:
        super().open(files, workdir=workdir)

    def end_services(self) -> None:
        pass


class HashesNames(SupervisedSandbox):
    def snapshot_hash(self) -> str:
        return repr(self.listing())


class PutsWithTee(SupervisedSandbox):
    def put(self, files: Files) -> None:
        for path, content in files.items():
            text = content if isinstance(content, str) else "x"
            super().run(f"mkdir -p \"$(dirname '{path}')\"; printf %s '{text}' > '{path}'", timeout=1, state="clean")


BROKEN = [
    (MergesStreams, "streams-and-exit-code-are-real timeout-keeps-output-and-the-state-from-before"),
    (ThinksOutputIsText, "binary-output-is-byte-exact invalid-utf8-is-byte-exact"),
    (KnowsTwoExitCodes, "exit-ends-only-its-command exit-status-is-honest-for-signals"),
    (MakesResultsOfFailures, "answer-that-never-comes-is-an-error answer-that-is-no-frame-is-an-error"),
    (
        MakesResultsOfFailures,
        "answer-to-another-question-is-an-error lost-supervisor-is-an-error-and-open-starts-another",
    ),
    (HasNoCleanState, "clean-state-knows-nothing-of-the-agent startup-file-of-the-agent-is-not-ours"),
    (LetsProcessesLive, "daemon-does-not-outlive-its-command double-forked-daemon-does-not-outlive-its-command"),
    (LosesTheState, "state-is-kept-between-commands exit-ends-only-its-command empty-command-succeeds"),
    (ReadsWithCat, "reads-follow-no-links reads-do-not-leave-the-workspace"),
    (NeverResets, "files-do-not-reach-the-next-episode shell-state-does-not-reach-the-next-episode"),
    (NeverResets, "closed-trees-reset-to-nothing tree-of-1500-levels-resets-to-nothing"),
    (EndsServices, "service-outlives-commands-and-what-ends-them service-of-several-processes-lives-whole"),
    (SealsNothing, "sealed-start-keeps-the-workspace-and-services-alone"),
    (ForgetsTerms, "service-can-be-ended environment-of-the-episode-is-in-every-command"),
    (ForgetsTerms, "limits-of-the-episode-hold-for-the-episode"),
    (HashesNames, "hash-sees-content-mode-kind-and-name-and-nothing-else file-above-the-cap-is-named-and-hashed"),
    (PutsWithTee, "puts-replace-what-stands-in-the-way puts-do-not-leave-the-workspace"),
]


@pytest.mark.parametrize(("broken", "names"), BROKEN)
def test_a_broken_sandbox_is_caught(
    broken: type[SupervisedSandbox], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On one backend: what is broken, and the check that sees it, lie in front of what tells backends apart."""
    backend = next((one for one in (Backend.BUBBLEWRAP, Backend.LANDLOCK) if probe(one).ok), None)
    if backend is None:
        pytest.skip("no sandbox backend works on this machine")
    monkeypatch.setattr(client, "GRACE", 1.0)
    verdicts = list(run_checks(select(names.split()), lambda: broken(launcher(backend, Limits())), lanes=1))
    assert [str(verdict) for verdict in verdicts if verdict.status is not Status.WRONG] == []
    assert len(verdicts) == len(names.split())


class WithTheNetwork(BubblewrapLauncher):
    def _arguments(self, *arguments: object) -> list[str]:
        return ["--unshare-all", "--share-net", *super()._arguments(*arguments)[1:]]  # type: ignore[arg-type]


class Unconfined(LocalLauncher):
    """Passes itself off as bubblewrap, so that no exception is made for it."""

    backend = Backend.BUBBLEWRAP

    def __init__(self) -> None:
        super().__init__(Limits(), allow_root=True)


def test_a_shared_network_is_caught() -> None:
    require(Backend.BUBBLEWRAP)
    names = ["tcp-to-the-host-fails", "udp-to-the-host-fails", "unix-sockets-of-the-host-are-unreachable"]
    names.append("abstract-sockets-do-not-reach-a-neighbour")
    verdicts = list(run_checks(select(names), lambda: SupervisedSandbox(WithTheNetwork(Limits()))))
    assert {verdict.check.name: verdict.status for verdict in verdicts} == dict.fromkeys(names, Status.WRONG)


@pytest.mark.filterwarnings("ignore:the local sandbox backend")
def test_no_confinement_is_caught() -> None:
    names = [
        "files-of-the-host-are-unreadable",
        "processes-of-the-host-are-invisible",
        "name-of-the-host-is-hidden",
        "tcp-to-the-host-fails",
        "udp-to-the-host-fails",
        "unix-sockets-of-the-host-are-unreachable",
        "environment-of-host-processes-is-unreadable",
        "capabilities-are-empty-and-cannot-grow",
        "processes-do-not-reach-a-neighbour",
        "environment-does-not-reach-a-neighbour",
        "abstract-sockets-do-not-reach-a-neighbour",
        "workspace-of-a-neighbour-is-closed-by-its-real-path",
        "locks-on-system-files-do-not-reach-a-neighbour",
    ]
    verdicts = list(run_checks(select(names), lambda: SupervisedSandbox(Unconfined())))
    wrong = {verdict.check.name for verdict in verdicts if verdict.status is not Status.OK}
    # Of a plain user nothing has to be taken: such a process has no capability, and every supervisor sets the rest.
    held = set() if os.geteuid() == 0 else {"capabilities-are-empty-and-cannot-grow"}
    assert wrong == set(names) - held


class Boaster(SupervisedSandbox):
    """Says that it keeps limits, whatever it was started with."""

    @property
    def limits(self) -> Limits:
        return Limits(file_mb=30)

    @limits.setter
    def limits(self, limits: Limits) -> None:
        pass


@pytest.mark.parametrize(
    ("weak", "name"),
    [
        ({"open_files": 2048}, "open-files-are-bounded"),
        ({"file_mb": 60}, "one-file-is-bounded"),
        ({"output_bytes": 1 << 20}, "long-output-is-cut-to-head-and-tail"),
        ({"command_bytes": 2 << 20}, "command-over-the-limit-is-not-run"),
        ({"snapshot_entries": 30_000}, "many-small-files-push-no-answer-out"),
        ({"snapshot_file_bytes": 2 << 20}, "file-above-the-cap-is-named-and-hashed"),
    ],
)
def test_a_limit_that_does_not_hold_is_caught(weak: dict[str, int], name: str) -> None:
    require(Backend.BUBBLEWRAP)
    weaker = launcher(Backend.BUBBLEWRAP, replace(Limits(file_mb=30), **weak))
    assert [str(verdict.status) for verdict in run_checks(select([name]), lambda: Boaster(weaker))] == ["wrong"]


DEMANDS = [
    ("code", 3, 0),
    ("out", b"1024 @token@\n", b"1024 @token@"),
    ("err", b"oh", b""),
    ("has", b"@open_files@ ", b"@open_files@\n"),
    ("says", b"h", b"1024"),
    ("lacks", (b"oh",), (b"2048", b"@token@")),
    ("timed_out", False, True),
    ("holds", lambda result, trial: trial.token in result.stdout_text, lambda result, trial: result.truncated),
]


class Answers(SupervisedSandbox):
    """Answers every command alike."""

    def run(self, command: str, **options: object) -> CommandResult:  # type: ignore[override]
        return CommandResult(3, f"1024 {command}\n".encode(), b"oh")


@pytest.mark.parametrize(("demand", "right", "wrong"), DEMANDS)
def test_every_demand_of_a_row_can_fail(demand: str, right: object, wrong: object) -> None:
    trial = Trial(Answers(LocalLauncher(Limits(), allow_root=True)), lambda: trial.sandbox)
    Run("@token@", fails=True, next_door=True, **{demand: right})(trial)  # type: ignore[arg-type]
    with pytest.raises(Wrong, match="exit code 3, stdout '1024 tg"):
        Run("@token@", **{demand: wrong})(trial)  # type: ignore[arg-type]


# --- how they are run -------------------------------------------------------------------------------------------------


def _check(name: str, body: Callable[[Trial], None], **options: object) -> Check:
    return Check(name, "tests", body, name, **options)  # type: ignore[arg-type]


def _wrong(trial: Trial) -> None:
    must(False, "as planned")


def _loses(trial: Trial) -> None:
    trial.run("touch /workspace/left")
    trial.sandbox._transport.close()  # type: ignore[union-attr]
    trial.run("true")


def _dirty(trial: Trial) -> None:
    trial.run("export SPOILED=1")
    raise KeyError("not in the contract")


def _clean(trial: Trial) -> None:
    must(trial.out("echo ${SPOILED-no}; ls") == "no\nhere\n", "the check before is seen")
    must(trial.sandbox.starts == 1, "not a fresh sandbox")


def test_a_check_that_fails_spoils_no_other(safe_backend: Backend) -> None:
    reason = {safe_backend: "documented"}
    checks = [
        _check("wrong", _wrong),
        _check("after-wrong", _clean),
        _check("lost", _loses),
        _check("after-lost", _clean),
        _check("crash", _dirty),
        _check("after-crash", _clean),
        _check("known", _wrong, exceptions=reason),
        _check("known-and-lost", _loses, exceptions=reason),
        _check("no-longer-needed", _clean, exceptions=reason),
        _check("stress", _clean, stress=True),
    ]
    verdicts = list(run_checks(checks, lambda: SupervisedSandbox(launcher(safe_backend, Limits())), lanes=1))
    assert [(verdict.check.name, str(verdict.status)) for verdict in verdicts] == [
        ("wrong", "wrong"),
        ("after-wrong", "ok"),
        ("lost", "error"),
        ("after-lost", "ok"),
        ("crash", "wrong"),
        ("after-crash", "ok"),
        ("known", "exception"),
        ("known-and-lost", "exception"),
        ("no-longer-needed", "ok"),
        ("stress", "ok"),
    ]
    details = {verdict.check.name: verdict.detail for verdict in verdicts}
    assert details["wrong"] == "as planned"
    assert details["crash"] == "KeyError: 'not in the contract'"
    assert details["known"] == "documented"
    assert "lost" in details["lost"]
    assert summary(verdicts).startswith("10 checks: 5 ok, 2 wrong, 2 exceptions, 1 error; ")
    assert not passed(verdicts)
    assert passed(verdict for verdict in verdicts if verdict.status in ("ok", "exception"))
    assert str(verdicts[0]) == "wrong     wrong  (as planned)"


def test_stopping_early_leaves_nothing() -> None:
    require(Backend.BUBBLEWRAP)
    sandboxes: list[SupervisedSandbox] = []

    def opener() -> SupervisedSandbox:
        sandboxes.append(SupervisedSandbox(launcher(Backend.BUBBLEWRAP, Limits())))
        return sandboxes[-1]

    def neighbours(trial: Trial) -> None:
        trial.neighbour.put(folders("x"))

    verdicts: Iterator[object] = run_checks([_check(f"n-{n}", neighbours) for n in range(200)], opener, lanes=3)
    next(verdicts)
    verdicts.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("conformance")]
    assert 2 <= len(sandboxes) <= 6
    assert not any(sandbox.alive for sandbox in sandboxes)


def test_selection() -> None:
    assert select(None) == CHECKS
    assert [check.name for check in select(["exit-ends-only-its-command"])] == ["exit-ends-only-its-command"]
    assert {check.group for check in select(["isolation"])} == {"isolation"}
    with pytest.raises(ValueError, match="no conformance check or group is called nosuch; groups: shell, output"):
        conform("bubblewrap", only=["nosuch"])
    with pytest.raises(ValueError, match="unknown sandbox backend"):
        conform("nosuch")
