"""Fixtures: one warm sandbox per backend that works here; the others are skipped with the probe's reason."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxes import Backend, SandboxError, SupervisedSandbox, open_sandbox, probe
from sandboxes.boot import system_python
from sandboxes.docker.engines import HOSTS_VARIABLE

REPOSITORY = Path(__file__).resolve().parents[2]
ENGINE_VARIABLE = "TURNGYM_TEST_ENGINE"
"""Address of a container engine with the image, for the tests of the docker backend. Unset: they are skipped."""
SAFE_BACKENDS = (pytest.param(Backend.DOCKER, marks=pytest.mark.docker), Backend.BUBBLEWRAP, Backend.LANDLOCK)
BACKENDS = (*SAFE_BACKENDS, Backend.LOCAL)
PLAIN_USER = 61234
"""A user id nobody has, for what must work without root."""


@pytest.fixture(scope="session")
def engine() -> str:
    """Address of the engine for tests; without one the test is skipped."""
    url = os.environ.get(ENGINE_VARIABLE)
    if not url:
        pytest.skip(f"{ENGINE_VARIABLE} names no container engine")
    return url


@contextmanager
def engine_for(backend: Backend) -> Iterator[None]:
    """Let this process and those it starts find the engine for tests, if the backend is docker.

    Only for so long: `auto` of other tests must not meet it.
    """
    url = os.environ.get(ENGINE_VARIABLE)
    with pytest.MonkeyPatch.context() as patch:
        if backend is Backend.DOCKER and url:
            patch.setenv(HOSTS_VARIABLE, url)
        yield


def require(backend: Backend) -> None:
    """Skip unless the backend works on this machine."""
    if backend is Backend.DOCKER and not os.environ.get(ENGINE_VARIABLE):
        pytest.skip(f"docker: {ENGINE_VARIABLE} names no container engine")
    found = probe(backend)
    if not found.ok:
        pytest.skip(f"{backend}: {found.reason}")


@pytest.fixture(scope="module", params=BACKENDS, ids=str)
def warm(request: pytest.FixtureRequest) -> Iterator[SupervisedSandbox]:
    """A sandbox that the tests of a module share."""
    with engine_for(request.param):
        require(request.param)
        with open_sandbox(request.param) as sandbox:
            yield sandbox


@pytest.fixture
def sandbox(warm: SupervisedSandbox) -> SupervisedSandbox:
    """A sandbox at the start of an episode."""
    warm.open({})
    return warm


@pytest.fixture(params=SAFE_BACKENDS, ids=str)
def safe_backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """A backend that confines."""
    with engine_for(request.param):
        require(request.param)
        yield request.param


def plain_python() -> list[str]:
    """The start of a command line that runs Python as a user without any right, with the checkout to import from."""
    try:
        python = system_python()
    except SandboxError as error:
        pytest.skip(str(error))
    identity = {"user": PLAIN_USER, "group": PLAIN_USER, "extra_groups": []} if os.geteuid() == 0 else {}
    test = "import sys, os; assert sys.version_info >= (3, 11); os.listdir(sys.argv[1] + '/sandboxes')"
    done = subprocess.run([python, "-c", test, str(REPOSITORY)], capture_output=True, text=True, **identity)  # type: ignore[call-overload]
    if done.returncode:
        pytest.skip(
            f"{python} is older than 3.11, or a plain user cannot read {REPOSITORY}: {done.stderr.strip()[-200:]}"
        )
    return [python]


@pytest.fixture(scope="session")
def start_plain() -> Callable[..., subprocess.Popen[str]]:
    """Start a Python program as a plain user (when we are root; else as ourselves)."""
    command = plain_python()

    def start(*arguments: str, **extra: str) -> subprocess.Popen[str]:
        identity = {"user": PLAIN_USER, "group": PLAIN_USER, "extra_groups": []} if os.geteuid() == 0 else {}
        return subprocess.Popen(
            [*command, "-B", *arguments],
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "PYTHONPATH": str(REPOSITORY), **extra},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **identity,  # type: ignore[arg-type]
        )

    return start


@pytest.fixture(scope="session")
def start_here() -> Callable[..., subprocess.Popen[str]]:
    """Start a Python program as ourselves."""

    def start(*arguments: str, **extra: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-B", *arguments],
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), **extra},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start
