"""Building the image: what the two builders share, what a failed or killed build leaves, and real builds in an engine.

debootstrap needs a network, so a program of its name stands in for it here; everything after it is the real thing.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxes import SandboxUnavailable
from sandboxes.docker.engines import client, find_engines
from sandboxes.docker.image import (
    FOLDER,
    LABEL,
    ImageError,
    archive,
    archive_path,
    build_image,
    instructions,
    packages,
    recipe,
)
from sandboxes.inside.variables import environment
from tests.sandboxes.conftest import REPOSITORY

IMAGE = "turngym-shell:bookworm"
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="the offline builder needs root")
BALLAST = re.compile(
    r"usr/(s?bin/(perl|apt|dpkg|gpgv|ldconfig|e2fsck|localedef)|share/|lib/(apt|file|python3[^/]*/(pydoc_data|test))/"
    r"|lib/[^/]+/(gconv|perl-base)/|lib/[^/]+/lib(apt|gnutls|stdc|db-|unistring|p11|krb5|sepol|sqlite3))|var/(lib|cache)/"
)
"""Half of the image, which every packing and every import would carry along for nothing."""


def quiet(line: str) -> None:
    pass


# --- the recipe ---------------------------------------------------------------------------------------------------


def test_both_builders_read_the_same_packages() -> None:
    assert packages() == sorted(set(packages()))
    assert {"bash", "python3", "gawk", "jq", "procps"} <= set(packages())
    assert "packages.txt prepare.sh" in (FOLDER / "Dockerfile").read_text("utf-8")


def test_the_image_and_the_supervisor_agree_on_the_environment() -> None:
    wanted = environment("/workspace", "/tmp")
    told = dict(line.removeprefix("ENV ").split("=", 1) for line in instructions() if line.startswith("ENV "))
    assert set(told) == {"PATH", "HOME", "LC_CTYPE", "PAGER"}
    assert told == {name: wanted[name] for name in told}
    assert {"USER 1000:1000", "WORKDIR /workspace", f"LABEL {LABEL}={recipe()}"} <= set(instructions())


@pytest.mark.parametrize("name", ["Dockerfile", "packages.txt", "prepare.sh"])
def test_a_change_is_another_recipe(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = recipe()
    shutil.copytree(FOLDER, tmp_path / "image")
    monkeypatch.setattr("sandboxes.docker.image.FOLDER", tmp_path / "image")
    assert recipe() == before
    with open(tmp_path / "image" / name, "a", encoding="utf-8") as file:
        file.write("# more\n")
    assert recipe() != before


def test_a_cached_archive_needs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive_path("bookworm", tmp_path)
    path.write_bytes(b"as it was copied here")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert archive(cache=tmp_path, say=quiet) == path


# --- what cannot work ---------------------------------------------------------------------------------------------


def test_a_plain_user_is_told(start_plain: Callable[..., subprocess.Popen[str]]) -> None:
    program = (
        "from sandboxes.docker.image import archive; from pathlib import Path; archive(cache=Path('/nowhere/at/all'))"
    )
    _, told = start_plain("-c", program).communicate(timeout=60)
    assert "SandboxUnavailable: the offline builder needs root" in told
    assert "remedy: run it with sudo" in told and "/nowhere/at/all/turngym-shell-" in told


@as_root
def test_a_missing_debootstrap_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SandboxUnavailable, match="debootstrap is not installed\n  remedy: apt-get install debootstrap"):
        archive(cache=tmp_path / "cache", say=quiet)
    assert not (tmp_path / "cache").exists()


@as_root
def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(tmp_path, "exit 0", monkeypatch)
    monkeypatch.setattr("sandboxes.docker.image._NEEDED_MB", 10**9)
    with pytest.raises(ImageError, match="MB free, a build needs .*\n  remedy: free some, or set TURNGYM_CACHE"):
        archive(cache=tmp_path / "cache", say=quiet)


@pytest.mark.parametrize("options", [{"offline": True, "base": "debian"}, {"tag": "No Name"}, {"tag": "a:b:c"}])
def test_a_mistake_is_told_before_anything_runs(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="base|no name of an image"):
        build_image("unix:///nowhere", say=quiet, **options)


def test_no_engine_is_told() -> None:
    with pytest.raises(SandboxUnavailable, match="unix:///nowhere.*no such socket"):
        build_image("unix:///nowhere", offline=True, say=quiet)


# --- what is left of a build that fails or is killed --------------------------------------------------------------


def stand_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch | None = None) -> Path:
    """A program called debootstrap; in the script $root is the folder that it is to fill."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    file = programs / "debootstrap"
    file.write_text(f'#!/bin/bash\nroot=$4\nmkdir -p "$root"\n{script}\n')
    file.chmod(0o755)
    if monkeypatch is not None:
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    return programs


def left(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir() if path.name != ".lock")


@as_root
def test_a_failure_shows_the_last_lines_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = 'mount -t tmpfs none "$root"; echo junk >"$root/junk"; echo "E: Failed getting release file"; exit 3'
    stand_in(tmp_path, script, monkeypatch)
    with pytest.raises(ImageError, match="exit code 3.*\n.*Failed getting release file\n.*remedy: check the network"):
        archive(cache=tmp_path / "cache", say=quiet)
    assert left(tmp_path / "cache") == []
    assert str(tmp_path) not in Path("/proc/mounts").read_text()


def waits_for(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + 60
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def processes_with(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if text in line and path.parent.name != str(os.getpid()):
            found.append(line)
    return found


@as_root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_build_leaves_nothing(number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = f"sleeper-{secrets.token_hex(8)}"
    script = (
        f'mkdir "$root/proc"; mount -t proc none "$root/proc"; setsid bash -c "exec -a {mark} sleep 300" & '
        f'touch "{tmp_path}/begun"; exec -a {mark} sleep 300'
    )
    programs = stand_in(tmp_path, script)
    cache = tmp_path / "cache"
    program = (
        f"from pathlib import Path\nfrom sandboxes.docker.image import archive\narchive(cache=Path({str(cache)!r}))"
    )
    paths = {"PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(REPOSITORY)}
    build = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **paths}, stderr=subprocess.DEVNULL)
    assert waits_for(lambda: (tmp_path / "begun").exists() and len(processes_with(mark)) >= 2)
    build.send_signal(number)
    assert build.wait(timeout=60) != 0
    assert waits_for(lambda: processes_with(mark) == [])
    assert str(cache) not in Path("/proc/mounts").read_text()
    if number == signal.SIGKILL:
        # Nobody could remove the folder then; the next build does, even one that fails.
        assert len(left(cache)) == 1
        stand_in(tmp_path, "exit 1", monkeypatch)
        with pytest.raises(ImageError):
            archive(cache=cache, say=quiet)
    assert left(cache) == []


# --- real builds --------------------------------------------------------------------------------------------------


def docker(test: Any) -> Any:
    """Mark a test of the engine; one at a time is enough of a load."""
    return pytest.mark.docker(pytest.mark.xdist_group("sandbox stress")(test))


@pytest.fixture(scope="module")
def api(engine: str) -> Any:
    return client(find_engines([engine])[0]).api


@pytest.fixture(scope="module")
def base(api: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the engine's image that a build looks at, as an archive that is not packed."""
    path = tmp_path_factory.mktemp("base") / "base.tar"
    container = api.create_container(IMAGE, "true", labels={"turngym.test": "build"})["Id"]
    try:
        with open(path.with_name("whole.tar"), "wb") as file:
            for part in api.export(container):
                file.write(part)
    finally:
        api.remove_container(container, force=True)
    with tarfile.open(path.with_name("whole.tar")) as whole, tarfile.open(path, "w") as part:
        for member in whole:
            if member.isdir() or not BALLAST.match(member.name):
                part.addfile(member, whole.extractfile(member) if member.isreg() else None)
    path.with_name("whole.tar").unlink()
    return path


@pytest.fixture
def tag(api: Any) -> Iterator[str]:
    """A name that no image has; whatever has it afterwards goes."""
    name = f"turngym-test-{secrets.token_hex(6)}:new"
    yield name
    if api.images(name):
        api.remove_image(name)  # by name: it may be one of several
    assert drafts(api) == []


def drafts(api: Any) -> list[str]:
    """Images that this process did not finish."""
    names = [name for row in api.images("turngym-draft") for name in row["RepoTags"] or []]
    return [name for name in names if name.startswith(f"turngym-draft:{os.getpid()}-")]


def run_in(api: Any, image: str, script: str) -> str:
    container = api.create_container(
        image,
        ["bash", "-c", script],
        host_config=api.create_host_config(network_mode="none"),
        tty=True,
        stdin_open=True,
    )["Id"]
    try:
        stream = api.attach(container, stream=True)
        api.start(container)
        return b"".join(stream).decode()
    finally:
        api.remove_container(container, force=True)


LOOK = "id; pwd; stat -c '%U %a' / /workspace; cat /etc/hostname; find / -xdev -type f -perm /6000 2>/dev/null"


@as_root
@pytest.mark.slow
@docker
def test_offline_from_nothing(
    engine: str, api: Any, base: Path, tag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unpacked packages in, an image out that the docker backend runs; a second build reads the archive."""
    spoil = 'chmod 700 "$root"; chmod u+s "$root/bin/ls"; echo our-machine >"$root/etc/hostname"'
    forget = 'sed -i /^user:/d "$root/etc/passwd"; echo node:x:1000:1000::/home/node:/bin/sh >>"$root/etc/passwd"'
    stand_in(tmp_path, f'tar -xf "{base}" -C "$root"; {spoil}; {forget}', monkeypatch)
    said: list[str] = []
    built = build_image(engine, tag, offline=True, cache=tmp_path / "cache", say=said.append)
    assert left(tmp_path / "cache") == [archive_path("bookworm", tmp_path).name]
    facts = api.inspect_image(tag)
    assert facts["Id"] == built and facts["Config"]["Labels"][LABEL] == recipe()
    assert facts["Config"]["User"] == "1000:1000" and "PAGER=cat" in facts["Config"]["Env"]
    seen = run_in(api, tag, LOOK).split("\r\n")
    assert seen[:4] == ["uid=1000(user) gid=1000(user) groups=1000(user)", "/workspace", "root 755", "user 755"]
    assert [line for line in seen[5:] if line] == []
    with tarfile.open(archive_path("bookworm", tmp_path / "cache")) as packed:
        names = {member.name: member for member in packed}
        assert not [name for name in names if name.startswith(("./proc/", "./sys/", "./dev/"))]
        assert {(member.uname, member.gname) for member in names.values()} == {("", "")}
        hostname = packed.extractfile("./etc/hostname")
        assert hostname is not None and hostname.read() == b"sandbox\n"

    # Again: from the archive, and what had the name before goes.
    stand_in(tmp_path, "exit 1", monkeypatch)
    again = build_image(engine, tag, offline=True, cache=tmp_path / "cache", say=said.append)
    assert any("is there already" in line for line in said)
    assert [row["Id"] for row in api.images(tag)] == [again]
    assert again == built or built not in {row["Id"] for row in api.images(all=True)}


@pytest.mark.slow
@docker
def test_an_image_that_does_not_work_never_gets_the_name(
    engine: str, api: Any, base: Path, tag: str, tmp_path: Path
) -> None:
    api.tag(IMAGE, *tag.split(":"))
    (former,) = {row["Id"] for row in api.images(tag)}
    for missing, wrong in (("jq", "the program jq is missing"), ("python3.11", "does not work as a sandbox")):
        with (
            tarfile.open(base) as whole,
            tarfile.open(archive_path("bookworm", tmp_path), "w:gz", compresslevel=1) as part,
        ):
            for member in whole:
                if not member.name.endswith(f"bin/{missing}"):
                    part.addfile(member, whole.extractfile(member) if member.isreg() else None)
        with pytest.raises(ImageError, match=wrong):
            build_image(engine, tag, offline=True, cache=tmp_path, say=quiet)
        assert [row["Id"] for row in api.images(tag)] == [former]
        assert drafts(api) == []


@docker
def test_half_an_archive_is_told(engine: str, base: Path, tag: str, tmp_path: Path) -> None:
    path = archive_path("bookworm", tmp_path)
    path.write_bytes(base.read_bytes()[: 2**20])
    with pytest.raises(ImageError, match=f"(?s)could not import {path}.*remedy: delete that file"):
        build_image(engine, tag, offline=True, cache=tmp_path, say=quiet)


@docker
def test_the_dockerfile_on_a_base_that_has_it_all(engine: str, api: Any, tag: str) -> None:
    said: list[str] = []
    built = build_image(engine, tag, base=IMAGE, say=said.append)
    facts = api.inspect_image(tag)
    assert facts["Id"] == built and facts["Config"]["Labels"][LABEL] == recipe()
    assert json.dumps(facts["Config"]["Cmd"]) == '["/bin/bash"]'
    seen = run_in(api, tag, LOOK).split("\r\n")
    assert seen[0] == "uid=1000(user) gid=1000(user) groups=1000(user)"
    assert any(line.startswith("Step 1/") for line in said)


@docker
def test_a_base_that_nobody_has_is_told(engine: str, tag: str) -> None:
    with pytest.raises(ImageError, match="(?s)could not build the image.*remedy: check the name of the base"):
        build_image(engine, tag, base="localhost:1/none/such:ever", say=quiet)
