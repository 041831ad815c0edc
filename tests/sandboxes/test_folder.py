from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from sandboxes import local as folder_module
from sandboxes.local import PrivateFolder, end_user, make_folder, sweep
from sandboxes.owner import owner, run_id


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def own(folder: PrivateFolder, **changes: str) -> None:
    """Make somebody else, who resembles this process, the owner of a folder."""
    words = dict(zip(("pid", "started", "boot", "namespace"), owner().split("-"), strict=True)) | changes
    (folder.path / "owner").write_text("-".join(words.values()) + " some-run\n")


def test_folders_of_living_owners_stay_and_of_dead_ones_go(base: Path) -> None:
    mine, stale, rebooted = (make_folder(own_user=False) for _ in range(3))
    child = subprocess.Popen(["true"])
    child.wait()
    assert (stale.path / "owner").read_text() == f"{owner()} {run_id()}\n"
    own(stale, pid=str(child.pid))
    own(rebooted, boot="00000000")
    Path(stale.workspace, "deep").mkdir()
    Path(stale.workspace, "deep").chmod(0)
    outside = base / "outside"
    outside.mkdir()
    (outside / "f").touch()
    Path(stale.workspace, "link").symlink_to(outside)
    assert sweep() == 2
    assert mine.path.exists()
    assert not stale.path.exists()
    assert not rebooted.path.exists()
    assert (outside / "f").exists()
    mine.remove()
    assert not mine.path.exists()


def test_a_reused_process_id_is_not_the_owner() -> None:
    own(make_folder(own_user=False), started="1")
    assert sweep() == 1


def test_a_container_that_shares_our_tmp_is_left_alone() -> None:
    other = make_folder(own_user=False)
    own(other, pid="999999", namespace="1")
    assert sweep() == 0
    other.remove()


def test_a_run_goes_at_once_also_while_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = make_folder(own_user=False)
    monkeypatch.setenv("TURNGYM_RUN_ID", "tonight")
    named = make_folder(own_user=False)
    assert sweep("yesterday") == 0
    assert sweep("tonight") == 1
    assert not named.path.exists()
    assert sweep(owner()) == 1
    assert not mine.path.exists()


def test_only_the_first_folder_of_a_process_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    stale = make_folder(own_user=False)
    own(stale, started="1")
    monkeypatch.setattr(folder_module, "_swept", True)
    make_folder(own_user=False).remove()
    assert stale.path.exists()
    monkeypatch.setattr(folder_module, "_swept", False)
    make_folder(own_user=False).remove()
    assert not stale.path.exists()


def test_unfinished_and_foreign_folders_stay(base: Path) -> None:
    half = base / f"turngym-{os.geteuid()}-0123456789ab"
    half.mkdir()
    (base / "turngym-file").touch()
    (base / "turngym-link").symlink_to(base)
    somebodys = ["turngym-notes", "turngym-va6h65_o", "turngym-0123456789ab", "turngym-123", f"turngym-ssh-{owner()}.x"]
    for name in somebodys:
        (base / name).mkdir()
        os.utime(base / name, (0, 0))
    assert sweep() == 0
    os.utime(half, (0, 0))
    assert sweep() == 1
    assert sorted(path.name for path in base.iterdir()) == sorted(["turngym-file", "turngym-link", *somebodys])


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has sandbox users")
def test_a_user_id_is_reserved_on_the_whole_machine(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_folder(own_user=True)
    (base / "elsewhere").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(base / "elsewhere"))
    second = make_folder(own_user=True)
    assert first.uid != second.uid
    stale = base / "elsewhere" / first.path.name
    stale.mkdir()
    os.utime(stale, (0, 0))
    assert sweep() == 0, "its user id belongs to a sandbox that lives, so nothing of that user is killed"
    first.remove()
    limit = time.monotonic() + 60
    while not sweep() and time.monotonic() < limit:  # a test beside this one may have taken the user id at once
        time.sleep(0.1)
    assert not stale.exists()
    second.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has sandbox users")
def test_a_folder_that_is_made_anew_during_a_sweep_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_folder(own_user=True)
    own(folder, started="1")
    real = folder_module._reserve

    def overtaken(uid: int) -> None:
        own(folder)  # the dead one's was swept and made anew since the sweep looked at its owner
        assert real(uid) is None

    monkeypatch.setattr(folder_module, "_reserve", overtaken)
    assert sweep() == 0
    assert Path(folder.workspace).exists()
    folder.remove()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give every sandbox a user of its own")
def test_every_folder_has_its_own_user(base: Path) -> None:
    first, second = make_folder(own_user=True), make_folder(own_user=True)
    assert first.uid != second.uid
    assert Path(first.workspace).stat().st_uid == first.uid
    assert first.path.stat().st_uid == 0
    child = subprocess.Popen(["sleep", "100"], user=first.uid)
    first.remove()
    assert child.wait(10) == -9
    second.remove()
    assert first.reservation is not None
    assert first.reservation.fileno() == -1
    with pytest.raises(ValueError, match="no sandbox user"):
        end_user(0)
    assert folder_module.FIRST_UID > 60000
