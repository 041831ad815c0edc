"""Two processes are one: equal episodes, advantages, gradients and figures, one run folder, one end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.credited import read_advantages
from agents.policy import Sampling
from agents.rollout import Job, RolloutResult
from agents.rollout.progress import Timing
from agents.t2po import T2POConfig
from agents.trajectory import Trajectory
from sandboxes import probe
from tests.shared_data import REPOSITORY
from tests.trainers import two_processes
from tests.trainers.runs import start_together
from tests.trainers.toy import make_config, make_task
from trainers import grpo, processes
from trainers.errors import ConfigError
from trainers.gigpo import GiGPOTrainer
from trainers.settings.checks import check_processes

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("fork server"),  # it loads the libraries once in each worker that needs it
]
needs_sandbox = pytest.mark.skipif(
    not any(probe(name).ok for name in ("bubblewrap", "landlock")), reason="no sandbox backend works on this machine"
)
ROWS = 12


def toy(
    folder: Path,
    count: int,
    *,
    fail: bool = False,
    keep: bool = False,
    budget: int = 0,
    quiet: bool = False,
    shaped: int = 0,
) -> list[int]:
    folder.mkdir()
    args = (folder, ROWS // count, fail, keep, budget, quiet, shaped)
    running = start_together(count, folder / "log", two_processes.train, *args)
    for process in running:
        process.join(240)
    return [process.exitcode for process in running]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keep", "budget", "shaped"),
    [(False, 0, 0), (True, 0, 0), (False, 150, 0), (True, 60, 0), (False, 150, 2), (False, 150, 1)],
    ids=["append-only", "older observations as lines", "by tokens", "older observations as lines, by tokens",
         "in the shapes of graphs", "one of them in the shapes of graphs"],
)  # fmt: skip
def test_two_processes_are_one(tmp_path, keep, budget, shaped):
    """Three groups of four on two processes of six rows: one group lies on both."""
    assert toy(tmp_path / "one", 1, keep=keep) == [0]
    two = toy(tmp_path / "two", 2, keep=keep, budget=budget, shaped=shaped)
    assert two == [0, 0], (tmp_path / "two/log.1").read_text()
    alone, first, second = (torch.load(tmp_path / name) for name in ("one/0.pt", "two/0.pt", "two/1.pt"))
    for whole, here, there in zip(alone["steps"], first["steps"], second["steps"], strict=True):
        assert (len(here["advantages"]), len(there["advantages"])) == (6, 6)
        together = {**here["advantages"], **there["advantages"]}
        assert together == whole["advantages"]  # the same episodes, credited the same, to the last bit
        assert torch.equal(here["gradient"], there["gradient"])
        assert (here["gradient"] - whole["gradient"]).norm() < 1e-5 * whole["gradient"].norm()
    assert torch.equal(first["weights"], second["weights"])
    assert (first["weights"] - alone["weights"]).norm() < 1e-5 * alone["weights"].norm()
    assert first["held_out"] == second["held_out"] == alone["held_out"]
    for one, two in zip(alone["logged"], first["logged"], strict=True):
        ours = [
            name
            for name in one
            if name.startswith(("env/", "gigpo/", "mask/", "t2po/", "sampling/", "eval_", "reward"))
        ]
        assert {name: two[name] for name in ours} == pytest.approx(
            {name: one[name] for name in ours}, rel=1e-6, abs=1e-5
        )  # `sampling/logp_difference` is rounding itself
    saved = sorted(path.name for path in (tmp_path / "two/run/checkpoint-2").glob("*_1.*"))
    assert saved == ["rng_state_1.pth", "turngym_process_1.json"]


@pytest.mark.slow
def test_a_process_without_any_advantage_waits_for_the_other(tmp_path):
    """By tokens it has no row to learn from in the first step: it passes one, and all take the same step."""
    assert toy(tmp_path / "two", 2, budget=150, quiet=True) == [0, 0], (tmp_path / "two/log.1").read_text()
    first, second = (torch.load(tmp_path / "two" / name) for name in ("0.pt", "1.pt"))
    lines = [next(line for line in part["logged"] if "loss" in line) for part in (first, second)]
    assert [line["passes/rows_left_out"] for line in lines] == [0.0, 5.0]
    assert torch.equal(first["steps"][0]["gradient"], second["steps"][0]["gradient"])
    assert first["steps"][0]["gradient"].norm() > 0 and torch.equal(first["weights"], second["weights"])


@pytest.mark.slow
def test_a_process_that_breaks_ends_all(tmp_path):
    codes = toy(tmp_path / "two", 2, fail=True)
    assert None not in codes and all(codes)
    assert "planted: this process breaks" in (tmp_path / "two/log.1").read_text()


SMALL = [
    "--use_cpu", "true", "--tasks", "generated:quickstart?n=24&seed=5", "--held_out", "generated:quickstart?n=5&seed=6",
    "--held_out_greedy", "false", "--max_steps", "2", "--eval_steps", "2", "--save_steps", "1", "--slots", "8",
]  # fmt: skip


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@needs_sandbox
@pytest.mark.slow
def test_two_processes_leave_one_run_folder(tmp_path):
    """The folder of two processes is that of one, but for times; one alone must not go on with it."""
    for count in (1, 2):
        folder = tmp_path / f"run{count}"
        rows = ["--per_device_train_batch_size", str(8 // count), "--output_dir", str(folder)]
        running = start_together(count, tmp_path / f"log{count}", grpo.main, [*SMALL, *rows])
        for process in running:
            process.join(240)
        assert [process.exitcode for process in running] == [0] * count, (tmp_path / f"log{count}.0").read_text()
    one, two = tmp_path / "run1", tmp_path / "run2"
    assert sorted(p.name for p in one.iterdir()) == sorted(p.name for p in two.iterdir())
    assert "step" not in (tmp_path / "log2.1").read_text(), "the second process speaks"
    assert json.loads((two / "environment.json").read_text())["processes"] == 2
    held_out = [[(line["step"], line["settings"]["sampled"]["outcomes"]) for line in lines(f / "held_out.jsonl")]
                for f in (one, two)]  # fmt: skip
    assert held_out[0] == held_out[1] and [step for step, _ in held_out[0]] == [0, 2]
    played = [[(e["task_id"], e["reward"], [t["ids"] for t in e["turns"]]) for e in lines(f / "trajectories" / name)]
              for name in ("step_000001.jsonl", "step_000002.jsonl") for f in (one, two)]  # fmt: skip
    assert len(played[0]) == 8 and played[0] == played[1] and played[2] == played[3]
    credited = [read_advantages(f / "advantages" / "step_000001.json") for f in (one, two)]
    assert {(e["task_id"], e["attempt"], e["seed"]) for e in lines(two / "trajectories/step_000001.jsonl")} == set(
        credited[0]
    )
    assert credited[0] == credited[1], "of the episodes of both processes"

    code, said = alone([*SMALL, "--output_dir", str(two), "--resume", "--max_steps", "3"], tmp_path / "alone")
    assert code == 2 and "2 processes wrote it, now there are 1" in said

    # A guard of the main process ends both, here before a step or a measurement.
    stop = ["--resume", "--max_steps", "4", "--eval_strategy", "no", "--guards", "ship_by_held_out=stop"]
    again = start_together(2, tmp_path / "guard", grpo.main, [*SMALL, *rows, *stop])
    for process in again:
        process.join(240)
    assert [process.exitcode for process in again] == [3, 0], (tmp_path / "guard.1").read_text()
    assert json.loads((two / "summary.json").read_text())["stopped"] == "guard"
    assert [line["step"] for line in lines(two / "held_out.jsonl")] == [0, 2]
    assert [line["step"] for line in lines(two / "metrics.jsonl") if "reward" in line] == [1, 2]


def alone(args: list[str], log: Path) -> tuple[int, str]:
    (process,) = start_together(1, log, grpo.main, args)
    process.join(240)
    return process.exitcode, Path(f"{log}.0").read_text()


@needs_sandbox
@pytest.mark.whole
def test_under_a_launcher(tmp_path):
    """As people start it; then all of it ends with one of its processes, and goes on where it was."""
    folder = tmp_path / "run"
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2",
        "-m", "trainers.grpo", *SMALL, "--per_device_train_batch_size", "4", "--output_dir", str(folder), "--resume",
        "--max_steps", "4",
    ]  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for _ in range(1200):
        if (folder / "checkpoint-1").is_dir() or first.poll() is not None:
            break
        time.sleep(0.1)
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    os.kill(int(children[1]), signal.SIGKILL)
    output, _ = first.communicate(timeout=120)
    assert first.returncode != 0
    assert not any(Path(f"/proc/{child}").exists() for child in children), output
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line["step"] for line in lines(folder / "metrics.jsonl") if "reward" in line] == [1, 2, 3, 4]
    assert [line["step"] for line in lines(folder / "held_out.jsonl")] == [0, 2, 4]


# -- the parts, with the other processes played -------------------------------------------------------------------


@pytest.fixture
def second_of_two(monkeypatch):
    """This process is the second; `others` holds what the first one gives, in the order of the exchanges."""
    others: list[Any] = []
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(processes, "gather_object", lambda mine: [*others.pop(0), *mine])
    monkeypatch.setattr(processes, "broadcast_object_list", lambda box: box.__setitem__(0, others.pop(0)))

    class State:
        num_processes, process_index = 2, 1

    monkeypatch.setattr(processes, "PartialState", State)
    return others


def result(ids: list[str], wall: float = 1.0) -> RolloutResult:
    return RolloutResult(
        [Trajectory(task_id=i, task_hash="", attempt=0, seed=0, prompt_ids=[1]) for i in ids],
        Timing(wall, wall / 2, 0.0, len(ids), 3),
        1,
    )


def test_held_out_tasks_are_shared_out_and_come_back_in_order(second_of_two):
    jobs = [Job(make_task(i), 0, i) for i in range(5)]
    second_of_two.append([result(["toy-0", "toy-2", "toy-4"], wall=2.0)])
    got = processes.play_shared(lambda mine: result([job.task.id for job in mine]), jobs, Sampling(0.0, 8))
    assert [episode.task_id for episode in got.trajectories] == [job.task.id for job in jobs]
    assert got.timing == Timing(2.0, 1.0, 0.0, 5, 6) and got.retries == 2 and got.duplicates is None


def test_figures_are_weighed_by_what_they_count(second_of_two):
    second_of_two += [[(30.0, {"a": 1.0, "b": 0.0})], [(0.0, {"a": 1.0})]]
    assert processes.mean_figures({"a": 0.0}, 10.0) == {"a": 0.75, "b": 0.0}
    assert processes.mean_figures({"a": 1.0}, 0.0) == {"a": 1.0}


def test_counts_are_summed_and_shares_averaged(second_of_two):
    here = {"rollouts/fate/produced": 8.0, "rollouts/dropped_groups": 1.0, "rollouts/attempts_per_task": 4.0}
    there = {"rollouts/fate/produced": 12.0, "rollouts/dropped_groups": 0.0}
    second_of_two += [[there], [(1.0, {"rollouts/attempts_per_task": 6.0})]]
    assert processes.over_processes(here) == {
        "rollouts/fate/produced": 20.0,
        "rollouts/dropped_groups": 1.0,
        "rollouts/attempts_per_task": 5.0,
    }
    second_of_two += [[{"mask/trained_tokens": 30.0}]]
    assert processes.sum_figures({"mask/trained_tokens": 12.0}) == {"mask/trained_tokens": 42.0}


def test_means_go_out_in_messages_of_one_type(second_of_two, monkeypatch):
    """The other process has tensors of zeros."""
    sent = []
    monkeypatch.setattr(processes, "MESSAGE", 8)
    monkeypatch.setattr(processes, "reduce", lambda flat, how: sent.append((flat.dtype, len(flat))) or flat / 2)
    tensors = [torch.ones(2, 3), torch.ones(4).T, torch.ones(5), torch.ones(1, dtype=torch.float64), torch.ones(1)]
    processes.average(tensors)
    assert all((tensor == 0.5).all() for tensor in tensors)
    assert sent == [(torch.float32, 10), (torch.float32, 5), (torch.float64, 1), (torch.float32, 1)]


def test_no_process_ends_before_the_main_one_has_written_its_summary(second_of_two, monkeypatch):
    done = []
    for name in ("wait_for_everyone", "destroy_process_group"):
        monkeypatch.setattr(processes.PartialState, name, lambda self, name=name: done.append(name), raising=False)
    processes.close_group()
    assert done == ["wait_for_everyone", "destroy_process_group"]


def test_what_one_process_refuses_starts_nowhere(second_of_two):
    second_of_two += [[], [(0, "no sandbox works")], []]
    assert processes.together(lambda: 7, (ConfigError,)) == 7
    with pytest.raises(processes.OtherProcessFailed, match="process 0: no sandbox works"):
        processes.together(lambda: 7, (ConfigError,))

    def refuse() -> None:
        raise ConfigError("slots")

    with pytest.raises(ConfigError, match="slots"):
        processes.together(refuse, (ConfigError,))
    assert not processes.is_main()


def test_what_the_guards_of_the_main_process_end_ends_everywhere(second_of_two):
    class Here:
        callback_handler = type("Handler", (), {"callbacks": []})  # only the main process has guards

    second_of_two += [True, False]
    assert GiGPOTrainer.ended_by_guard(Here()) and not GiGPOTrainer.ended_by_guard(Here())


def test_calibrating_on_several_processes_is_refused(tmp_path):
    class Two:
        world_size = 2
        overlap = None
        gradient_cosine_steps = 0

    with pytest.raises(ConfigError, match="turn_resample_eta"):
        check_processes(Two(), T2POConfig(turn_resample=True))
    check_processes(Two(), T2POConfig(turn_resample=True, turn_resample_eta=0.1))
    check_processes(make_config(tmp_path), T2POConfig(turn_resample=True))
