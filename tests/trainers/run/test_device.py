"""How busy a GPU was and how much memory a process took, read without a GPU."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from trainers.run import callback
from trainers.run.callback import WARM_UP, RunCallback
from trainers.run.device import GpuBusy, PeakMemory
from trainers.run.summary import Clock, Steady, steady_words

LINES = ["2026/11/29 17:00:00.500, 10", "2026/11/29 17:00:01.500, 40", "2026/11/29 17:00:02.500, [N/A]",
         "2026/11/29 17:00:02.750, 60", "half a li", "2026/11/29 17:00:09.000, 90"]  # fmt: skip
BEGIN = time.mktime((2026, 11, 29, 17, 0, 0, 0, 0, -1))


def test_shares_belong_to_the_time_at_which_they_were_read():
    busy = GpuBusy([sys.executable, "-c", f"print({chr(10).join(LINES)!r})"])
    busy._process.wait()
    busy._thread.join()
    assert busy.take(BEGIN + 1, BEGIN + 3) == [0.4, 0.6]
    assert busy.take(BEGIN, BEGIN + 8) == [], "what was read before is over"
    assert busy.take(BEGIN + 8, BEGIN + 10) == [0.9]
    busy.close()
    busy.close()


def test_what_watches_ends_with_a_run_that_is_killed(tmp_path):
    """Also by SIGKILL, where nobody can close it: nobody reads its next line."""
    mark = tmp_path / "pid"
    loop = ["sh", "-c", f"echo $$ > {mark}; while :; do echo x; sleep 0.05; done"]
    code = f"import time\nfrom trainers.run.device import GpuBusy\nGpuBusy({loop!r})\ntime.sleep(600)"
    run = subprocess.Popen([sys.executable, "-c", code], cwd=Path(callback.__file__).parents[2])
    while not (mark.exists() and mark.read_text().strip()):
        time.sleep(0.05)
    run.kill()
    assert run.wait() == -signal.SIGKILL
    watcher = int(mark.read_text())
    for _ in range(600):
        try:
            os.kill(watcher, 0)
            state = Path(f"/proc/{watcher}/stat").read_text().rpartition(")")[2].split()[0]
        except (ProcessLookupError, FileNotFoundError):
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail("it goes on without its run")


def test_a_cpu_and_a_machine_without_nvidia_smi_have_no_watcher(monkeypatch):
    assert GpuBusy.of_this_process(use_cpu=True) is None
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert GpuBusy.of_this_process(use_cpu=False) is None


def test_the_steady_pace_leaves_out_the_first_steps_of_a_process(tmp_path):
    console = SimpleNamespace(warnings=[])
    watched = RunCallback(SimpleNamespace(), console, SimpleNamespace(), keep_trajectories=False)
    asked = []
    watched.gpu = SimpleNamespace(take=lambda begin, end: asked.append((begin, end)) or [0.5, 0.7])
    for _ in range(WARM_UP + 2):
        watched._before = Clock(**{**asdict(watched.clock), "steady": Steady()})
        watched.clock.model += 2.0
        watched.clock.sandbox += 1.0
        watched.clock.tokens += 600
        watched._count_steady(4.0)
    steady = watched.clock.steady
    assert (steady.steps, steady.seconds, steady.model, steady.tokens, steady.looks) == (2, 8.0, 4.0, 1200, 4)
    assert len(asked) == WARM_UP + 2, "what was read while it warmed up is taken and dropped"
    figures = steady.to_json()
    assert (figures["tokens_per_second_of_model"], figures["tokens_per_second"]) == (300, 150)
    assert figures["sandbox_share"] == 0.25 and figures["gpu_busy_share"] == pytest.approx(0.6)
    assert Clock.of(json.loads(json.dumps(asdict(watched.clock)))) == watched.clock
    assert Clock.of({"rollout": 1.0}).steady == Steady()


def test_what_nobody_looked_at_is_not_known_and_never_zero():
    figures = Steady(steps=3, seconds=6.0, model=3.0, tokens=300).to_json()
    assert figures["gpu_busy_share"] is None and "GPU busy not known" in steady_words(figures, gpu=True)
    assert "GPU" not in steady_words(figures, gpu=False)
    assert steady_words(Steady().to_json(), gpu=True) == steady_words({}, gpu=True) == ""


def test_the_peak_on_a_cpu_is_that_of_the_process():
    peak = PeakMemory.now(use_cpu=True, estimated=2**30)
    pages = int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
    assert peak.used == pytest.approx(pages, rel=0.05) and peak.reserved is None
    assert peak.words().endswith("(main memory, this process); estimated 1.00 GiB")
    assert "0.50 GiB in tensors, 1.00 GiB reserved (a GPU)" in PeakMemory("a GPU", 2**29, 2**30).words()
