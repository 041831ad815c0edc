from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.envs.fakes import FakeSandboxes


@pytest.fixture
def sandboxes(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeSandboxes]:
    """Environments open fake sandboxes; every one of them must have been closed at the end."""
    fakes = FakeSandboxes()
    monkeypatch.setattr("envs.workplace.open_sandbox", fakes)
    yield fakes
    for sandbox in fakes.all:
        sandbox.close()
