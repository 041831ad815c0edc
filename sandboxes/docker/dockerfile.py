"""Images of tasks: built from a Dockerfile alone, out of images that the engine has, without a network."""

from __future__ import annotations

import io
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256

REPOSITORY = "turngym-task"
"""Images that are built here are `turngym-task:<24 hexadecimal digits of the Dockerfile>`."""
MAX_BYTES = 64 * 1024
_TAIL = 5
"""Lines of output that an error shows."""


class BuildFailed(RuntimeError):
    """An image could not be built. The message says why, and what to do."""


def tag_of(text: str) -> str:
    """The image that a Dockerfile becomes, built or not."""
    return f"{REPOSITORY}:{sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:24]}"


def dockerfile_problem(text: str) -> str | None:
    """What keeps a text from being built here, in words that follow "the Dockerfile"; `None` where nothing does.

    It has neither a folder beside it nor a network, so it can bring no files in; and what its stages begin with must be
    plain names, which can be looked for before the engine would fetch them.
    """
    if "\0" in text or len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        return f"holds a NUL character, or more than {MAX_BYTES} bytes"
    for line in text.splitlines():
        if found := re.match(r"\s*#\s*(syntax|escape|check)\s*=", line, re.IGNORECASE):
            return f"has the directive `# {found[1].lower()}=`: leave it out"
        if not line.lstrip().startswith("#"):
            break
    stages: set[str] = set()
    begun = False
    for word, rest in _instructions(text):
        if word == "FROM":
            words = [part for part in rest.split() if not part.startswith("--")]
            if "$" in rest or not words or "--platform" in rest:
                return f"begins a stage with `FROM {rest}`: name an image as the engine lists it, without variables"
            begun = True
            stages |= {words[2].lower()} if len(words) == 3 and words[1].upper() == "AS" else set()
        elif word == "ADD" or (word == "COPY" and not _copies_from_a_stage(rest, stages)):
            return f"has `{word} {rest[:60]}`, and no folder to take it from: lay files with `workspace`"
        elif word == "ONBUILD":
            return "has ONBUILD, which only another build would use: leave it out"
        elif not begun and word != "ARG":
            return f"has {word} before its first FROM"
    return None if begun else "has no FROM: name an image of the engine, such as FROM turngym-shell:bookworm"


def bases(text: str) -> list[str]:
    """Images that the stages of a Dockerfile begin with, those that are stages of it left out."""
    found: list[str] = []
    stages: set[str] = set()
    for word, rest in _instructions(text):
        if word == "FROM":
            words = [part for part in rest.split() if not part.startswith("--")]
            found += [words[0]] if words[0].lower() not in (*stages, "scratch") else []
            stages |= {words[2].lower()} if len(words) == 3 else set()
    return found


def build(text: str, *, hosts: Sequence[str] | None = None, say: Callable[[str], None] = print) -> str:
    """Build the image of a Dockerfile on every engine that answers, where it is not there yet; returns its name.

    Args:
        text: Accepted by `dockerfile_problem`. Its RUN commands run as root in a container of the engine, without a
            network: only of somebody who is trusted.
        hosts: As in `sandboxes.docker.engines.find_engines`.
        say: Gets one line per image that is built.

    Raises:
        SandboxUnavailable: No engine answers.
        BuildFailed: A base is not on an engine, or a step failed.
    """
    import docker

    from sandboxes.docker.engines import EngineFailed, client, engine_errors, explain, find_engines  # tasks need none

    tag = tag_of(text)
    for engine in find_engines(hosts):
        try:
            api = client(engine).api
            if api.images(tag):
                continue
            for base in bases(text):
                try:
                    api.inspect_image(base)
                except docker.errors.ImageNotFound:
                    raise BuildFailed(
                        f"the image {base!r} is not on the engine at {engine.url}, and none is pulled; remedy: load or "
                        "build it there"
                    ) from None
            say(f"building {tag} on {engine.url}")
            file = io.BytesIO(text.encode())
            options = {"tag": tag, "rm": True, "forcerm": True, "pull": False, "network_mode": "none", "decode": True}
            tail: deque[str] = deque(maxlen=_TAIL)
            for line in api.build(fileobj=file, **options):
                if line.get("error"):
                    raise BuildFailed(f"{str(line['error']).strip()}{''.join(f'; {one}' for one in tail)}")
                tail += [one.strip() for one in str(line.get("stream") or "").splitlines() if one.strip()]
        except EngineFailed as error:
            raise BuildFailed(str(error)) from error
        except engine_errors() as error:
            raise BuildFailed(f"the engine at {engine.url}: {explain(error)}") from error
    return tag


def image_ids(names: Iterable[str], *, hosts: Sequence[str] | None = None) -> dict[str, list[str]]:
    """Ids of images by their names: one, or several where engines have different ones, none where none has the image.

    Raises:
        SandboxUnavailable: No engine answers, or one fails.
    """
    import docker

    from sandboxes.docker.engines import client, engine_errors, explain, find_engines  # tasks need none
    from sandboxes.sandbox import SandboxUnavailable

    found: dict[str, set[str]] = {name: set() for name in names}
    for engine in find_engines(hosts):
        for name, ids in found.items():
            try:
                ids.add(str(client(engine).api.inspect_image(name)["Id"]))
            except docker.errors.ImageNotFound:
                continue
            except engine_errors() as error:
                raise SandboxUnavailable(f"the engine at {engine.url}: {explain(error)}") from error
    return {name: sorted(ids) for name, ids in found.items()}


def _copies_from_a_stage(rest: str, stages: set[str]) -> bool:
    found = re.match(r"--from=(\S+)\s", rest)
    return found is not None and (found[1].lower() in stages or found[1].isdigit())


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Instructions with what follows them, as an engine reads them: remarks and blank lines do not break a line."""
    kept = [line.rstrip() for line in text.split("\n") if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(kept).replace("\\\n", "").split("\n"):
        if words := line.split(None, 1):
            yield words[0].upper(), " ".join(words[1:]).strip()
