"""Control groups on the kernel at hand; what this machine does not let us do is skipped with the reason."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
from collections.abc import Iterator

import pytest

from sandboxes import Backend, Limits, SandboxError, SupervisedSandbox, cgroup, open_sandbox
from sandboxes.cgroup import Group, Place, make_group, memory_bytes
from sandboxes.inside.processes import descendants_of
from sandboxes.owner import owner
from tests.sandboxes.conftest import require

pytestmark = pytest.mark.xdist_group("sandbox stress")

SMALL = Limits(memory_mb=48, processes=20, workspace_mb=8, tmp_mb=4, command_seconds=60)
# Memory that no process maps: the supervisor, which looks at processes, cannot see it.
UNMAPPED = """python3 -c '
import os
import re
for _ in range(60):
    os.write(os.memfd_create("x"), b"x" * (8 << 20))
print("all of it")
' ; echo $?"""


def oom_kills(group: Group) -> int:
    """How many processes the kernel killed because the group had used up its memory."""
    for folder in group.folders:
        for name in ("memory.oom_control", "memory.events"):  # of version 1, of version 2
            if (folder / name).exists():
                return int(re.findall(r"^oom_kill (\d+)$", (folder / name).read_text(), re.MULTILINE)[0])
    raise AssertionError("the group bounds no memory")


@pytest.fixture(autouse=True)
def allowed() -> None:
    """Skip where this process may make no group."""
    group = make_group(Limits())
    if group is None:
        pytest.skip(cgroup.explain())
    group.remove()


@pytest.fixture
def group() -> Iterator[Group]:
    made = make_group(SMALL, files_mb=28)
    assert made is not None
    yield made
    made.remove()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(["sh", "-c", "sleep 1000 & wait"])
    while not descendants_of(child.pid):
        pass
    yield child
    child.kill()
    child.wait()


def groups_of(sandbox: SupervisedSandbox, monkeypatch: pytest.MonkeyPatch) -> Group:
    """Start the sandbox; the group it entered."""
    entered: list[Group] = []
    enter = Group.enter

    def note(self: Group, pid: int) -> None:
        entered.append(self)
        enter(self, pid)

    with monkeypatch.context() as patch:
        patch.setattr(Group, "enter", note)
        sandbox.open({})
    assert len(entered) == 1
    return entered[0]


def test_a_group_holds_a_whole_family_and_takes_it_along(group: Group, sleeper: subprocess.Popen[bytes]) -> None:
    family = {sleeper.pid, *descendants_of(sleeper.pid)}
    assert len(family) == 2
    group.enter(sleeper.pid)
    for folder in group.folders:
        assert owner() in folder.name
        assert {int(word) for word in (folder / "cgroup.procs").read_text().split()} == family
    group.remove()
    assert sleeper.wait(10) == -signal.SIGKILL
    assert not any(folder.exists() for folder in group.folders)
    group.remove()


def test_the_kernel_has_the_limits(group: Group) -> None:
    values = {
        path.name: path.read_text().strip()
        for folder in group.folders
        for path in folder.iterdir()
        if path.name in ("memory.max", "memory.limit_in_bytes", "pids.max")
    }
    assert values.pop("pids.max", str(SMALL.processes + 8)) == str(SMALL.processes + 8)
    assert set(values.values()) <= {str(memory_bytes(SMALL, 28))}


def test_a_group_that_cannot_be_entered_is_an_error_once_another_could(sleeper: subprocess.Popen[bytes]) -> None:
    first = make_group(SMALL)
    assert first is not None
    first.enter(sleeper.pid)
    second = make_group(SMALL)
    assert second is not None
    for folder in second.folders:
        folder.rmdir()
    with pytest.raises(SandboxError, match="control group"):
        second.enter(sleeper.pid)
    first.remove()
    third = make_group(SMALL)
    assert third is not None, "one failure does not end the use of groups"
    third.remove()


def test_a_second_try_where_the_process_was_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = [dataclasses.replace(place, folder=place.folder / "gone") for place in cgroup._allowed_places()]
    monkeypatch.setattr(cgroup, "_places", gone)
    group = make_group(SMALL)
    assert group is not None
    assert all("gone" not in str(folder) for folder in group.folders)
    group.remove()


@pytest.mark.parametrize("backend", [Backend.BUBBLEWRAP, Backend.LANDLOCK], ids=str)
def test_memory_that_no_process_maps_is_bounded_too(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    require(backend)
    if not any("memory" in place.controllers for place in cgroup._allowed_places()):
        pytest.skip(cgroup.explain())
    with open_sandbox(backend, limits=SMALL) as sandbox:
        group = groups_of(sandbox, monkeypatch)
        result = sandbox.run(UNMAPPED)
        # Memory files are nobody's: the kernel may take the command's own shell for the largest process.
        assert result.stdout == b"137\n" or (result.exit_code, result.stdout) == (137, b""), result
        assert oom_kills(group) >= 1
        assert sandbox.run("echo alive").stdout == b"alive\n"
        assert sandbox.starts == 1, "the command was the victim, not the supervisor"
    assert not any(folder.exists() for folder in group.folders)


@pytest.mark.parametrize("backend", [Backend.BUBBLEWRAP, Backend.LANDLOCK], ids=str)
def test_a_full_workspace_can_be_read_within_the_bound(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    require(backend)
    limits = Limits(memory_mb=16, workspace_mb=32, command_seconds=60)
    with open_sandbox(backend, limits=limits) as sandbox:
        group = groups_of(sandbox, monkeypatch)
        files = {f"f{n}": os.urandom(1_000_000) for n in range(31)}
        sandbox.put(files)
        result, snapshot = sandbox.run_and_snapshot("ls | wc -l")
        assert result.stdout == b"31\n"
        assert {path: entry.content for path, entry in snapshot.items()} == files
        assert oom_kills(group) == 0
        assert sandbox.starts == 1


def test_groups_of_the_dead_go_and_those_of_the_living_stay() -> None:
    mine = make_group(SMALL)
    assert mine is not None
    child = subprocess.Popen(["true"])
    child.wait()
    pid, *rest = owner().split("-")
    dead = [place.folder / f"turngym-{'-'.join([str(child.pid), *rest])}+1+some.run" for place, _ in mine._folders]
    elsewhere = [path.with_name(f"turngym-{'-'.join([pid, *rest[:2], '1'])}+1") for path in dead]
    others = [path.with_name("turngym-something") for path in dead]
    for path in (*dead, *elsewhere, *others):
        path.mkdir()
    try:
        sleeper = subprocess.Popen(["sleep", "1000"])
        (dead[0] / "cgroup.procs").write_text(str(sleeper.pid))
        cgroup.sweep()
        assert sleeper.wait(10) == -signal.SIGKILL
        assert not any(path.exists() for path in dead)
        assert all(path.exists() for path in (*mine.folders, *elsewhere, *others))
    finally:
        for path in (*elsewhere, *others):
            path.rmdir()
    assert cgroup.sweep(owner()) >= 1
    assert not any(path.exists() for path in mine.folders)


def test_moving_and_removing_in_version_2(sleeper: subprocess.Popen[bytes]) -> None:
    """Also where the controllers belong to version 1, so that only the tree itself is used."""
    places = [place.folder for place in cgroup._candidates() if place.version == 2]
    folder = next((place / f"turngym-{owner()}+test" for place in places if os.access(place, os.W_OK)), None)
    if folder is None:
        pytest.skip("version 2 is not mounted, or not for us")
    folder.mkdir()
    group = Group([(Place(folder.parent, 2, ()), folder)])
    group.enter(sleeper.pid)
    assert len((folder / "cgroup.procs").read_text().split()) == 2
    group.remove()
    assert sleeper.wait(10) == -signal.SIGKILL
    assert not folder.exists()
