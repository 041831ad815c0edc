"""Events with a fault in them, made of the same structures that a run gives its guards."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agents.policy import Sampling
from agents.rollout import RolloutResult
from agents.rollout.progress import Timing
from agents.seeds import find_duplicates
from agents.trajectory import Trajectory
from tests.trainers.fake_run import episode, task
from tests.trainers.toy import make_config
from trainers.guards import Facts, Finding, GuardName, Measured, Watch
from trainers.measure import measure

POOL = [task(i, "pool") for i in range(8)]
HELD_OUT = [task(100 + i, "held") for i in range(60)]
METRICS = {
    "reward": 0.6,
    "loss": 0.01,
    "grad_norm": 0.1,
    "entropy": 0.3,
    "env/mean_turns": 2.6,
    "env/submitted": 0.9,
    "env/pass_rate": 0.8,
    "env/infra_error_frac": 0.0,
    "gigpo/frac_zero_adv": 0.3,
    "gigpo/turn_adv_abs_mean": 0.1,
    "mask/trained_tokens": 300.0,
    "mask/sampled_tokens": 300.0,
}


def facts(config: dict[str, Any] | None = None, **changes: Any) -> Facts:
    settings = {"eval_strategy": "steps", "adam_epsilon": 1e-5, "warmup_steps": 30, **(config or {})}
    base = Facts(
        make_config(Path("unused"), **settings),
        POOL,
        HELD_OUT,
        sampling=Sampling(1.0, 40),
        arms={"sampled": Sampling(1.0, 40), "greedy": Sampling(0.0, 40)},
        pad_id=0,
        eos_ids=frozenset({1}),
    )
    return replace(base, **changes)


def attempts(skill: float = 0.5, *, seed: int = 0, tasks: Sequence = POOL, k: int = 4) -> list[Trajectory]:
    """K attempts at each task."""
    rng = random.Random(seed)
    return [replace(episode(job, rng, skill), attempt=i) for job in tasks for i in range(k)]


def result(episodes: list[Trajectory]) -> RolloutResult:
    return RolloutResult(episodes, Timing(), 0, find_duplicates(episodes))


def evaluation(step: int, skill: float, *, best: bool, p: float | None = None, seed: int = 0, **changes) -> Measured:
    episodes = attempts(skill, tasks=HELD_OUT, k=1, seed=seed)
    arms = {"sampled": measure(episodes, "T=1, max_tokens=40")}
    return replace(Measured(step, arms, "sampled", best, p, 0, {"sampled": episodes}), **changes)


def steps(watch: Watch, changes: Iterable[dict[str, float]], first: int = 1) -> None:
    """Steps whose metrics are the healthy ones with these changes."""
    for step, change in enumerate(changes, first):
        watch.step(step, {**METRICS, **change})


def on(name: GuardName, begun: Facts | None = None) -> Watch:
    """One guard, told how the run begins; it has nothing to say to that."""
    watch = Watch({name: None})
    assert watch.begin(begun or facts()) == []
    return watch


def kinds(watch: Watch) -> list[tuple[int, str, str]]:
    return [(finding.step, str(finding.severity), finding.kind) for finding in watch.findings]


def only(watch: Watch) -> Finding:
    (finding,) = watch.findings
    return finding
