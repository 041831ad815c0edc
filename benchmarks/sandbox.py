"""What a sandbox costs, beside the floor (bash without isolation) and beside the usual ways to use Docker, in one run.

    python -m benchmarks.sandbox [--only commands episodes starts files] [--backends bubblewrap docker]
                                 [--windows 6] [--seconds 0.5] [--json FILE]

commands    one command: back to back, and with the pause of a policy that thinks, in which the next bash starts
episodes    reset, 10 files, 6 commands (10 processes), grade by a snapshot: per second, with 1, 2 and 8 threads
starts      32 sandboxes started in parallel
files       reset and put, snapshot, a command with the snapshot after it

All contenders of a section take turns within it, and every result is checked. The engine for Docker is found as the
docker backend finds it (DOCKER_HOST and so on). Leave the machine alone while it runs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path

from benchmarks.peers import bare, containers, work
from benchmarks.peers.measure import Action, Sample, Table, Target, latencies, rates, timed
from sandboxes import (
    Backend,
    EntryKind,
    Limits,
    SandboxPool,
    SupervisedSandbox,
    open_sandbox,
    probe,
)
from sandboxes.docker.engines import Engine, find_engines
from sandboxes.docker.launcher import IMAGE, IMAGE_VARIABLE
from sandboxes.inside.variables import environment

SECTIONS = ("commands", "episodes", "starts", "files")
BACKENDS = (Backend.BUBBLEWRAP, Backend.LANDLOCK, Backend.DOCKER)
THREADS = (1, 2, 8)
STARTED = 32
LIMITS = Limits(command_seconds=60)
PAUSE = (0.005, 0.020)
FLOOR = "floor: bash on two descriptors"
SPAWN = "floor: fork and exec of bash"
NAIVE = "docker-py, naive cycle"
FRESH = "docker, a new one each"
LINES = "docker exec per command"


class Bench:
    """Who takes part, and where the floor works."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.windows, self.seconds = arguments.windows, arguments.seconds
        self.folder = folder
        self.table = Table()
        self.backends = []
        for name in arguments.backends:
            found = probe(name)
            if found.ok:
                self.backends.append(found.backend)
            else:
                self.table.skip(name, found.reason)
        self.engine: Engine | None = None
        self.image = os.environ.get(IMAGE_VARIABLE) or IMAGE
        if Backend.DOCKER in self.backends:
            self.engine = find_engines()[0]
            if not containers.has_command_line():
                self.table.skip("docker exec, docker run", "the docker program is not installed")
        elif Backend.DOCKER in arguments.backends:
            self.table.skip("the docker peers", "the docker backend does not work here")
        self._folders = 0

    def new_folder(self) -> Path:
        """A path in the memory file system that nobody has used."""
        self._folders += 1
        return self.folder / f"floor{self._folders}"

    # --- sections ---------------------------------------------------------------------------------------------------

    def commands(self) -> None:
        """One command."""
        with ExitStack() as stack:
            root = self.new_folder()
            root.mkdir()
            bare.refill(root)
            stack.callback(os.chdir, os.getcwd())
            os.chdir(root)
            env = environment(str(root), "/tmp")
            null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
            stack.callback(os.close, null)
            run: dict[str, Callable[[str], bytes]] = {SPAWN: lambda command: bare.spawn_bash(command, env, null)}
            for backend in self.backends:
                sandbox = stack.enter_context(self._sandbox(backend))
                sandbox.open(work.FILES)
                run[str(backend)] = partial(stdout, sandbox)
            slow = []
            if self.engine is not None:
                container = stack.enter_context(containers.Container(self.engine, self.image))
                container.put(containers.archive())
                run["docker-py, exec_run"] = container.run
                slow.append("docker-py, exec_run")
                if containers.has_command_line():
                    line = stack.enter_context(containers.CommandLine(self.engine, self.image, containers.archive()))
                    line.run("mkdir data")
                    run["docker exec"] = line.run
                    slow.append("docker exec")
            for command, right in (("echo hi", b"hi\n"), ("ls | wc -l", b"1\n")):
                for pause, how, limit in ((None, "back to back", 2.2), (PAUSE, "5 to 20 ms after the last", 1.5)):
                    actions: dict[str, Action] = {name: partial(call, command) for name, call in run.items()}
                    samples = latencies(actions, batches=2 * self.windows, size=12, slow=slow, pause=pause, right=right)
                    targets = {str(name): Target(limit, SPAWN) for name in (Backend.BUBBLEWRAP, Backend.DOCKER)}
                    self.table.add(f"command `{command}`, {how}", samples, SPAWN, targets)

    def episodes(self) -> None:
        """Whole episodes per second."""
        with ExitStack() as stack:
            actions: dict[str, list[Action]] = {FLOOR: [], "subprocess.run per command": []}
            for _ in range(max(THREADS)):
                actions[FLOOR].append(stack.enter_context(bare.PersistentBash(self.new_folder())).episode)
                actions["subprocess.run per command"].append(bare.Plain(self.new_folder()).episode)
            for backend in self.backends:
                kept = stack.enter_context(self._sandboxes(backend, max(THREADS)))
                actions[f"{backend}, reused"] = [partial(episode, sandbox) for sandbox in kept]
            if self.engine is not None:
                tar = containers.archive()
                actions[FRESH] = [partial(self._fresh_episode, Backend.DOCKER)] * max(THREADS)
                actions[NAIVE] = [partial(containers.naive_episode, self.engine, self.image, tar)] * max(THREADS)
                if containers.has_command_line():
                    lines = [
                        stack.enter_context(containers.CommandLine(self.engine, self.image, tar))
                        for _ in range(max(THREADS))
                    ]
                    actions[LINES] = [line.episode for line in lines]
            for threads in THREADS:
                section = f"episodes, {threads} thread{'s' * (threads > 1)}"
                now = {name: every[:threads] for name, every in actions.items()}
                samples = rates(
                    now, windows=self.windows, seconds=self.seconds, slow=(FRESH, NAIVE, LINES), check=work.check
                )
                warm = (f"{Backend.BUBBLEWRAP}, reused", f"{Backend.DOCKER}, reused")
                self.table.add(section, samples, FLOOR, {name: Target(0.5, FLOOR) for name in warm})
                if warm[1] in samples:
                    self.table.compare(section, warm[1], samples, Target(15, NAIVE))

    def starts(self) -> None:
        """Many sandboxes at once."""
        for backend in self.backends:
            actions: dict[str, Action] = {str(backend): partial(self._start_pool, backend)}
            base = ""
            if backend is Backend.BUBBLEWRAP:
                base = "bwrap true"
                actions[base] = partial(_in_parallel, _bwrap_true)
            elif backend is Backend.DOCKER and self.engine is not None and containers.has_command_line():
                base = "docker run --rm true"
                actions[base] = partial(_in_parallel, partial(containers.run_true, self.engine, self.image))
            samples = {name: Sample() for name in actions}
            for _ in range(2 if backend is Backend.DOCKER else max(3, self.windows // 2)):
                for name, action in actions.items():
                    milliseconds = action()
                    samples[name].times.append(milliseconds / STARTED)
                    samples[name].rates.append(STARTED * 1000 / milliseconds)
            targets = {str(Backend.BUBBLEWRAP): Target(50)}
            self.table.add(f"{STARTED} started in parallel; ms for each", samples, base, targets)

    def files(self) -> None:
        """The requests around the commands."""
        with ExitStack() as stack:
            root = self.new_folder()
            root.mkdir()
            opened: dict[str, Action] = {"floor: a folder in memory": partial(bare.refill, root)}
            read: dict[str, Action] = {"floor: a folder in memory": partial(bare.contents, root)}
            both: dict[str, Action] = {}
            slow = []
            for backend in self.backends:
                sandbox = stack.enter_context(self._sandbox(backend))
                name = str(backend)
                opened[name] = partial(sandbox.open, work.FILES)
                read[name] = sandbox.snapshot
                both[f"{name}, run_and_snapshot"] = partial(sandbox.run_and_snapshot, "echo hi")
                both[f"{name}, run then snapshot"] = partial(_run_then_snapshot, sandbox)
            if self.engine is not None:
                container = stack.enter_context(containers.Container(self.engine, self.image))
                slow.append("docker-py, archives")
                opened[slow[0]] = partial(container.put, containers.archive())
                read[slow[0]] = container.get
            sections = (
                ("reset and put of 10 files", opened),
                ("snapshot of 10 files", read),
                ("echo hi, snapshot", both),
            )
            for section, actions in sections:
                if actions:
                    samples = latencies(actions, batches=self.windows, size=12, slow=slow)
                    self.table.add(section, samples, next(iter(actions)) if actions is not both else "")

    # --- contenders -------------------------------------------------------------------------------------------------

    @contextmanager
    def _sandbox(self, backend: Backend) -> Iterator[SupervisedSandbox]:
        with open_sandbox(backend, limits=LIMITS) as sandbox:
            sandbox.warm()
            yield sandbox

    @contextmanager
    def _sandboxes(self, backend: Backend, number: int) -> Iterator[Sequence[SupervisedSandbox]]:
        with SandboxPool(backend, size=number, limits=LIMITS, episodes=1 << 30) as pool:
            yield [pool.acquire() for _ in range(number)]

    def _fresh_episode(self, backend: Backend) -> work.Done:
        with open_sandbox(backend, limits=LIMITS) as sandbox:
            return episode(sandbox)

    def _start_pool(self, backend: Backend) -> float:
        begin = time.perf_counter()
        with SandboxPool(backend, size=STARTED, limits=LIMITS) as pool:
            for _ in range(STARTED):
                pool.acquire(timeout=300)
            return (time.perf_counter() - begin) * 1000


def stdout(sandbox: SupervisedSandbox, command: str) -> bytes:
    return sandbox.run(command).stdout


def _run_then_snapshot(sandbox: SupervisedSandbox) -> None:
    sandbox.run("echo hi")
    sandbox.snapshot()


def episode(sandbox: SupervisedSandbox) -> work.Done:
    sandbox.open(work.FILES)
    said = tuple(sandbox.run(command).stdout for command in work.COMMANDS)
    snapshot = sandbox.snapshot()
    files = {path: entry.content or b"" for path, entry in snapshot.items() if entry.kind is EntryKind.FILE}
    return work.Done(said, files)


def _in_parallel(action: Action) -> float:
    """Milliseconds until `STARTED` calls are done, as many at a time as a pool of sandboxes starts."""
    with ThreadPoolExecutor(max(8, 2 * (os.cpu_count() or 1))) as workers:
        return timed(lambda: [future.result() for future in [workers.submit(action) for _ in range(STARTED)]])[0]


def _bwrap_true() -> None:
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev"]
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run([*words, "true"], stdin=subprocess.DEVNULL, check=True, cwd="/", **other)  # type: ignore[call-overload]


def conditions(bench: Bench) -> dict[str, object]:
    """What the numbers depend on."""
    facts: dict[str, object] = {
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "bash": _version(["bash", "--version"]),
        "bubblewrap": _version(["bwrap", "--version"]),
        "floor in": str(bench.folder.parent),
        "engine": f"{bench.engine.kind} {bench.engine.version}, image {bench.image}" if bench.engine else "none",
    }
    return facts


def _version(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0]
    except FileNotFoundError:
        return "not installed"


def memory_folder() -> str:
    """A memory file system that we may write to; else the folder for temporary files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else tempfile.gettempdir()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--backends", nargs="+", choices=[str(name) for name in BACKENDS], default=BACKENDS)
    parser.add_argument("--windows", type=int, default=6, help="turns of each contender; more of them, calmer numbers")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn where rates are counted")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=memory_folder()) as folder:
        bench = Bench(arguments, Path(folder))
        facts = conditions(bench)
        print("\n".join(f"{name}: {value}" for name, value in facts.items()))
        if os.getloadavg()[0] > 0.5 * (os.cpu_count() or 1):
            print("the machine is busy: read only the ratios, and those with care")
        for section in arguments.only:
            getattr(bench, section)()
    bench.table.summary()
    print(f"{time.perf_counter() - begin:.0f} s, load at the end {os.getloadavg()[0]:.2f}")
    if arguments.json is not None:
        rows = [asdict(row) for row in bench.table.rows]
        record = {"conditions": facts, "skipped": bench.table.skipped, "rows": rows}
        arguments.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
