from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from agents.policies.scripted import OraclePolicy
from agents.policies.transformers import TransformersPolicy
from agents.policy import Completion, FinishReason, Policy, PolicyError, Request, Sampling
from agents.rollout import RolloutEngine, RolloutMode, RolloutResult, RolloutState
from agents.rollout.episode import Job
from agents.t2po import T2PO, T2POConfig
from agents.trajectory import Trajectory
from envs.conversation import Exchange
from envs.episode import CutReply
from envs.questions import GSM8KEnv
from sandboxes.sandbox import SandboxUnavailable
from tasks.sources import load_tasks
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


def content(trajectories: Sequence[Trajectory]) -> list[str]:
    """Everything but the clocks, as bytes would be written; by lines, so that a failed test shows which differ."""
    records = [trajectory.to_json() for trajectory in trajectories]
    for record in records:
        for turn in record["turns"]:
            turn["sandbox_seconds"] = turn["model_seconds"] = 0
        notes = record.pop("notes", {})
        record["notes"] = {key: value for key, value in notes.items() if key != "losses"}  # they change nothing else
    return [json.dumps(record) for record in records]


def differing(some: Sequence[Trajectory], others: Sequence[Trajectory]) -> list[tuple[str, int]]:
    """Task and attempt of those that differ: comparing the texts themselves would print megabytes."""
    pairs = zip(some, others, content(some), content(others), strict=True)
    return [(one.task_id, one.attempt) for one, _, text, other in pairs if text != other]


def assert_alike(some: Sequence[Trajectory], others: Sequence[Trajectory]) -> None:
    """Another batch shape may round differently in the last digit; what was sampled, and its outcome, is the same."""
    assert len(some) == len(others)
    for one, two in zip(some, others, strict=True):
        assert (one.task_id, one.attempt, one.flat().ids) == (two.task_id, two.attempt, two.flat().ids)
        assert one.flat().logprobs == pytest.approx(two.flat().logprobs, abs=1e-5)
        assert (one.reward, one.stop_reason, one.assertions) == (two.reward, two.stop_reason, two.assertions)


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
    assert len(seen) == len(result.trajectories)
    for index, trajectory in enumerate(result.trajectories):
        (prompts,) = (prompts for name, prompts in seen.items() if name.startswith(f"{index}:"))
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
def test_slots_workers_and_thread_timing_do_not_matter(policy: str, mode: RolloutMode) -> None:
    def run(slots: int, workers: int, seconds: float) -> list[Trajectory]:
        acting = OraclePolicy() if policy == "oracle" else engine_policy()
        sampling = GREEDY if policy == "oracle" else SAMPLED
        settings = {"slots": slots, "workers": workers, "make_env": lambda: FakeEnv(seconds=seconds)}
        return play(acting, jobs(4), sampling, **settings).trajectories

    first, again, single, wide = run(4, 3, 0.0), run(4, 1, 0.005), run(1, 1, 0.0), run(32, 8, 0.005)
    if mode is RolloutMode.LOCKSTEP:  # the same slots: the same bytes, whatever the threads did
        assert differing(first, again) == []
    for other in (again, single, wide):
        if policy == "oracle":
            assert differing(first, other) == []
            continue
        assert_alike(first, other)


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


def test_an_exception_closes_the_environments_and_a_later_run_makes_new_ones() -> None:
    made: list[FakeEnv] = []

    def make() -> FakeEnv:
        made.append(FakeEnv())
        return made[-1]

    class Stopped(OraclePolicy):
        calls = 0

        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            Stopped.calls += 1
            if Stopped.calls == 2:
                raise KeyboardInterrupt
            return super().complete(requests, sampling)

    with RolloutEngine(Stopped(), make, slots=3, workers=2, ahead=2) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.run(jobs(4), GREEDY)
        assert len(made) == 5 and all(env._phase == "closed" for env in made)
        assert not [t for t in threading.enumerate() if t.name.startswith("turngym")]
        assert all(t.passed for t in engine.run(jobs(4), GREEDY).trajectories)
        assert len(made) == 10


def test_rounds_are_told() -> None:
    states: list[RolloutState] = []
    failures = Counter({"step": 3})
    with RolloutEngine(OraclePolicy(), lambda: FakeEnv(failures=failures), slots=1, workers=1) as engine:
        result = engine.run(jobs(3, 1), GREEDY, on_round=states.append)
    last = states[-1]
    assert (last.done, last.total, last.infrastructure, last.retries) == (3, 3, 1, 2)
    assert (
        (last.turns, last.tokens) == (result.timing.turns, result.timing.sampled_tokens) == (len(states), last.tokens)
    )
    assert [state.done for state in states] == sorted(state.done for state in states)


def test_stop_texts_go_to_the_policy_where_it_and_the_environment_agree_on_them() -> None:
    stops: set[tuple[str, ...]] = set()

    class Watching(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            stops.update(request.stops for request in requests)
            return super().complete(requests, sampling)

    class Stopping(FakeEnv):
        stops = ("Question:",)

    class Raw(Stopping):
        raw_prompts = True

    for kind in (FakeEnv, Stopping):
        play(Watching(), jobs(1), make_env=kind)
    assert stops == {()}
    play(Watching(), jobs(1), make_env=Raw)
    assert stops == {(), ("Question:",)}


def test_the_stop_texts_of_a_question_reach_a_base_model() -> None:
    seen: list[tuple[str, ...]] = []

    class Watching(OraclePolicy):
        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            seen.extend(request.stops for request in requests)
            return super().complete(requests, sampling)

    question = load_tasks("gsm8k:sample")[0]
    for style, stops in (("standard", ()), ("base", GSM8KEnv.default_stops)):
        seen.clear()
        make_env = partial(GSM8KEnv, [question], tools=False, prompt_style=style)
        (played,) = play(Watching(), [Job(question, 0, 0)], make_env=make_env).trajectories
        assert played.passed and seen == [stops]


def test_a_reply_that_a_stop_text_ended_is_whole_and_its_turn_is_closed() -> None:
    kinds: list[type] = []

    class Noting(FakeEnv):
        def _exchange(self, reply: str) -> Exchange:
            kinds.append(type(reply))
            return super()._exchange(reply)

    class Stopping(OraclePolicy):
        finish = FinishReason.STOP_TEXT

        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            replies = super().complete(requests, sampling)
            for reply in replies:
                for values in (reply.ids, reply.logprobs, reply.entropies, reply.max_logprobs, reply.forced):
                    assert values is not None
                    values.pop()  # the end-of-turn id
                reply.finish = self.finish
            return replies

    policy = Stopping()
    (ended,) = play(policy, jobs(1, 1), make_env=Noting).trajectories
    assert set(kinds) == {str} and ended.passed
    end = policy.tokenizer.eos_token_id
    assert end not in ended.turns[0].ids and ended.turns[1].context_ids[0] == end
    Stopping.finish = FinishReason.LENGTH
    kinds.clear()
    (cut,) = play(Stopping(), jobs(1, 1), make_env=Noting).trajectories
    assert set(kinds) == {CutReply}
    assert cut.turns[1].context_ids == ended.turns[1].context_ids


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
    (lost,) = play(OraclePolicy(), [Job(task(), 0, 0)], max_context=30).trajectories
    assert lost.stop_reason == "infrastructure" and lost.reward is None
    assert re.search(
        r"task 'first': its prompt has \d+ ids and the context only 30; use a model with", lost.error or ""
    )


def test_a_prompt_that_fills_the_context_ends_its_own_episode_alone() -> None:
    long = task(intent="word " * 4000)
    first, last = play(OraclePolicy(), [Job(long, 0, 0), Job(task(), 0, 0)], max_context=4000).trajectories
    assert first.stop_reason == "infrastructure" and "its prompt has" in (first.error or "")
    assert last.passed


@pytest.mark.parametrize("call", ["step", "reset", "grade"])
def test_one_failure_starts_over_and_leaves_no_trace(call: str) -> None:
    clean = play(OraclePolicy(), jobs(3)).trajectories
    failures = Counter({call: 1})
    result = play(OraclePolicy(), jobs(3), make_env=lambda: FakeEnv(failures=failures))
    assert result.retries == 1
    assert differing(result.trajectories, clean) == []


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
        broken = False

        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            if not self.broken and any(request.conversation.startswith("4:") for request in requests):
                self.broken = True  # the first four have begun before, and one of them has ended
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

    engine = RolloutEngine(OraclePolicy(), make, slots=3, workers=2, ahead=1)
    for _ in range(3):
        engine.run(jobs(3), GREEDY)
    assert len(made) == 4
    engine.close()
    engine.close()
    assert all(env._phase == "closed" for env in made)
    assert engine.run([], GREEDY).trajectories == []


def test_times_add_up() -> None:
    timing = play(OraclePolicy(), jobs(6), make_env=lambda: FakeEnv(seconds=0.01)).timing
    assert timing.wall_seconds == pytest.approx(timing.model_seconds + timing.sandbox_seconds + timing.overhead_seconds)
    assert min(timing.model_seconds, timing.sandbox_seconds, timing.overhead_seconds) >= 0


def test_resampled_turns_are_recorded() -> None:
    wrapper = T2PO(engine_policy(), T2POConfig(turn_resample=True, turn_resample_eta=50.0))
    result = play(wrapper, jobs(2), SAMPLED)
    turns = [turn for t in result.trajectories for turn in t.turns]
    assert all(turn.uncertainty is not None for turn in turns)
    assert all(len(turn.candidates) == 2 for turn in turns if turn.index)
    label = f"{SAMPLED.label()}, turn resampling on (eta=50, max_try=2, keep=last)"
    assert result.label == label and {t.sampling for t in result.trajectories} == {label}
    extra = sum(len(c.ids) for turn in turns for c in turn.candidates)
    assert result.timing.sampled_tokens == sum(len(turn.ids) for turn in turns) + extra


def test_a_turn_whose_uncertainty_is_an_interval_records_it() -> None:
    class Far(OraclePolicy):
        def complete(self, requests, sampling):
            completions = super().complete(requests, sampling)
            for made in completions:
                made.entropies, made.entropy_bounds = None, [(0.25, 0.5)] * len(made.ids)
            return completions

    (trajectory,) = play(T2PO(Far(), T2POConfig()), jobs(1, 1)).trajectories
    assert all(turn.uncertainty is None for turn in trajectory.turns)
    assert all(turn.uncertainty_bounds == (0.25, 0.5) for turn in trajectory.turns)


def test_wrong_sizes() -> None:
    with pytest.raises(ValueError, match="slots is 0"):
        RolloutEngine(OraclePolicy(), FakeEnv, slots=0, workers=1)
    with pytest.raises(ValueError, match="ahead is -1"):
        RolloutEngine(OraclePolicy(), FakeEnv, slots=1, workers=1, ahead=-1)


@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
def test_the_oracle_in_a_real_sandbox(backend: str) -> None:
    from envs.clawgym import ClawGymEnv
    from sandboxes import open_sandbox

    try:
        open_sandbox(backend).close()
    except SandboxUnavailable as error:
        pytest.skip(f"{backend}: {error}")
    tasks = load_tasks("generated:quickstart?n=8&seed=1")
    work = [Job(item, attempt, 3) for item in tasks for attempt in range(2)]
    result = play(OraclePolicy(), work, make_env=lambda: ClawGymEnv(tasks, sandbox=backend, prompt_style="compact"))
    assert [t.error for t in result.trajectories] == [None] * 16
    assert all(t.passed and t.stop_reason == "submitted" for t in result.trajectories)


# -- several parts at the same time ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("slots", "ahead"), [(2, 0), (5, 3)])
def test_parts_that_take_turns_play_what_each_would_play_alone(slots: int, ahead: int, mode: RolloutMode) -> None:
    def played(parts: Sequence[tuple[list[Job], Sampling]]) -> tuple[list[RolloutResult], list[tuple[str, int]]]:
        heard: list[tuple[str, int]] = []
        policy = TransformersPolicy(model(), tokenizer())
        with RolloutEngine(policy, FakeEnv, slots=slots, workers=2, ahead=ahead) as engine:
            results = engine.run_together(parts, on_episode=lambda t: heard.append((t.task_id, t.attempt)))
        return results, heard

    parts = [(jobs(3), SAMPLED), (jobs(4, 1), Sampling(0.0, 16))]
    together, heard = played(parts)
    apart = [result for part in parts for result in played([part])[0]]
    for one, other in zip(together, apart, strict=True):
        assert [t.sampling for t in one.trajectories] == [t.sampling for t in other.trajectories]
        said = [[(turn.ids, turn.observation) for turn in t.turns] for t in one.trajectories]
        assert said == [[(turn.ids, turn.observation) for turn in t.turns] for t in other.trajectories]
        assert (one.timing.turns, one.timing.sampled_tokens) == (other.timing.turns, other.timing.sampled_tokens)
        assert one.timing.wall_seconds >= one.timing.model_seconds > 0
    again, heard_again = played(parts)
    if mode is RolloutMode.LOCKSTEP:
        assert [content(r.trajectories) for r in again] == [content(r.trajectories) for r in together]
        assert heard == heard_again
    assert sorted(heard) == sorted(heard_again) and len(heard) == 10


def test_one_part_steps_while_the_policy_decodes_for_another() -> None:
    """The policy's second call comes before the first part's environments have answered: they wait for it."""
    second = threading.Event()

    class Watched(OraclePolicy):
        calls = 0

        def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
            self.calls += 1
            if self.calls == 2:
                second.set()
            return super().complete(requests, sampling)

    class Patient(FakeEnv):
        def step(self, reply: str) -> Any:
            assert second.wait(20), "the policy was not asked for the other part meanwhile"
            return super().step(reply)

    with RolloutEngine(Watched(), Patient, slots=4, workers=4) as engine:
        results = engine.run_together([(jobs(2, 1), GREEDY), (jobs(2, 1), GREEDY)])
    assert [t.stop_reason for r in results for t in r.trajectories] == ["submitted"] * 4


def test_parts_need_slots() -> None:
    with RolloutEngine(OraclePolicy(), FakeEnv, slots=1, workers=1) as engine, pytest.raises(ValueError, match="slots"):
        engine.run_together([(jobs(1), GREEDY), (jobs(1), GREEDY)])
