"""Fixtures: one sandbox for all tasks that the tests of a module prove."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandboxes import open_sandbox
from sandboxes.sandbox import Sandbox, SandboxUnavailable
from tests.tasks.fake_sandbox import FakeSandbox


@pytest.fixture(scope="module")
def proving() -> Iterator[Sandbox]:
    """A real sandbox; where none works, one without walls."""
    try:
        opened: Sandbox = open_sandbox("auto")
    except SandboxUnavailable:
        opened = FakeSandbox()
    with opened:
        yield opened
