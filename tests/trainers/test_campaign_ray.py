"""Campaigns on a Ray cluster: the same folder as without, whatever is killed; what is refused."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clusters import Nodes
from tests.trainers import stub_run
from tests.trainers.runs import start_together
from tests.trainers.test_campaign import BETTER, PLAIN, SLOW, content, done, write  # noqa: F401
from trainers.campaign import main
from trainers.campaigns.cluster import _look
from trainers.campaigns.plan import Manifest, load_campaign
from trainers.run.folder import lock_folder
from trainers.run.summary import Stopped

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(300),
    pytest.mark.xdist_group("ray"),
    pytest.mark.ray,
]


def wait(until: Callable[[], Any], log: Path | None = None) -> None:
    end = time.monotonic() + 120
    while not until():
        assert time.monotonic() < end, log and log.read_text()
        time.sleep(0.05)


def metrics(folder: Path) -> int:
    """Steps of the slow run so far."""
    path = folder / "plain/seed_0/metrics.jsonl"
    return len(path.read_text().splitlines()) if path.is_file() else 0


def test_whatever_is_killed_the_same_command_ends_with_the_same_folder(write, tmp_path, nodes: Nodes):  # noqa: F811
    file, log = write(PLAIN + SLOW + BETTER, seeds=[0], steps=12), tmp_path / "log"
    said = Path(f"{log}.0")
    folder = load_campaign(str(file)).folder
    done(file)
    whole = content(folder)
    shutil.rmtree(folder)
    nodes.only()

    def run() -> int | None:
        """The process of the slow run; `None` while it writes that down."""
        text = (folder / "plain/seed_0/pid").read_text()
        return int(text) if text else None

    def start() -> Any:
        (process,) = start_together(1, log, stub_run.campaign, str(file), nodes.address)
        return process

    campaign = start()
    wait(lambda: metrics(folder), said)
    os.kill(campaign.pid, signal.SIGKILL)
    campaign.join()

    nodes.add()
    before = metrics(folder)
    campaign = start()
    wait(lambda: metrics(folder) > before, said)
    nodes.kill(nodes.of(run()))
    first = run()
    wait(lambda: run() not in (None, first), said)
    os.kill(run(), signal.SIGKILL)
    campaign.join()
    assert campaign.exitcode == 1, said.read_text()
    assert "plain seed 0: failed" in said.read_text() and "ended by SIGKILL" in said.read_text()
    assert Manifest.read(folder).runs["plain", 0].ended is Stopped.FAILED

    campaign = start()
    campaign.join()
    assert campaign.exitcode == 0, said.read_text()
    assert content(folder) == whole


def test_ctrl_c_ends_the_runs_as_their_own_does(write, tmp_path, nodes: Nodes):  # noqa: F811
    nodes.only()
    file = write(PLAIN + SLOW, seeds=[0], steps=60)
    folder = load_campaign(str(file)).folder
    (campaign,) = start_together(1, tmp_path / "log", stub_run.campaign, str(file), nodes.address)
    wait(lambda: metrics(folder))
    os.kill(campaign.pid, signal.SIGINT)
    campaign.join()
    assert campaign.exitcode == 130
    assert Manifest.read(folder).runs["plain", 0].ended is Stopped.INTERRUPTED


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            "num_cpus = 500",
            "ray: no node of the cluster is large enough for a run, which takes 500 CPU (the nodes have:",
        ),
        ("num_gpus = 1", "which takes 2 CPU, 1 GPU"),
    ],
)
def test_a_run_that_fits_on_no_node_is_refused(more, message, write, nodes: Nodes, capsys):  # noqa: F811
    nodes.only()
    file = write(PLAIN + f"\n[ray]\n{more}\n")
    assert main(["run", str(file), "--ray", nodes.address]) == 2
    assert message in capsys.readouterr().err


def test_without_a_cluster_it_is_said_how_to_get_one(write, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setitem(sys.modules, "ray", None)
    file = write(PLAIN)
    assert main(["run", str(file), "--ray", "auto"]) == 2
    said = capsys.readouterr().err
    assert said == ('trainers.campaign: --ray auto: Ray is not installed; remedy: pip install "turngym[ray]"\n')


def test_a_node_that_does_not_share_the_folders_says_so(tmp_path):
    folder = tmp_path / "out"
    (missing,) = _look(str(folder), str(tmp_path))
    assert f"does not see that {folder} is in use: put `output_dir` on a file system that all nodes share" in missing
    folder.mkdir()
    os.close(lock_folder(folder))  # there, and nobody's: a folder of this node alone looks like that
    assert len(_look(str(folder), str(tmp_path / "elsewhere"))) == 2
    pid = os.fork()
    if not pid:
        lock_folder(folder)
        signal.pause()
        os._exit(0)
    try:
        wait(lambda: not _look(str(folder), str(tmp_path)))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@pytest.mark.parametrize("wrong", ["num_cpus = 0", "num_gpus = -1", "retries = -1", "cores = 2"])
def test_what_a_run_takes_of_a_node_is_looked_at(wrong, write, capsys):  # noqa: F811
    assert main(["plan", str(write(PLAIN + f"\n[ray]\n{wrong}\n"))]) == 2
    assert f"ray.{wrong.split()[0]}" in capsys.readouterr().err
