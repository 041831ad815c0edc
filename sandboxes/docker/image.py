"""The image of the docker backend: its recipe, a build from a registry's base, and one from Debian packages alone."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import os
import platform
import re
import secrets
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
from typing import TYPE_CHECKING, Any

from sandboxes.client import SupervisedSandbox
from sandboxes.docker.engines import Engine, client, engine_errors, explain, find_engines
from sandboxes.docker.launcher import IMAGE, DockerLauncher, default_image
from sandboxes.sandbox import Limits, SandboxError, SandboxUnavailable

if TYPE_CHECKING:
    from docker import APIClient


# -- The recipe of the sandbox image: the files in `image/`, which both builders share --------------------------------

FOLDER = Path(__file__).parent.parent / "image"
"""The build context: Dockerfile, packages.txt, prepare.sh."""

LABEL = "turngym.recipe"
"""The label of an image that says which recipe it was built from."""

_STEPS = 1
"""Raise when the steps of the offline builder change what is in the image."""


class ImageError(RuntimeError):
    """An image could not be built. The message says at which step, why, and what to do."""


def packages() -> list[str]:
    """Names of the Debian packages in the image."""
    lines = (FOLDER / "packages.txt").read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def recipe() -> str:
    """Twelve hexadecimal digits that change when the image would. An image says its own in the label `LABEL`."""
    digest = hashlib.sha256(f"{_STEPS}\n".encode())
    for name in ("Dockerfile", "packages.txt", "prepare.sh"):
        content = (FOLDER / name).read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()[:12]


def instructions() -> list[str]:
    """What the Dockerfile sets after its packages are in: environment, user, command, label."""
    text = (FOLDER / "Dockerfile").read_text("utf-8")
    lines = text.partition("ARG RECIPE=by-hand\n")[2].splitlines()
    return [line.replace("${RECIPE}", recipe()) for line in lines if line and not line.startswith("#")]


# ---------------------------------------------------------------------------------------------------------------------
# The offline builder: a root file system of Debian packages, made without an image registry and kept as an archive.
#
# debootstrap and what follows it run in a mount and a PID namespace of their own. Whatever ends this process, also
# `kill -9`, ends them and takes their mounts along; a folder that was left is removed by the next build.

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


# -- Building the image of the docker backend: from a base image of a registry, or from Debian packages without one ---

_DRAFT = "turngym-draft"
"""Repository of an image that has not been tried yet."""
_SMOKE_SECONDS = 60.0
_PROXIES = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_EXPECTED = (
    "awk bash bc bzip2 cat diff file find free gawk grep gzip jq less patch ps python python3 sed tar top tree unzip "
    "xargs xz zip"
)
_SMOKE = f"""
wrong=0
no() {{ echo "$*"; wrong=1; }}
[ "$(id -u):$(id -g)" = 1000:1000 ] || no "commands run as $(id -u):$(id -g), not as 1000:1000"
[ "$(id -un)" = user ] || no "the user is called '$(id -un)', not 'user'"
for name in {_EXPECTED}; do command -v $name >/dev/null || no "the program $name is missing"; done
python3 -c 'import ctypes, json; ctypes.CDLL(None).getpid()' || no "python3 cannot load its modules"
python3 -c 'import json, os, sys; sys.exit(not os.path.exists(json.__cached__))' || no "python3 has no compiled modules"
(: >/in-root) 2>/dev/null && no "the root file system can be written to"
(: >/workspace/file && : >/tmp/file) || no "/workspace or /tmp cannot be written to"
[ -z "$(find / -xdev -type f -perm /6000 2>/dev/null)" ] || no "there are setuid programs"
exit $wrong
"""


def build_image(
    engine_url: str | None = None,
    tag: str | None = None,
    *,
    offline: bool = False,
    base: str | None = None,
    suite: str = "bookworm",
    cache: Path | None = None,
    mirror: str | None = None,
    network: str | None = None,
    say: Callable[[str], None] = print,
) -> str:
    """Build the image, run it once under the limits of the docker backend, and only then give it its name.

    An image that had the name before is replaced, and removed unless a container uses it.

    Args:
        engine_url: Address of the engine; default: the one that the docker backend would use.
        tag: Name of the image; default TURNGYM_IMAGE, else `sandboxes.docker.launcher.IMAGE`.
        offline: Without an image registry: debootstrap on this machine (as root, unless the cache has the archive),
            then an import. Otherwise the engine builds `image/Dockerfile`.
        base: Base image, Debian or Ubuntu; default `debian:<suite>-slim`. Not with `offline`.
        suite: Name of the Debian release.
        cache: Folder of archives of the offline builder; see `sandboxes.docker.image.cache_folder`.
        mirror: Address of a Debian mirror; default: that of apt here (offline), that of the base (otherwise).
        network: Network of the engine during the build; default: the engine's, or the host's where it has none.
        say: Gets lines of progress.

    Returns:
        The id of the image.

    Raises:
        SandboxUnavailable: No engine answers, or this machine cannot build offline; with the remedy.
        ImageError: A step failed; what had the name before still has it.
        ValueError: `base` together with `offline`, or a name that no image can have.
    """
    if offline and base is not None:
        raise ValueError("the offline builder makes its own base; leave out base, or leave out offline")
    tag = tag or default_image()
    repository, name = _split(tag)
    engine = find_engines([engine_url] if engine_url else None)[0]
    packed = archive(suite, cache=cache, mirror=mirror, say=say) if offline else None
    api = client(engine).api
    draft = f"{_DRAFT}:{os.getpid()}-{secrets.token_hex(4)}"
    try:
        if packed is not None:
            _import(api, draft, packed, say)
        else:
            _build(api, draft, base or f"debian:{suite}-slim", mirror, network, say)
        say("trying: one container under the limits of the docker backend")
        _smoke(engine, draft)
        former = _id(api, tag)
        api.tag(draft, repository, name, force=True)
        built = str(_id(api, tag))
        if former not in (None, built) and not _nameless(api, str(former)):
            say(f"the former image {former} stays: a container or another name uses it")
    except engine_errors() as error:
        raise ImageError(f"{engine.url}: {explain(error)}\n  remedy: {_remedy(explain(error))}") from error
    finally:
        _discard(api, draft, say)
    say(f"image {tag}: {built}")
    return built


def _split(tag: str) -> tuple[str, str]:
    found = re.fullmatch(r"([a-z0-9][a-z0-9._-]*(?::\d+)?(?:/[a-z0-9][a-z0-9._-]*)*)(?::([\w][\w.-]{0,127}))?", tag)
    if found is None:
        raise ValueError(f"{tag!r} is no name of an image; use lower case and one tag, as in {IMAGE}")
    repository, name = found.groups()
    return repository, name or "latest"


def _build(
    api: APIClient,
    draft: str,
    base: str,
    mirror: str | None,
    network: str | None,
    say: Callable[[str], None],
) -> None:
    """Let the engine build the Dockerfile."""
    if network is None and not {"bridge", "podman"} & {found["Name"] for found in api.networks()}:
        network = "host"
    arguments = {"BASE": base, "RECIPE": recipe(), "MIRROR": mirror or ""}
    arguments |= {variable: os.environ[variable] for variable in _PROXIES if os.environ.get(variable)}
    say(f"building: Dockerfile from {base}")
    tail: deque[str] = deque(maxlen=TAIL)
    lines = api.build(
        path=str(FOLDER), tag=draft, rm=True, forcerm=True, buildargs=arguments, network_mode=network, decode=True
    )
    for line in lines:
        text = _plain(str(line.get("stream") or ("" if line.get("progressDetail") else line.get("status", ""))))
        if line.get("error"):
            said = "\n".join(f"    {one}" for one in tail)
            raise ImageError(
                f"the engine could not build the image: {line['error']}\n{said}\n  remedy: {_remedy(line['error'])}"
            )
        if text and not text.startswith(("--->", "Removing intermediate", "(Reading database")):
            tail.append(text)
            say(text)


def _plain(text: str) -> str:
    """A line of a build without colours and runs of blanks."""
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", text).split())


def _import(api: APIClient, draft: str, packed: Path, say: Callable[[str], None]) -> None:
    """Make an image of an archive."""
    say(f"importing: {packed}")
    repository, name = _split(draft)
    try:
        answer = api.import_image(str(packed), repository=repository, tag=name, changes=instructions())
    except engine_errors() as error:
        answer = f'"error": {explain(error)}'
    if '"error"' in answer:
        full = re.search("no space left on device", answer, re.IGNORECASE)
        remedy = _remedy(answer) if full else f"delete that file, in case it is damaged, and build again: rm {packed}"
        raise ImageError(f"the engine could not import {packed}: {answer.strip()}\n  remedy: {remedy}")


def _smoke(engine: Engine, draft: str) -> None:
    """Run the image as the docker backend does. Raises ImageError when something in it is not as it should be."""
    launcher = DockerLauncher(Limits(), image=draft, hosts=[engine.url])
    try:
        with SupervisedSandbox(launcher) as sandbox:
            sandbox.open({})
            result = sandbox.run(_SMOKE, timeout=_SMOKE_SECONDS)
    except SandboxError as error:
        raise ImageError(
            f"the new image does not work as a sandbox: {error}\n  remedy: {_remedy(str(error))}"
        ) from error
    if result.exit_code:
        said = (result.stdout + result.stderr).decode("utf-8", "replace").strip()
        said = said or f"the check ended with exit code {result.exit_code}" + " (too slow)" * result.timed_out
        raise ImageError(f"the new image is not as it should be: {said}\n  remedy: another base, or {_OFFLINE}")


def _id(api: APIClient, image: str) -> str | None:
    """The id behind a name; `None` if there is none."""
    found: list[dict[str, Any]] = api.images(image)
    return str(found[0]["Id"]) if found else None


def _nameless(api: APIClient, former: str) -> bool:
    """Remove an image that lost its name. False when it has another one, or a container uses it."""
    names = [row.get("RepoTags") or [] for row in api.images(all=True) if row["Id"] == former]
    named = any(name != "<none>:<none>" for of_one in names for name in of_one)
    return not named and _remove(api, former)


def _discard(api: APIClient, draft: str, say: Callable[[str], None]) -> None:
    """Take the draft away, whatever became of it. What stopped the build is told rather than what stops this."""
    try:
        gone = _remove(api, draft)
    except engine_errors():
        gone = False
    if not gone:
        say(f"the image {draft} could not be removed; when the engine answers again: docker rmi {draft}")


def _remove(api: APIClient, image: str) -> bool:
    """Take away a name, and the image with its last name. False when something still uses it."""
    import docker

    try:
        api.remove_image(image)
    except docker.errors.ImageNotFound:
        return True
    except docker.errors.APIError as error:
        if error.status_code == 409:
            return False
        raise
    return True


_OFFLINE = "the offline builder, which needs no registry: python -m sandboxes build --offline"


def _remedy(said: str) -> str:
    if re.search("no space left on device", said, re.IGNORECASE):
        return "free some disk where the engine keeps its images (docker system df shows what is used)"
    if re.search("exec format error", said):
        return "the engine's machine has another architecture: build there"
    registry = "no such host|connection refused|i/o timeout|deadline|tls|x509|pull access denied|manifest|not found"
    if re.search(registry, said, re.IGNORECASE):
        return f"check the name of the base and the engine's way to its registry, or use {_OFFLINE}"
    if "apt-get" in said or "returned a non-zero code" in said:
        return "see the lines above; a build needs a Debian mirror (mirror=, http_proxy), or a base that has it all"
    return "see the message of the engine"
