"""Steps per second of ClawGym on a real sandbox, beside the floor: the same commands through the bare sandbox.

    python -m benchmarks.env                 # the first backend that works
    python -m benchmarks.env --sandbox landlock --episodes 40 --files 100

Both run in this process, on sandboxes of the same backend, and take turns episode by episode, so that a busy machine
weighs on both alike. The floor makes the calls that the environment makes (open, snapshot, and for each turn one
command with the snapshot after it) and nothing else. Our overhead is also taken directly: the time of `step` less the
time that passed inside the sandbox during it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from typing import Any

from envs.clawgym import ClawGymEnv
from sandboxes import open_sandbox
from sandboxes.sandbox import CommandResult, Snapshot
from tasks.task import Task

COMMANDS = (
    "ls -la",
    "cat docs/f0.txt | head -3",
    "mkdir -p out && cp docs/f0.txt out/a.txt",
    "sed -i 's/word/term/' out/a.txt",
    "grep -c term out/a.txt",
    "cat > out/b.md <<'EOF'\n# Title\n\n```\ncode\n```\nEOF",
    "false",
    "rm -r out",
)
"""One episode: reads, writes, a heredoc, a failure."""


class Timed:
    """A sandbox that adds up the time spent inside it."""

    def __init__(self, sandbox: Any) -> None:
        self._sandbox = sandbox
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    def run_and_snapshot(self, command: str, *, timeout: float | None = None) -> tuple[CommandResult, Snapshot]:
        start = time.perf_counter()
        try:
            return self._sandbox.run_and_snapshot(command, timeout=timeout)
        finally:
            self.seconds += time.perf_counter() - start


def make_task(files: int) -> Task:
    """A task with a workspace of `files` files of about 1 kB and the usual assertions."""
    text = "word " * 200 + "\n"
    return Task.model_validate(
        {
            "id": "bench",
            "intent": "Work.",
            "workspace": {"files": {f"docs/f{i}.txt": text for i in range(files)}},
            "budget": {"max_turns": len(COMMANDS) + 1},
            "assertions": [
                {"kind": "file_exists", "path": "out/a.txt"},
                {"kind": "file_contains", "path": "out/a.txt", "contains": "term"},
                {"kind": "file_matches", "path": "out/b.md", "pattern": "^# T"},
                {"kind": "file_unchanged", "path": "docs/f0.txt"},
                {"kind": "file_not_exists", "path": "trash"},
            ],
        }
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.env", description=__doc__.split("\n")[0])
    parser.add_argument("--sandbox", default="auto", help="backend (default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=25, help="episodes of 8 turns, each way (default: %(default)s)")
    parser.add_argument("--files", type=int, default=12, help="files in the workspace (default: %(default)s)")
    options = parser.parse_args(arguments)
    print(json.dumps(measure(options.sandbox, options.episodes, options.files), indent=2))


def measure(backend: str, episodes: int, files: int) -> dict[str, Any]:
    """Run both ways; times in milliseconds unless named otherwise."""
    task = make_task(files)
    replies = [f"```bash\n{command}\n```" for command in COMMANDS]
    inner, bare = open_sandbox(backend), open_sandbox(backend)
    timed = Timed(inner)
    env = ClawGymEnv([task], sandbox=timed, prompt_style="compact")  # type: ignore[arg-type]
    step_ms: list[float] = []
    ours_ms: list[float] = []
    bare_ms: list[float] = []
    reset_ms: list[float] = []
    open_ms: list[float] = []
    try:
        for episode in range(episodes + 1):  # the first one starts the sandboxes and is not counted
            start = time.perf_counter()
            env.reset(seed=episode)
            reset = time.perf_counter() - start
            steps, ours = [], []
            for reply in replies:
                timed.seconds, start = 0.0, time.perf_counter()
                env.step(reply)
                passed = time.perf_counter() - start
                steps.append(1e3 * passed)
                ours.append(1e3 * (passed - timed.seconds))
            start = time.perf_counter()
            bare.open(task.files())
            bare.snapshot()
            opened = time.perf_counter() - start
            floor = []
            for command in COMMANDS:
                start = time.perf_counter()
                bare.run_and_snapshot(command, timeout=10.0)
                floor.append(1e3 * (time.perf_counter() - start))
            if episode:
                step_ms += steps
                ours_ms += ours
                bare_ms += floor
                reset_ms.append(1e3 * reset)
                open_ms.append(1e3 * opened)
    finally:
        for opened_here in (env, inner, bare):
            opened_here.close()
    return {
        "backend": str(inner.backend),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "workspace_files": files,
        "turns": len(step_ms),
        "env_steps_per_second": round(1e3 * len(step_ms) / sum(step_ms), 1),
        "bare_commands_per_second": round(1e3 * len(bare_ms) / sum(bare_ms), 1),
        "env_step_ms": _spread(step_ms),
        "bare_command_ms": _spread(bare_ms),
        "our_overhead_ms_per_turn": _spread(ours_ms),
        "env_reset_ms": _spread(reset_ms),
        "bare_open_ms": _spread(open_ms),
    }


def _spread(values: Sequence[float]) -> dict[str, float]:
    cuts = statistics.quantiles(values, n=20)
    return {"median": round(statistics.median(values), 3), "p95": round(cuts[-1], 3)}


if __name__ == "__main__":
    main()
