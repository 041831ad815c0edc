"""Settings for every test: offline, one thread, nothing written outside the temporary folder."""

from __future__ import annotations

import os

# Before anything imports torch or a Hugging Face library: both read these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")


import pytest
from hypothesis import settings

from tests.agents.policies.vllm.server import vllm_server  # noqa: F401  (one for the session, so it is known here)

settings.register_profile("turngym", deadline=None)  # tests assert no times: a busy machine is no defect
settings.load_profile("turngym")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `whole` unless they are asked for: `pytest -m slow`."""
    if any(name in str(config.getoption("-m")) for name in ("slow", "whole")):
        return
    left_out = [item for item in items if item.get_closest_marker("whole")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("whole")]
