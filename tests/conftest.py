"""Settings for every test: offline, one thread, nothing written outside the temporary folder."""

from __future__ import annotations

import os

# Before anything imports torch or a Hugging Face library: both read these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")


import pytest
from hypothesis import settings

from tests.agents.policies.vllm.server import vllm_server  # noqa: F401  (one for the session, so it is known here)

settings.register_profile("turngym", deadline=None)  # tests assert no times: a busy machine is no defect
settings.load_profile("turngym")


MADE_ONCE = frozenset(
    ["batches", "by_family", "evaluated", "healthy", "hostile", "played", "policy_and_batch", "shown", "whole"]
)
"""Fixtures of a module or the session that take seconds. With several workers, the tests of a file that share one go to
the same worker, so that it is made once."""


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep together what shares a fixture that takes seconds; leave out the tests marked `whole` unless asked for.

    `pytest -m slow` asks for them.
    """
    for item in items:
        if MADE_ONCE.intersection(getattr(item, "fixturenames", ())) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))
    if any(name in str(config.getoption("-m")) for name in ("slow", "whole")):
        return
    left_out = [item for item in items if item.get_closest_marker("whole")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("whole")]
