"""The recipe of the sandbox image: the files in `image/`, which both builders share."""

from __future__ import annotations

import hashlib
from pathlib import Path

FOLDER = Path(__file__).parent / "image"
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
