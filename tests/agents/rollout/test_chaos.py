"""Episodes while sandboxes are killed, environments raise, graders die and everything is slow.

100 episodes in CI, 1,000 with `-m whole`; each backend in both modes then, and in one of them in CI. What must hold:
the call returns, a failed episode has no reward, the others are byte for byte those of an undisturbed run, and no
process, file or thread stays.
"""

from __future__ import annotations

import os
import random
import resource
import secrets
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents.policies.scripted import OraclePolicy
from agents.policy import Sampling
from agents.rollout import RolloutEngine, RolloutMode, RolloutResult
from agents.rollout.episode import Job
from agents.trajectory import Trajectory
from envs.clawgym import ClawGymEnv
from sandboxes import Backend, SandboxPool, SandboxUnavailable, open_sandbox
from sandboxes.sandbox import SandboxError
from tasks.assertions.grade import GradeError
from tasks.sources import load_tasks
from tests.agents.rollout.test_engine import differing
from tests.sandboxes.leftovers import Watched
from tests.sandboxes.test_soak import kill_process

pytestmark = [pytest.mark.xdist_group("sandbox stress"), pytest.mark.slow]
SAMPLING = Sampling(0.0, 512)
SLOTS, AHEAD, WORKERS = 8, 4, 4
SETTLE = 30.0


class Chaotic(ClawGymEnv):
    """Slow by luck; now and then its machinery or its grader fails, or a command waits, or hangs until its time is up.

    What goes wrong is counted out: by luck, which the order of the threads decides, one run in fifty had no failure.
    """

    dice = random.Random()
    lock = threading.Lock()
    calls = exchanges = raised = hung = 0

    @classmethod
    def begin(cls, seed: int) -> None:
        """Forget an earlier run."""
        cls.dice = random.Random(seed)
        cls.calls = cls.exchanges = cls.raised = cls.hung = 0

    def _luck(self, error: Callable[[str], Exception]) -> None:
        with Chaotic.lock:
            nap = Chaotic.dice.uniform(0, 0.01)
            Chaotic.calls += 1
            failing = Chaotic.calls % 79 == 0  # no multiple of an episode's three calls, so that each kind has its turn
            Chaotic.raised += failing
        time.sleep(nap)
        if failing:
            raise error("on purpose")

    def _lay(self, task: Any) -> str:
        self._luck(SandboxError)
        return super()._lay(task)

    def _exchange(self, reply: str) -> Any:
        self._luck(SandboxError)
        with Chaotic.lock:
            Chaotic.exchanges += 1
            turn = Chaotic.exchanges % 20
            Chaotic.hung += turn == 0
        assert self._sandbox is not None
        if turn == 0:
            self._sandbox.run("sleep 600", timeout=0.2)
        elif turn == 10:
            self._sandbox.run("sleep 0.4", timeout=60)
        return super()._exchange(reply)

    def _outcome(self) -> Any:
        self._luck(GradeError)
        return super()._outcome()


class Killer(threading.Thread):
    """Kills a process of a sandbox now and then: what confines it, or its supervisor."""

    def __init__(self, watched: Watched, backend: Backend, seed: int) -> None:
        super().__init__(name="soak-killer")
        self.kills = 0
        self.error: BaseException | None = None
        self.over = threading.Event()
        self._watched, self._kill, self._dice = watched, kill_process(watched, backend), random.Random(seed)

    def run(self) -> None:
        try:
            while not self.over.wait(self._dice.uniform(0.05, 0.5)):
                self._watched.look()
                self.kills += self._kill(self._dice)
        except BaseException as error:  # read by the test
            self.error = error


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> RolloutMode:
    return RolloutMode(request.param)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> Backend:
    try:
        open_sandbox(request.param).close()
    except SandboxUnavailable as error:
        pytest.skip(f"{request.param}: {error}")
    return Backend(request.param)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """What is there before; temporary files go to a folder of the test, which other users may enter."""
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    folder.chmod(0o711)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield Watched(marker=f"chaos-{secrets.token_hex(6)}", segment=1_000_019 + os.getpid(), folder=folder)
    shutil.rmtree(folder)


def play(
    backend: Backend, mode: RolloutMode, kind: type[ClawGymEnv], jobs: list[Job]
) -> tuple[RolloutResult, list[Trajectory], int]:
    """Play in a pool; returns the result, the episodes in the order they ended, and how many sandboxes were lost."""
    seen: list[Trajectory] = []
    with SandboxPool(backend, SLOTS + AHEAD) as sandboxes:

        def make() -> ClawGymEnv:
            return kind((), sandbox=sandboxes, prompt_style="compact")

        with RolloutEngine(OraclePolicy(), make, slots=SLOTS, workers=WORKERS, ahead=AHEAD, mode=mode) as engine:
            engine.prepare(jobs)
            result = engine.run(jobs, SAMPLING, on_episode=seen.append)
        return result, seen, sandboxes.lost


def memory() -> int:
    """Resident bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("backend", "mode", "episodes"),
    [
        ("bubblewrap", "asynchronous", 100),
        ("landlock", "lockstep", 100),
        *(
            pytest.param(backend, mode, 1000, marks=pytest.mark.whole)
            for backend in ("bubblewrap", "landlock")
            for mode in ("asynchronous", "lockstep")
        ),
    ],
    indirect=["backend", "mode"],
)
def test_failures_are_counted_and_change_nothing_else(
    backend: Backend, mode: RolloutMode, episodes: int, watched: Watched, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks = load_tasks("generated:quickstart?n=25&seed=5")
    jobs = [Job(tasks[i % 25], i // 25, 3) for i in range(episodes)]
    calm, _, lost = play(backend, mode, ClawGymEnv, jobs)
    assert lost == 0 and calm.retries == 0 and all(t.passed for t in calm.trajectories)
    before = memory()
    Chaotic.begin(episodes)
    killer = Killer(watched, backend, episodes)
    killer.start()
    try:
        result, seen, lost = play(backend, mode, Chaotic, jobs)
    finally:
        killer.over.set()
        killer.join()
    assert killer.error is None
    grown = memory() - before

    assert len(seen) == len(result.trajectories) == episodes
    broken = [t for t in result.trajectories if t.stop_reason == "infrastructure"]
    twice = [t for t in result.trajectories if t.stop_reason == "lost"]  # the killer hit both sandboxes of a command
    for trajectory in broken:
        assert trajectory.reward is trajectory.passed is trajectory.rate is None
        assert trajectory.error and trajectory.assertions == []
    unharmed = [(a, b) for a, b in zip(result.trajectories, calm.trajectories, strict=True)]
    unharmed = [(a, b) for a, b in unharmed if a not in broken and a not in twice]
    assert differing([a for a, _ in unharmed], [b for _, b in unharmed]) == []
    summary = (
        f"{backend}, {mode}: {episodes} episodes, {killer.kills} kills, {Chaotic.raised} errors raised, "
        f"{Chaotic.hung} hangs, {result.retries} started over, {len(broken)} broken, "
        f"{lost} sandboxes lost, {grown / 2**20:.0f} MiB more"
    )
    # Each failure is one retry, or the second one of an episode that is then broken. Most kills are made good.
    failures = result.retries + len(broken)
    assert 0 < Chaotic.raised <= failures <= Chaotic.raised + killer.kills, summary
    assert killer.kills > 0 and lost > 0 and Chaotic.hung > 0, summary
    assert len(unharmed) > 0.8 * episodes, summary
    assert grown < 200 * 2**20, summary
    limit = time.monotonic() + SETTLE
    while (left := watched.left()) and time.monotonic() < limit:
        time.sleep(0.1)
    assert left == [], "\n".join([summary, *left])
    assert not [t.name for t in threading.enumerate() if t.name.startswith("turngym")]
    with capsys.disabled():
        print(f"\n{summary}")
