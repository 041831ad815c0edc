"""The offline builder: a root file system of Debian packages, made without an image registry and kept as an archive.

debootstrap and what follows it run in a mount and a PID namespace of their own. Whatever ends this process, also
`kill -9`, ends them and takes their mounts along; a folder that was left is removed by the next build.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

from sandboxes.recipe import FOLDER, ImageError, packages, recipe
from sandboxes.sandbox import SandboxUnavailable

CACHE_VARIABLE = "TURNGYM_CACHE"
_NEEDED_MB = 700
"""Free disk that a build takes: about 350 MB unpacked, the packages, and the archive."""
_PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux", "setpriv": "util-linux", "chroot": "coreutils"}
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WORK = ".build-"
_EMPTIED = ("dev", "proc", "sys")
TAIL = 12
"""Lines of output that an error shows."""


def cache_folder(cache: Path | None = None) -> Path:
    """Where archives are kept: `cache`, else $TURNGYM_CACHE, else `turngym` in $XDG_CACHE_HOME or ~/.cache."""
    if cache is not None:
        return Path(cache)
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turngym"


def archive_path(suite: str, cache: Path | None = None) -> Path:
    """The archive of the recipe of today for this machine's architecture, there or not."""
    return cache_folder(cache) / f"turngym-shell-{suite}-{platform.machine()}-{recipe()}.tar.gz"


def archive(
    suite: str = "bookworm",
    *,
    cache: Path | None = None,
    mirror: str | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """The root file system as a compressed archive, from the cache if it is there.

    Args:
        suite: Name of the Debian release.
        cache: Folder for archives; default `cache_folder()`.
        mirror: Address of a Debian mirror; default the one that apt of this machine is set to for that suite, else
            debootstrap's own. The proxy of apt, or of `http_proxy`, is used.
        say: Gets one line per step.

    Raises:
        SandboxUnavailable: This machine cannot build one (not root, no debootstrap); the message has the remedy.
        ImageError: A step failed; neither a folder nor half an archive is left.
    """
    path = archive_path(suite, cache)
    if path.is_file():
        say(f"archive: {path} is there already")
        return path
    _check_machine(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(path.parent, say), _ended_by_sigterm():
            if not path.is_file():
                _check_disk(path.parent)
                _make_archive(path, suite, mirror or _apt_mirror(suite), say)
    except OSError as error:
        raise ImageError(
            f"the archive {path} could not be written: {error}\n  remedy: a cache folder on a disk of this machine "
            f"with {_NEEDED_MB} MB free and mounted without nodev and noexec: set {CACHE_VARIABLE}"
        ) from error
    return path


def _make_archive(path: Path, suite: str, mirror: str | None, say: Callable[[str], None]) -> None:
    """Make the archive. Called by one process at a time."""
    for stale in path.parent.glob(f"{_WORK}*"):
        say(f"removing {stale}, which an earlier build left")
        shutil.rmtree(stale)
    work = Path(tempfile.mkdtemp(prefix=_WORK, dir=path.parent))
    try:
        root = work / "root"
        root.mkdir()
        say(f"debootstrap: {suite} from {mirror or 'its default mirror'}")
        options = ["--variant=minbase", f"--include={','.join(packages())}"]
        _run(["debootstrap", *options, suite, str(root), *([mirror] if mirror else [])], "debootstrap", _Stages(say))
        say("preparing: user, compiled modules, nothing setuid, no documentation")
        shutil.copy(FOLDER / "prepare.sh", root / "prepare.sh")
        _run(["chroot", str(root), "/bin/sh", "/prepare.sh"], "prepare.sh", lambda _: None)
        (root / "prepare.sh").unlink()
        _forget_this_machine(root)
        say("packing")
        part = work / "part"
        _pack(root, part)
        part.chmod(0o644)
        part.replace(path)
        say(f"archive: {path}, {path.stat().st_size / 1e6:.0f} MB")
    finally:
        shutil.rmtree(work)


def _check_machine(path: Path) -> None:
    elsewhere = f"or build it elsewhere and copy it to {path}; where there is an image registry, build without offline"
    if os.geteuid() != 0:
        raise SandboxUnavailable(
            f"the offline builder needs root: it runs debootstrap\n  remedy: run it with sudo; {elsewhere}"
        )
    for program, package in _PROGRAMS.items():
        if shutil.which(program, path=os.environ.get("PATH", _SYSTEM_PATH)) is None:
            raise SandboxUnavailable(
                f"the program {program} is not installed\n  remedy: apt-get install {package}; {elsewhere}"
            )
    test = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    if test.returncode:
        raise SandboxUnavailable(
            f"root may not make mount namespaces here ({test.stderr.strip()}), as in most containers\n"
            f"  remedy: build on the machine itself, {elsewhere}"
        )


def _check_disk(folder: Path) -> None:
    free = shutil.disk_usage(folder).free / 1e6
    if free < _NEEDED_MB:
        raise ImageError(
            f"{folder} has {free:.0f} MB free, a build needs {_NEEDED_MB} MB\n"
            f"  remedy: free some, or set {CACHE_VARIABLE} to a folder on another disk"
        )


@contextlib.contextmanager
def _alone(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a cache folder, so that what else is there is known to be left over."""
    with open(folder / ".lock", "w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another build in {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """SIGTERM ends a build the way Ctrl-C does, so that it cleans up; a handler of the caller stays in charge."""
    default = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not default or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


class _Stages:
    """Turns some hundred lines of debootstrap into one per stage."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.told: set[str] = set()

    def __call__(self, line: str) -> None:
        found = re.match(r"I: (Retrieving|Validating|Extracting|Unpacking|Configuring)\b", line)
        if found and found.group(1) not in self.told:
            self.told.add(found.group(1))
            self.say(f"debootstrap: {found.group(1).lower()}")


def _run(command: Sequence[str], name: str, heard: Callable[[str], None]) -> None:
    """Run a command that ends, with all it started and mounted, when it is done or when this process is.

    Raises:
        ImageError: It failed; with the last lines it printed.
    """
    contained = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", *command]
    process = subprocess.Popen(
        contained,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C comes to us alone
        umask=0o022,
        env=_environment(),
    )
    assert process.stdout is not None
    tail: deque[str] = deque(maxlen=TAIL)
    try:
        for line in process.stdout:
            tail.append(line.rstrip())
            heard(line)
        code = process.wait()
    finally:
        process.kill()
        process.stdout.read()  # ends when the last process in there has
        process.stdout.close()
        process.wait()
    if code:
        said = "\n".join(f"    {line}" for line in tail)
        raise ImageError(
            f"{name} failed (exit code {code}); its last lines:\n{said}\n  remedy: {_debootstrap_remedy(said)}"
        )


def _debootstrap_remedy(said: str) -> str:
    if re.search("No space left on device", said):
        return f"free some disk ({_NEEDED_MB} MB are needed), or set {CACHE_VARIABLE} to a folder on another disk"
    if re.search("noexec or nodev", said):
        return f"set {CACHE_VARIABLE} to a folder on a disk that is mounted without nodev and noexec"
    if re.search("Failed getting release|Couldn't download|Unable to fetch|Couldn't retrieve|Invalid Release", said):
        return "check the network, http_proxy, and the name of the suite; --mirror names another Debian mirror"
    return "see the lines above"


def _environment() -> dict[str, str]:
    """For debootstrap: our own, in English, and with apt's proxy where none is set."""
    env = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
    env["PATH"] = f"{env.get('PATH', '')}:{_SYSTEM_PATH}".lstrip(":")
    if "http_proxy" not in env and shutil.which("apt-config"):
        told = subprocess.run(["apt-config", "shell", "X", "Acquire::http::Proxy"], capture_output=True, text=True)
        proxy = "".join(shlex.split(told.stdout)).removeprefix("X=")
        if proxy.startswith("http"):
            env["http_proxy"] = proxy
    return env


def _apt_mirror(suite: str) -> str | None:
    """The mirror that apt of this machine uses for a suite; `None` where it uses none."""
    if shutil.which("apt-get") is None:
        return None
    command = ["apt-get", "indextargets", "--format", "$(RELEASE) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    told = subprocess.run(command, capture_output=True, text=True)
    for line in told.stdout.splitlines():
        release, component, address = line.split(maxsplit=2)
        if (release, component) == (suite, "main") and address.startswith(("http://", "https://", "file:")):
            return address.rstrip("/")
    return None


def _forget_this_machine(root: Path) -> None:
    """Take out what debootstrap copied from here: name, resolver, and a password in the address of the mirror."""
    (root / "etc/hostname").write_text("sandbox\n", "ascii")
    (root / "etc/resolv.conf").write_text("", "ascii")
    sources = root / "etc/apt/sources.list"
    if sources.is_file():
        sources.write_text(re.sub(r"//[^/@\s]*@", "//", sources.read_text("utf-8")), "utf-8")


def _pack(root: Path, path: Path) -> None:
    """Write the archive. gzip, because every engine reads it as it is."""

    def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if member.name.startswith(tuple(f"./{name}/" for name in _EMPTIED)):
            return None
        if member.name == ".":
            member.mode = 0o755  # a closed root locks out everybody but root, on some storage drivers
        member.uname = member.gname = ""
        member.mtime = int(member.mtime)
        return member

    with (
        open(path, "wb") as raw,
        gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        tar.add(root, arcname=".", filter=kept)
