"""Spreading containers over several engines: the one with the fewest of ours per processor comes first."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter
from collections.abc import Sequence

from sandboxes.engines import Address, Engine, answering, ask

REST_SECONDS = 30.0
"""How long an engine that failed is asked last."""

_lock = threading.Lock()
_live: Counter[str] = Counter()
"""Our containers per engine, those being made among them."""
_resting: dict[str, float] = {}
_known: dict[Address, Engine] = {}
_turn = 0


def engines(hosts: Sequence[str] | None, failures: list[tuple[Address | Engine, str]]) -> list[Engine]:
    """Engines to try, best first. Those that failed lately come last.

    Args:
        hosts: As in `sandboxes.engines.find_engines`.
        failures: Addresses that do not answer are added here, with the reason.
    """
    global _turn
    found = answering(hosts, failures, _known_engine)
    now = time.monotonic()
    with _lock:
        _turn += 1
        start = _turn % len(found) if found else 0
        turned = found[start:] + found[:start]
        return sorted(turned, key=lambda engine: (_resting.get(engine.url, 0) > now, _live[engine.url] / engine.cpus))


def _known_engine(address: Address) -> Engine:
    """What is behind an address; asked once, and again after it failed."""
    with _lock:
        engine = _known.get(address)
    if engine is None:
        engine = ask(address)
        with _lock:
            _known[address] = engine
    return engine


def entered(engine: Engine) -> None:
    """A container is being made on this engine."""
    with _lock:
        _live[engine.url] += 1


def left(engine: Engine) -> None:
    """A container of this engine is gone."""
    with _lock:
        _live[engine.url] -= 1


def failed(engine: Engine) -> None:
    """This engine did not do what it should: others are asked first for a while, and it is asked who it is again."""
    with _lock:
        _resting[engine.url] = time.monotonic() + REST_SECONDS
        for address in [address for address, known in _known.items() if known.url == engine.url]:
            del _known[address]


def _forget() -> None:
    global _lock
    _lock = threading.Lock()
    _live.clear()


os.register_at_fork(after_in_child=_forget)
