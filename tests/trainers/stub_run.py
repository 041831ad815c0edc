"""A stand-in for `python -m trainers.grpo`: a run folder in hundredths of a second, from the standard library alone.

Its figures follow from condition, seed and step. It goes on from its own last line, and ends by a signal as a run does.
Campaigns of such runs are started here, too, in processes that can be killed.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

SETTINGS = {"fails": "--learning_rate=0.5", "slow": "--temperature=0.7"}
"""What makes a run fail at its first step, or take a second for each."""


def measured(passed: int, graded: int) -> dict[str, object]:
    """A held-out measurement as `Measurement.to_json` writes it."""
    none = dict.fromkeys(("assertion_rate", "mean_turns", "submitted"))
    return {
        **none, "n": graded, "tasks": graded, "graded": graded, "infrastructure": 0, "passed": passed,
        "pass_rate": passed / graded, "low": 0.1, "high": 0.9, "effective_n": graded, "pass_min": 0.0,
        "pass_max": 1.0, "sampling": "T=1", "reward": passed / graded, "stops": {},
        "families": {}, "kinds": {}, "outcomes": {}, "errors": {},
    }  # fmt: skip


def main(argv: list[str]) -> int:
    given = dict(arg[2:].split("=", 1) for arg in argv if "=" in arg)
    folder, seed, steps = Path(given["output_dir"]), int(given["seed"]), int(given["max_steps"])
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)  # held until the process ends
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("another process writes this run", file=sys.stderr)
        return 2
    (folder / "pid").write_text(str(os.getpid()))
    (folder / "gpu").write_text(os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
    (folder / "tasks.lock").write_text("the same tasks\n")
    if SETTINGS["fails"] in argv:
        print(f"Traceback\nValueError: no \x1b[31msuch thing, seed {seed}", file=sys.stderr)
        return 1
    metrics, condition = folder / "metrics.jsonl", folder.parent.name
    done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
    for step in range(done + 1, steps + 1):
        time.sleep(1.0 if SETTINGS["slow"] in argv else 0.02)
        with open(metrics, "a") as file:
            file.write(json.dumps({"step": step, "reward": seed + step / 10 + len(condition)}) + "\n")
    passed = 30 + seed % 3 + (20 - seed % 2) * (condition == "better")
    point = {"step": steps, "settings": {"sampled": measured(passed, 64)}, "best": True}
    (folder / "held_out.jsonl").write_text(json.dumps(point) + "\n")
    fresh = {"sampled": measured(passed - 10, 64)}
    confirmed = {"source": "fresh tasks", "step": steps, "before": fresh, "after": fresh, "why": ""}
    (folder / "confirmation.json").write_text(json.dumps(confirmed))
    end(folder, "finished", steps)
    return 0


def end(folder: Path, stopped: str, step: int) -> None:
    manifest = json.loads((folder.parents[1] / "manifest.json").read_text())
    place = f"{folder.parent.name}/{folder.name}"
    (sha,) = [run["config_sha256"] for run in manifest["runs"] if run["folder"] == place]
    summary = {"config_sha256": sha, "stopped": stopped, "wall_seconds": 60.0, "held_out": {"last_step": step}}
    (folder / "summary.json").write_text(json.dumps(summary))
    (folder / "report.html").write_text("<p>")


def campaign(file: str, ray: str | None = None) -> int:
    """`python -m trainers.campaign run` with this in the place of the trainer; on a Ray cluster where one is named."""
    from trainers.campaigns.cluster import RayCluster
    from trainers.campaigns.plan import load_campaign
    from trainers.campaigns.run import work

    machines = partial(RayCluster, ray) if ray else None
    try:
        manifest = work(load_campaign(file), lambda line: print(line, flush=True), ("-S", __file__), machines)
    except KeyboardInterrupt:
        return 130
    return 0 if all(run.over for run in manifest.runs.values()) else 1


if __name__ == "__main__":
    started = [arg for arg in sys.argv if arg.startswith("--output_dir=")]
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        end(Path(started[0].partition("=")[2]), "interrupted", 0)
        code = 130
    sys.stdout.flush()
    os._exit(code)
