"""Building the image of the docker backend: from a base image of a registry, or from Debian packages without one."""

from __future__ import annotations

import os
import re
import secrets
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sandboxes.client import SupervisedSandbox
from sandboxes.docker import IMAGE, DockerLauncher, default_image
from sandboxes.engines import Engine, client, engine_errors, explain, find_engines
from sandboxes.recipe import FOLDER, ImageError, instructions, recipe
from sandboxes.rootfs import TAIL, archive
from sandboxes.sandbox import Limits, SandboxError

if TYPE_CHECKING:
    from docker import APIClient

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
        tag: Name of the image; default TURNGYM_IMAGE, else `sandboxes.docker.IMAGE`.
        offline: Without an image registry: debootstrap on this machine (as root, unless the cache has the archive),
            then an import. Otherwise the engine builds `image/Dockerfile`.
        base: Base image, Debian or Ubuntu; default `debian:<suite>-slim`. Not with `offline`.
        suite: Name of the Debian release.
        cache: Folder of archives of the offline builder; see `sandboxes.rootfs.cache_folder`.
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
