"""Where groups could be made: trees laid out as cgroups(7) and the kernel's document on version 2 have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxes import cgroup
from sandboxes.cgroup import Place


def tree(root: Path, mounts: str, own: str, monkeypatch: pytest.MonkeyPatch) -> list[Place]:
    """The candidates for a process with these files in /proc/self; `@` stands for the root of the mounts."""
    (root / "mountinfo").write_text(mounts.replace("@", str(root)))
    (root / "cgroup").write_text(own)
    monkeypatch.setattr(cgroup, "PROC", root)
    return cgroup._candidates()


def test_version_2_looks_upwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = "user.slice/user@1000.service/app.slice/run-1.scope"
    (tmp_path / own).mkdir(parents=True)
    for path in (tmp_path / own, *(tmp_path / own).parents):
        if path.is_relative_to(tmp_path):
            (path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / own / "cgroup.controllers").write_text("pids\n")
    mounts = "30 23 0:26 / @ rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n22 1 8:1 / / rw - ext4 /dev/sda rw\n"
    found = tree(tmp_path, mounts, f"0::/{own}\n", monkeypatch)
    assert [str(place.folder.relative_to(tmp_path)) for place in found] == [
        own,
        "user.slice/user@1000.service/app.slice",
        "user.slice/user@1000.service",
        "user.slice",
        ".",
    ]
    assert [place.controllers for place in found] == [("pids",)] + [("memory", "pids")] * 4
    assert {place.version for place in found} == {2}
    service = tmp_path / "user.slice/user@1000.service"
    for name, text in (
        ("memory.max", "max\n"),
        ("cpu.max", "max 100000\n"),
        ("pids.max", "33\n"),
        ("cpuset.cpus", "\n"),
    ):
        (service / name).write_text(text)
    assert len(cgroup._candidates()) == 5
    (service / "memory.max").write_text("1073741824\n")
    assert [place.folder for place in cgroup._candidates()] == [tmp_path / own, service / "app.slice", service]


def test_a_container_sees_its_part_of_version_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = (
        "40 30 0:30 /docker/abc @/memory ro - cgroup cgroup rw,memory\n"
        "41 30 0:31 /docker/abc @/pids\\040x ro - cgroup cgroup rw,pids\n"
        "42 30 0:32 /docker/abc @/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
        "43 30 0:33 /other @/unified ro - cgroup2 cgroup rw\n"
    )
    own = "4:memory:/docker/abc/deeper\n3:cpu,cpuacct:/docker/abc\n2:pids:/docker/abc\n0::/docker/abc\n"
    found = tree(tmp_path, mounts, own, monkeypatch)
    assert found == [
        Place(tmp_path / "memory" / "deeper", 1, ("memory",)),
        Place(tmp_path / "pids x", 1, ("pids",)),
    ]
