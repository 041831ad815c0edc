"""Running the checks: several sandboxes at the same time, a fresh one after any loss, stress in turn."""

from __future__ import annotations

import queue
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sandboxes.client import SupervisedSandbox
from sandboxes.conformance.check import UNSAFE, Check, Status, Trial, Verdict, Wrong, folders, must
from sandboxes.opening import choose, open_sandbox
from sandboxes.sandbox import Backend, Limits, SandboxError, SandboxUnavailable

LANES = 4
"""How many sandboxes (each with a neighbour where needed) are tried at the same time."""

Opener = Callable[[], SupervisedSandbox]


class Lane:
    """One sandbox that runs check after check, and its neighbour.

    Args:
        opener: Makes a sandbox that is not yet started.
    """

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._sandbox: SupervisedSandbox | None = None
        self._neighbour: SupervisedSandbox | None = None

    def judge(self, check: Check) -> Verdict:
        """Run one check. Raises SandboxUnavailable when the backend cannot work here."""
        begin = time.monotonic()
        status, detail = self._judge(check)
        return Verdict(check, status, detail, time.monotonic() - begin)

    def _judge(self, check: Check) -> tuple[Status, str]:
        try:
            sandbox = self._sandbox = self._sandbox or self._opener()
            if check.unsafe and sandbox.backend is Backend.LOCAL:
                return Status.EXCEPTION, UNSAFE
            sandbox.open(folders("here"))
            trial = Trial(sandbox, self._open_neighbour)
            check.body(trial)
            sandbox.reset()
            left = sandbox.listing()
            must(not left, f"left after a reset: {left[:5]}")
            return Status.OK, ""
        except SandboxUnavailable:
            raise
        except Exception as error:  # whatever a sandbox raises against its contract is a finding, not a crash
            # A refused request leaves its sandbox alive: then the machinery works, and the answer is wrong.
            lost = not all(
                each is not None and each.alive for each in {self._sandbox, self._neighbour or self._sandbox}
            )
            self.close()
            reason = None if sandbox is None else check.exceptions.get(sandbox.backend)
            if reason is not None:
                return Status.EXCEPTION, reason
            if isinstance(error, SandboxError) and lost:
                return Status.ERROR, str(error)
            return Status.WRONG, str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"

    def _open_neighbour(self) -> SupervisedSandbox:
        self._neighbour = self._neighbour or self._opener()
        self._neighbour.open({})
        return self._neighbour

    def close(self) -> None:
        """End both sandboxes; the next check gets fresh ones."""
        both, self._sandbox, self._neighbour = (self._sandbox, self._neighbour), None, None
        for sandbox in both:
            if sandbox is not None:
                sandbox.close()


def run_checks(checks: Sequence[Check], opener: Opener, *, lanes: int = LANES) -> Iterator[Verdict]:
    """Run checks in sandboxes that `opener` makes: first those that share the machine, then the others in turn.

    Args:
        checks: What to run.
        opener: Makes a sandbox that is not yet started.
        lanes: How many are tried at the same time.

    Yields:
        Verdicts in the order of `checks`, those of stressing checks last.

    Raises:
        SandboxUnavailable: The backend cannot work here.
    """
    calm = [check for check in checks if not check.stress]
    yield from _in_lanes(calm, opener, max(1, min(lanes, len(calm))))
    yield from _in_lanes([check for check in checks if check.stress], opener, 1)


def _in_lanes(checks: Sequence[Check], opener: Opener, number: int) -> Iterator[Verdict]:
    lanes = [Lane(opener) for _ in range(number)]
    free: queue.SimpleQueue[Lane] = queue.SimpleQueue()
    for lane in lanes:
        free.put(lane)

    def judge(check: Check) -> Verdict:
        lane = free.get()
        try:
            return lane.judge(check)
        finally:
            free.put(lane)

    threads = ThreadPoolExecutor(number, thread_name_prefix="conformance")
    try:
        yield from threads.map(judge, checks)
    finally:  # the caller may have stopped early
        threads.shutdown(cancel_futures=True)
        for lane in lanes:
            lane.close()


def conform(
    backend: Backend | str,
    *,
    only: Iterable[str] | None = None,
    limits: Limits | None = None,
    lanes: int = LANES,
    **options: Any,
) -> Iterator[Verdict]:
    """Run the conformance list on a backend.

    Args:
        backend: Which; `auto` is resolved as in `open_sandbox`.
        only: Names of checks, or of groups; default all.
        limits: What commands may use; default `Limits()`.
        lanes: How many sandboxes are tried at the same time.
        options: Options of the backend, as in `open_sandbox`.

    Yields:
        One verdict per check, as soon as it and all before it are known.

    Raises:
        SandboxUnavailable: The backend cannot work here.
        ValueError: No such backend, or no check or group of a name in `only`.
    """
    chosen, wanted = choose(backend), select(only)
    return run_checks(wanted, lambda: open_sandbox(chosen, limits=limits, **options), lanes=lanes)


def select(only: Iterable[str] | None = None) -> list[Check]:
    """The checks with these names, or in groups with these names; all when None.

    Raises:
        ValueError: No check and no group has one of the names.
    """
    from sandboxes.conformance import CHECKS

    if only is None:
        return list(CHECKS)
    names = set(only)
    unknown = names - {check.name for check in CHECKS} - {check.group for check in CHECKS}
    if unknown:
        groups = ", ".join(dict.fromkeys(check.group for check in CHECKS))
        raise ValueError(f"no conformance check or group is called {', '.join(sorted(unknown))}; groups: {groups}")
    return [check for check in CHECKS if check.name in names or check.group in names]


def passed(verdicts: Iterable[Verdict]) -> bool:
    """Whether nothing is wrong and nothing failed."""
    return all(verdict.status in (Status.OK, Status.EXCEPTION) for verdict in verdicts)


def summary(verdicts: Iterable[Verdict]) -> str:
    """One line that counts, such as `131 checks: 128 ok, 3 exceptions`."""
    verdicts = list(verdicts)
    counts = Counter(verdict.status for verdict in verdicts)
    words = {Status.EXCEPTION: ("exception", "exceptions"), Status.ERROR: ("error", "errors")}
    parts = []
    for status in Status:
        if counts[status] or status is Status.OK:
            one, many = words.get(status, (str(status), str(status)))
            parts.append(f"{counts[status]} {one if counts[status] == 1 else many}")
    return f"{len(verdicts)} checks: {', '.join(parts)}; {sum(verdict.seconds for verdict in verdicts):.0f} s of work"
