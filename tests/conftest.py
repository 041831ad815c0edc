"""Settings for every test: offline, one thread, nothing written outside the temporary folder."""

from __future__ import annotations

import gc
import os
import signal
from typing import Any

# Before anything imports torch or a Hugging Face library: both read these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell has what it starts in the background ignore Ctrl-C, and so would every process that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


import pytest
from hypothesis import settings

from tests.agents.policies.vllm.server import vllm_server  # noqa: F401  (one for the session, so it is known here)
from tests.clusters import nodes  # noqa: F401  (the same)

settings.register_profile("turngym", deadline=None)  # tests assert no times: a busy machine is no defect
settings.load_profile("turngym")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup`: one worker takes a file with all its fixtures, or a group that `xdist_group` names.

    A worker for each test, as xdist has it, makes fixtures of a module once a worker and costs more than most tests.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class ByFile(LoadGroupScheduling):
        def _split_scope(self, nodeid: str) -> str:
            scope = super()._split_scope(nodeid)
            return nodeid.partition("::")[0] if scope == nodeid else scope

    return ByFile(config, log)


def _first(items: list[pytest.Item]) -> None:
    """Move files and groups with a test marked `slow` to the front: begun last, one would keep a worker alone."""

    def unit(item: pytest.Item) -> str:
        group = item.get_closest_marker("xdist_group")
        return group.args[0] if group else item.location[0]

    slow = {unit(item) for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: unit(item) not in slow)


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests marked `whole` unless asked for; `pytest -m slow` asks for them."""
    if hasattr(config, "workerinput"):
        _first(items)
    if any(name in str(config.getoption("-m")) for name in ("slow", "whole")):
        return
    left_out = [item for item in items if item.get_closest_marker("whole")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("whole")]


def pytest_collection_finish() -> None:
    """Leave out of every garbage collection what lives as long as the session: all tests and all imported libraries.

    `Trainer.train` of transformers collects, which took longer than a small run.
    """
    gc.collect()
    gc.freeze()
