from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.agents.policies.vllm.fake import Fake, running


@pytest.fixture
def fake() -> Iterator[Fake]:
    """A server that plays vLLM."""
    with running(Fake()) as made:
        yield made
