"""T2PO around the policy that ships, on real tasks in a real sandbox."""

from __future__ import annotations

import pytest
import torch

from agents.models.loading import load_model
from agents.policies.transformers import TransformersPolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine, RolloutResult
from agents.t2po import T2PO, T2POConfig
from envs.clawgym import ClawGymEnv
from sandboxes import probe
from tasks.sources import load_tasks

SANDBOX = next((name for name in ("bubblewrap", "landlock") if probe(name).ok), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine"),
]
SAMPLING = Sampling(1.0, 40)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def play(wrapper: T2PO, tasks: int, seed: int, attempts: int = 4) -> RolloutResult:
    jobs = [Job(t, k, seed) for t in load_tasks(f"generated:quickstart?n={tasks}&seed={seed}") for k in range(attempts)]

    def make() -> ClawGymEnv:
        return ClawGymEnv([jobs[0].task], sandbox=SANDBOX, prompt_style="compact")

    with RolloutEngine(wrapper, make, slots=32, workers=2) as engine:
        return engine.run(jobs, SAMPLING)


def wrapped(**changes: object) -> T2PO:
    return T2PO(TransformersPolicy(*load_model("quickstart")), T2POConfig(turn_resample=True, **changes))  # type: ignore[arg-type]


def test_the_calibrated_rate_is_the_wanted_one() -> None:
    wrapper = wrapped(turn_resample_warmup=256)
    episodes = play(wrapper, 48, 3).trajectories + play(wrapper, 48, 4).trajectories
    rate = wrapper.trigger_rate()
    assert wrapper.meter.eligible > 300 and rate is not None
    assert rate == pytest.approx(0.15, abs=0.06)
    assert wrapper.warning() is None
    # The record says what the meter counted: every rejected sample with its signal.
    turns = [turn for episode in episodes for turn in episode.turns]
    assert sum(bool(turn.candidates) for turn in turns) == wrapper.meter.triggered
    assert sum(len(turn.candidates) for turn in turns) == wrapper.meter.extra
    assert all(c.signal is not None for turn in turns for c in turn.candidates)
    assert not any(episode.turns[0].candidates for episode in episodes)


def test_eta_of_0_3_nats_holds_nearly_every_turn_and_says_so() -> None:
    wrapper = wrapped(turn_resample_eta=0.3)
    play(wrapper, 24, 3)
    assert (wrapper.trigger_rate() or 0) > 0.8
    assert "holds most changes" in (wrapper.warning() or "")


def test_a_budget_that_is_spent_ends_resampling_and_says_so() -> None:
    wrapper = wrapped(turn_resample_eta=0.3, turn_resample_run_budget=9, turn_resample_episode_budget=3)
    episodes = play(wrapper, 4, 3).trajectories
    extra = [sum(len(turn.candidates) for turn in episode.turns) for episode in episodes]
    assert sum(extra) == wrapper.meter.asked == 9 and max(extra) <= 3
    unpaid = sum(turn.notes.get("resample_unpaid", 0) for episode in episodes for turn in episode.turns)
    assert unpaid == wrapper.meter.unpaid > 0
    assert "budget of 9 extra samples is spent" in (wrapper.warning() or "")


def test_same_seeds_same_episodes_with_resampling_on() -> None:
    first, second = ([t.to_json() for t in play(wrapped(turn_resample_eta=0.05), 6, 5).trajectories] for _ in range(2))
    for record in (*first, *second):
        for turn in record["turns"]:
            del turn["sandbox_seconds"], turn["model_seconds"]
    assert first == second
    assert any(turn["candidates"] for record in first for turn in record["turns"])
