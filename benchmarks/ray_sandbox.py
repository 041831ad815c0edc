"""What a sandbox on a node of a Ray cluster costs beside one on this machine: one request is one call to an actor.

    ray start --head --num-cpus 4    # or a cluster that runs already
    python -m benchmarks.ray_sandbox [--address HOST:PORT] [--backend bubblewrap] [--batches 12]

Both take turns within each section, every result is checked, and the ratio is to the sandbox of this machine. On a
cluster of several machines their network is in the ratio; without one, only Ray is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from benchmarks.peers import work
from benchmarks.peers.measure import Action, Table, Target, latencies
from benchmarks.sandbox import LIMITS, episode, stdout
from sandboxes import SandboxUnavailable, SupervisedSandbox, open_sandbox
from sandboxes.nodes import connect
from sandboxes.sandbox import REMOTE, Backend

LIMIT = 3.0
"""Times the latency of a local sandbox, at most, for what an episode does."""


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--address", help="of the cluster (default: RAY_ADDRESS, or the one of this machine)")
    parser.add_argument("--backend", choices=[str(name) for name in Backend], default="bubblewrap")
    parser.add_argument("--batches", type=int, default=12, help="turns of each; more of them, calmer numbers")
    arguments = parser.parse_args()
    here, there = arguments.backend, f"{REMOTE}{arguments.backend}"
    try:
        connect(arguments.address)
    except SandboxUnavailable as error:
        print(f"skipped: {error}")
        return
    table = Table()
    with ExitStack() as stack:
        opened: dict[str, SupervisedSandbox] = {}
        for name in (here, there):
            opened[name] = stack.enter_context(open_sandbox(name, limits=LIMITS))
            opened[name].open(work.FILES)

        def section(
            title: str, size: int, of: Callable[[SupervisedSandbox], Action], right: object = None, judged: bool = True
        ) -> None:
            actions = {name: of(sandbox) for name, sandbox in opened.items()}
            samples = latencies(actions, batches=arguments.batches, size=size, right=right)
            table.add(title, samples, here, {there: Target(LIMIT, here)} if judged else None)

        section("command `echo hi`", 12, lambda sandbox: partial(stdout, sandbox, "echo hi"), b"hi\n")
        section("command `echo hi` and a snapshot", 12, lambda sandbox: partial(sandbox.run_and_snapshot, "echo hi"))
        section("reset, 10 files, 6 commands, snapshot", 3, lambda sandbox: partial(episode, sandbox), work.expected())
        # No work but the way there and back, and the start of a process with Python: said, and no targets.
        section("listing", 12, lambda sandbox: sandbox.listing, judged=False)
        megabyte = b"x" * (1 << 20)
        section("put of 1 MB", 3, lambda sandbox: partial(sandbox.put, {"large": megabyte}), judged=False)
        section("read of 1 MB", 3, lambda sandbox: partial(sandbox.read, "large"), megabyte, judged=False)
        section("close, and another one", 1, lambda sandbox: partial(_again, sandbox), judged=False)
    table.summary()


def _again(sandbox: SupervisedSandbox) -> None:
    with sandbox.twin() as another:
        another.warm()


if __name__ == "__main__":
    main()
