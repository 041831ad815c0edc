"""A draft's own process: what it comes to when it says something, ends, outlasts its time, or is no longer wanted."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pytest

from sandboxes.sandbox import SandboxUnavailable
from tasks.endpoints.chat import Reply
from tasks.synthesis import proving
from tasks.synthesis.proving import Judged, Prover
from tests.tasks.synthesis.test_draft import ORDER


class Fork(type(multiprocessing.get_context("fork"))):  # type: ignore[misc]
    """Forks this process: the server that other tests fork from is left as it is, and what they replace is replaced."""

    def set_forkserver_preload(self, names: list[str]) -> None:
        pass


@pytest.fixture
def prover(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Connection], Any]], Prover]:
    def made(does: Callable[[Connection], Any]) -> Prover:
        monkeypatch.setattr(proving.multiprocessing, "get_context", lambda name: Fork())
        monkeypatch.setattr(proving, "_serve", lambda connection, *rest: does(connection))
        return Prover("auto", 1)

    return made


@pytest.mark.parametrize(
    ("does", "verdict", "detail"),
    [
        (lambda connection: connection.send(Judged("twin", ("why",))), "twin", "why"),
        (lambda connection: os._exit(3), "process", "ended it (exit code 3)"),
        (lambda connection: os.kill(os.getpid(), 9), "process", "ended it (exit code -9)"),
        (lambda connection: time.sleep(60), "process", "took more than 0.5 s"),
    ],
)
def test_whatever_the_process_does_there_is_a_verdict(
    does: Callable[[Connection], Any],
    verdict: str,
    detail: str,
    prover: Callable[[Callable[[Connection], Any]], Prover],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(proving, "SECONDS", 0.5 if "took" in detail else 60.0)
    found = prover(does).judge(Reply(""), ORDER)
    assert found.verdict == verdict and detail in found.details[0]
    assert not multiprocessing.active_children()


def test_without_a_sandbox_there_is_no_verdict(prover: Callable[[Callable[[Connection], Any]], Prover]) -> None:
    with pytest.raises(SandboxUnavailable, match="none here"):
        prover(lambda connection: connection.send(SandboxUnavailable("none here"))).judge(Reply(""), ORDER)


def test_a_closed_prover_kills_what_is_under_way(prover: Callable[[Callable[[Connection], Any]], Prover]) -> None:
    made = prover(lambda connection: time.sleep(60))
    found: list[Judged] = []
    thread = threading.Thread(target=lambda: found.append(made.judge(Reply(""), ORDER)))
    thread.start()
    while not multiprocessing.active_children():
        time.sleep(0.01)
    made.close()
    thread.join(30)
    assert found[0].details[0].endswith("ended it (exit code -9)")
    with pytest.raises(SandboxUnavailable, match="closed"):
        made.judge(Reply(""), ORDER)
