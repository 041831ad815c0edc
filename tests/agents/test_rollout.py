from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from agents.episode import Job
from agents.policies.scripted import OraclePolicy
from agents.policies.transformers import TransformersPolicy
from agents.policy import Completion, Policy, PolicyError, Request, Sampling
from agents.rollout import RolloutEngine, RolloutResult
from agents.t2po import T2PO, T2POConfig
from agents.trajectory import Trajectory
from sandboxes.sandbox import SandboxUnavailable
from tests.agents.fakes import FakeEnv, task
from tests.agents.toys import full_forward, model, tokenizer

GREEDY = Sampling(0.0, 200)
SAMPLED = Sampling(1.0, 16)


def jobs(count: int, attempts: int = 2) -> list[Job]:
    return [
        Job(task(id=f"t{i}", intent=f"Say {i}.", oracle={"commands": ["echo two"] * (1 + i % 3)}), attempt, 11)
        for i in range(count)
        for attempt in range(attempts)
    ]


def play(policy: Policy, work: Sequence[Job], sampling: Sampling = GREEDY, **changes: Any) -> RolloutResult:
    settings: dict[str, Any] = {"slots": 4, "workers": 3, **changes}
    make_env = settings.pop("make_env", FakeEnv)
    with RolloutEngine(policy, make_env, **settings) as engine:
        return engine.run(work, sampling)


def content(trajectories: Sequence[Trajectory]) -> str:
    """Everything but the clocks, as bytes would be written."""
    records = [trajectory.to_json() for trajectory in trajectories]
    for record in records:
        for turn in record["turns"]:
            turn["sandbox_seconds"] = turn["model_seconds"] = 0
    return json.dumps(records)


def engine_policy() -> TransformersPolicy:
    return TransformersPolicy(model("gqa"), tokenizer())


def test_oracle_passes_and_everything_is_recorded() -> None:
    result = play(OraclePolicy(), jobs(5))
    assert [(t.task_id, t.attempt) for t in result.trajectories] == [(j.task.id, j.attempt) for j in jobs(5)]
    for trajectory, job in zip(result.trajectories, jobs(5), strict=True):
        assert trajectory.passed and trajectory.rate == 1.0 and trajectory.stop_reason == "submitted"
        assert trajectory.task_hash == job.task.content_hash and trajectory.family == "saying"
        assert trajectory.sampling == GREEDY.label()
        assert trajectory.reward == pytest.approx(1.0 - 0.2 * len(trajectory.turns) / 6)
        assert trajectory.assertions[0]["verdict"] == "pass"
        *commands, last = trajectory.turns
        assert [turn.command for turn in commands] == list(job.task.oracle.commands if job.task.oracle else ())
        assert all(turn.exit_code == 0 and turn.signal == 0.5 and turn.observation for turn in commands)
        assert [turn.anchor for turn in trajectory.turns] == [str(8 * i) for i in range(len(trajectory.turns))]
        assert last.action == "submit" and last.signal is None
        assert not trajectory.turns[0].context_ids and all(turn.context_ids for turn in trajectory.turns[1:])
    assert result.timing.turns == sum(len(t.turns) for t in result.trajectories)
    assert result.timing.sampled_tokens == sum(len(turn.ids) for t in result.trajectories for turn in t.turns)


def test_the_ids_between_replies_are_the_prompts_the_policy_saw() -> None:
    seen: dict[str, list[list[int]]] = {}

    class Watching(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            for request in requests:
                seen.setdefault(request.conversation, []).append(list(request.prompt_ids))
            return super().complete(requests, sampling)

    result = play(Watching(), jobs(3))
    for trajectory, prompts in zip(result.trajectories, seen.values(), strict=False):
        flat = trajectory.flat()
        whole = trajectory.prompt_ids + flat.ids
        assert [whole[: len(prompt)] for prompt in prompts] == prompts


def test_logprobs_are_those_of_one_forward_over_the_whole_episode() -> None:
    result = play(engine_policy(), jobs(2, 1), SAMPLED)
    for trajectory in result.trajectories:
        flat = trajectory.flat()
        expected = full_forward(model("gqa"), trajectory.prompt_ids, flat.ids, 1.0)[0].tolist()
        for mask, got, want in zip(flat.mask, flat.logprobs, expected, strict=True):
            assert got == (pytest.approx(want, abs=1e-5) if mask else 0.0)


@pytest.mark.parametrize("policy", ["oracle", "model"])
def test_slots_workers_and_thread_timing_do_not_matter(policy: str) -> None:
    def run(slots: int, workers: int, seconds: float) -> list[Trajectory]:
        acting = OraclePolicy() if policy == "oracle" else engine_policy()
        sampling = GREEDY if policy == "oracle" else SAMPLED
        settings = {"slots": slots, "workers": workers, "make_env": lambda: FakeEnv(seconds=seconds)}
        return play(acting, jobs(4), sampling, **settings).trajectories

    first, again, single, wide = run(4, 3, 0.0), run(4, 1, 0.005), run(1, 1, 0.0), run(32, 8, 0.005)
    # The same slots: the same bytes, whatever the threads did.
    assert content(first) == content(again)
    for other in (single, wide):
        if policy == "oracle":
            assert content(first) == content(other)
            continue
        # Another batch shape may round differently in the last digit; what was sampled is the same.
        for one, two in zip(first, other, strict=True):
            assert one.flat().ids == two.flat().ids
            assert one.flat().logprobs == pytest.approx(two.flat().logprobs, abs=1e-5)
            assert (one.reward, one.stop_reason) == (two.reward, two.stop_reason)


def test_seeds_decide_replies() -> None:
    work = jobs(1, 3)
    base = play(engine_policy(), work, SAMPLED).trajectories
    assert len({tuple(t.flat().ids) for t in base}) == 3
    other = [Job(job.task, job.attempt, 12) for job in work]
    assert play(engine_policy(), other, SAMPLED).trajectories[0].flat().ids != base[0].flat().ids


def test_batches_stay_full() -> None:
    sizes: list[int] = []

    class Counting(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            sizes.append(len(requests))
            return super().complete(requests, sampling)

    play(Counting(), jobs(12, 1))
    # Full until no job is left, then emptying for as long as the longest episode (4 turns) at most.
    assert sizes == sorted(sizes, reverse=True)
    assert sizes.count(4) >= len(sizes) - 4


def test_turn_budget_truncates() -> None:
    work = [Job(task(oracle={"commands": ["echo two"] * 9}), 0, 0)]
    (trajectory,) = play(OraclePolicy(), work).trajectories
    assert trajectory.stop_reason == "max_turns" and len(trajectory.turns) == 6 and trajectory.passed


def test_context_budget_ends_the_episode_before_it_overflows() -> None:
    cap, limit = 60, 220
    work = [Job(task(oracle={"commands": ["echo two"] * 5}), 0, 0)]
    longest: list[int] = []

    class Watching(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            longest.extend(len(r.prompt_ids) + (r.max_tokens or 0) for r in requests)
            return super().complete(requests, sampling)

    (trajectory,) = play(Watching(), work, Sampling(0.0, cap), max_context=limit).trajectories
    assert trajectory.stop_reason == "max_tokens" and 0 < len(trajectory.turns) < 5
    assert trajectory.reward is not None and trajectory.passed  # graded as it stands
    assert max(longest) <= limit
    assert len(trajectory.prompt_ids) + len(trajectory.flat().ids) <= limit


def test_the_smaller_of_both_caps_holds() -> None:
    caps: set[int | None] = set()

    class Watching(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            caps.update(request.max_tokens for request in requests)
            return super().complete(requests, sampling)

    play(Watching(), [Job(task(budget={"turn_tokens": 40}), 0, 0), Job(task(), 0, 0)], Sampling(0.0, 50))
    assert caps == {40, 50}


def test_a_prompt_that_fills_the_context_is_named() -> None:
    with pytest.raises(ValueError, match=r"task 'first': its prompt has \d+ ids and the context only 30"):
        play(OraclePolicy(), [Job(task(), 0, 0)], max_context=30)


@pytest.mark.parametrize("call", ["step", "reset", "grade"])
def test_one_failure_starts_over_and_leaves_no_trace(call: str) -> None:
    clean = play(OraclePolicy(), jobs(3)).trajectories
    failures = Counter({call: 1})
    result = play(OraclePolicy(), jobs(3), make_env=lambda: FakeEnv(failures=failures))
    assert result.retries == 1
    assert content(result.trajectories) == content(clean)


def test_a_second_failure_is_infrastructure_and_no_reward() -> None:
    failures = Counter({"step": 2})
    result = play(OraclePolicy(), jobs(3, 1), slots=1, make_env=lambda: FakeEnv(failures=failures))
    first, *others = result.trajectories
    assert first.stop_reason == "infrastructure"
    assert first.reward is first.passed is first.rate is None
    assert first.error == "SandboxError: broken at step"
    assert all(other.passed for other in others)
    assert result.retries == 1


def test_an_environment_that_never_starts_does_not_stop_the_others() -> None:
    failures = Counter({"reset": 4})
    result = play(OraclePolicy(), jobs(4, 1), slots=1, make_env=lambda: FakeEnv(failures=failures))
    assert [t.stop_reason for t in result.trajectories] == ["infrastructure"] * 2 + ["submitted"] * 2


def test_defects_propagate() -> None:
    class Broken(FakeEnv):
        def _exchange(self, reply: str) -> Any:
            raise ZeroDivisionError("defect")

    with pytest.raises(ZeroDivisionError, match="defect"):
        play(OraclePolicy(), jobs(2), make_env=Broken)


def test_a_policy_failure_is_recorded_then_raised() -> None:
    class Failing(OraclePolicy):
        calls = 0

        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            self.calls += 1
            if self.calls == 3:
                raise PolicyError("engine gone")
            return super().complete(requests, sampling)

    seen: list[Trajectory] = []
    policy = Failing()
    with RolloutEngine(policy, FakeEnv, slots=4, workers=2) as engine:
        with pytest.raises(PolicyError, match="engine gone"):
            engine.run(jobs(6), GREEDY, on_episode=seen.append)
        stops = Counter(t.stop_reason for t in seen)
        assert stops["infrastructure"] == 4 and stops["submitted"] > 0
        assert all("engine gone" in (t.error or "") for t in seen if t.stop_reason == "infrastructure")
        # The engine is usable again.
        assert all(t.passed for t in engine.run(jobs(2), GREEDY).trajectories)


def test_every_conversation_is_forgotten() -> None:
    policy = engine_policy()
    play(policy, jobs(3), SAMPLED)
    assert all(slot.conversation is None for slot in policy._table.slots)


def test_environments_are_kept_between_calls_and_closed() -> None:
    made: list[FakeEnv] = []

    def make() -> FakeEnv:
        made.append(FakeEnv())
        return made[-1]

    engine = RolloutEngine(OraclePolicy(), make, slots=3, workers=2)
    for _ in range(3):
        engine.run(jobs(2), GREEDY)
    assert len(made) == 3
    engine.close()
    engine.close()
    assert all(env._phase == "closed" for env in made)
    assert engine.run([], GREEDY).trajectories == []


def test_times_add_up() -> None:
    timing = play(OraclePolicy(), jobs(6), make_env=lambda: FakeEnv(seconds=0.01)).timing
    assert timing.wall_seconds == pytest.approx(timing.model_seconds + timing.sandbox_seconds + timing.overhead_seconds)
    assert min(timing.model_seconds, timing.sandbox_seconds, timing.overhead_seconds) >= 0


def test_resampled_turns_are_recorded() -> None:
    wrapper = T2PO(engine_policy(), T2POConfig(turn_resample=True, eta=50.0))
    result = play(wrapper, jobs(2), SAMPLED)
    turns = [turn for t in result.trajectories for turn in t.turns]
    assert all(turn.uncertainty is not None for turn in turns)
    assert all(len(turn.candidates) == 2 for turn in turns if turn.index)
    extra = sum(len(c.ids) for turn in turns for c in turn.candidates)
    assert result.timing.sampled_tokens == sum(len(turn.ids) for turn in turns) + extra


def test_wrong_sizes() -> None:
    with pytest.raises(ValueError, match="slots is 0"):
        RolloutEngine(OraclePolicy(), FakeEnv, slots=0, workers=1)


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_the_oracle_in_a_real_sandbox(backend: str) -> None:
    from envs.clawgym import ClawGymEnv
    from sandboxes import open_sandbox
    from tasks.sources import load_tasks

    try:
        open_sandbox(backend).close()
    except SandboxUnavailable as error:
        pytest.skip(f"{backend}: {error}")
    tasks = load_tasks("generated:quickstart?n=8&seed=1")
    work = [Job(item, attempt, 3) for item in tasks for attempt in range(2)]
    result = play(OraclePolicy(), work, make_env=lambda: ClawGymEnv(tasks, sandbox=backend, prompt_style="compact"))
    assert [t.error for t in result.trajectories] == [None] * 16
    assert all(t.passed and t.stop_reason == "submitted" for t in result.trajectories)
