"""The end of a context, and of a token budget: the cap of a reply shrinks to what is left, then the episode ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from agents.policies.openai import OpenAIPolicy
from agents.policies.scripted import ByteTokenizer
from agents.policies.transformers import TransformersPolicy
from agents.policy import LEAST_REPLY, Completion, FinishReason, Request, Sampling, shrunk
from agents.rollout import Job
from agents.t2po import T2PO, T2POConfig
from agents.trajectory import Trajectory
from tests.agents.fakes import FakeEnv, task
from tests.agents.rollout.test_engine import differing, engine_policy, play
from tests.agents.toys import model, tokenizer

CAP = 40
WORK = "```bash\necho two\n```\n"
END = ByteTokenizer.eos_token_id


class Filler:
    """Says `text` and then nothing worth reading, until its cap."""

    tokenizer = ByteTokenizer()
    eos_ids = frozenset([END])

    def __init__(self, text: str = "") -> None:
        self._said = self.tokenizer.encode(text)
        self.prompts: list[int] = []

    def complete(self, requests: Sequence[Request], sampling: Sampling) -> list[Completion]:
        self.prompts += [len(request.prompt_ids) for request in requests]
        replies = [(self._said + [120] * CAP)[: request.cap(sampling)] for request in requests]
        nothing = [[0.0] * len(ids) for ids in replies]
        return [
            Completion(ids, zero, zero, zero, [False] * len(ids), FinishReason.LENGTH)
            for ids, zero in zip(replies, nothing, strict=True)
        ]

    def forget(self, conversations: Sequence[str]) -> None:
        pass


def job(turns: int = 8, **changes: Any) -> Job:
    return Job(task(budget={"max_turns": turns, "turn_tokens": CAP}, **changes), 0, 7)


def whole(episode: Trajectory) -> int:
    """Ids of an episode: prompt, replies, whole observations."""
    return len(episode.prompt_ids) + sum(len(turn.context_ids) + len(turn.ids) for turn in episode.turns)


def in_context(policy: Any, limit: int, **settings: Any) -> Trajectory:
    return play(policy, [job()], Sampling(1.0, 100), max_context=limit, **settings).trajectories[0]


def in_budget(policy: Any, limit: int, **settings: Any) -> Trajectory:
    return play(policy, [job()], Sampling(1.0, 100, limit), **settings).trajectories[0]


def test_a_cap_shrinks_to_the_room_there_is_and_not_below_what_says_something() -> None:
    assert [shrunk(100, room) for room in (200, 100, 99, 16, 15, 0, -5)] == [100, 100, 99, 16, None, None, None]
    assert [shrunk(8, room) for room in (9, 8, 7)] == [8, 8, None]  # a smaller cap than that is a choice
    assert [shrunk(100, room, first=True) for room in (200, 15, 1, 0)] == [100, 15, 1, None]


@pytest.mark.parametrize("ends", [in_context, in_budget])
@pytest.mark.parametrize("left", [0, LEAST_REPLY - 1, LEAST_REPLY, CAP - 1, CAP])
def test_the_last_reply_has_what_is_left(ends: Callable[..., Trajectory], left: int) -> None:
    policy = Filler()
    full = play(policy, [job()], Sampling(1.0, 100)).trajectories[0]
    assert (full.stop_reason, len(full.turns)) == ("max_turns", 8)
    limit = policy.prompts[3] + left
    episode = ends(Filler(), limit)
    last = [left] if left >= LEAST_REPLY else []
    assert [len(turn.ids) for turn in episode.turns] == [CAP] * 3 + last
    assert [turn.max_tokens for turn in episode.turns] == [CAP] * 3 + last  # the record has the cap that was
    assert all(turn.finish is FinishReason.LENGTH for turn in episode.turns)
    assert episode.stop_reason == "max_tokens" and episode.passed is False and episode.reward is not None
    assert whole(episode) == limit if last else whole(episode) < limit - left  # nobody read the last observation


@pytest.mark.parametrize("ends", [in_context, in_budget])
def test_a_first_reply_is_given_whatever_room_there_is(ends: Callable[..., Trajectory]) -> None:
    policy = Filler()
    prompt = len(play(policy, [job(1)], Sampling(1.0, 100)).trajectories[0].prompt_ids)
    assert [len(turn.ids) for turn in ends(Filler(), prompt + 3).turns] == [3]
    lost = ends(Filler(), prompt)
    assert (lost.stop_reason, lost.reward) == ("infrastructure", None)
    asked = "raise max_episode_tokens" if ends is in_budget else "use a model with a longer context"
    assert f"its prompt has {prompt} ids" in (lost.error or "") and asked in (lost.error or "")


def test_a_budget_counts_whole_observations_whatever_prompts_show() -> None:
    limit = 2600

    def wordy() -> FakeEnv:
        return FakeEnv(word="and so on\n" * 60, keep_observations=1)

    shown = in_context(Filler(WORK), limit, make_env=wordy)
    played = in_budget(Filler(WORK), limit, make_env=wordy)
    assert shown.stop_reason == "max_turns" and whole(shown) > limit >= max(map(len, shown.prompts())) + CAP
    assert played.stop_reason == "max_tokens" and 0 < len(played.turns) < 8 and whole(played) <= limit
    assert played.sampling == f"T=1, max_tokens=100, max_episode_tokens={limit}"


def test_a_job_that_starts_over_has_its_whole_budget_again() -> None:
    failing = play(
        Filler(), [job()], Sampling(1.0, 100, 400), make_env=lambda: FakeEnv(failures=Counter(step=1)), slots=1
    )
    assert failing.retries == 1
    assert differing(failing.trajectories, [in_budget(Filler(), 400)]) == []


def test_using_up_the_tokens_pays_no_more_than_submitting_the_same() -> None:
    """Otherwise a policy under pressure would write until nothing is left."""
    submitted = play(Filler(f"{WORK}TASK_COMPLETE\n"), [job()], Sampling(1.0, 100)).trajectories[0]
    ended = in_budget(Filler(WORK), len(submitted.prompt_ids) + CAP)
    assert [episode.stop_reason for episode in (submitted, ended)] == ["submitted", "max_tokens"]
    assert ended.passed and submitted.passed and ended.reward == submitted.reward == pytest.approx(1 - 0.2 / 8)


def test_thoughts_and_further_samples_keep_within_the_budget() -> None:
    budget = 400
    resampled = T2PO(engine_policy(), T2POConfig(turn_resample=True, turn_resample_eta=50.0))
    (episode,) = play(resampled, [job(30)], Sampling(1.0, 24, budget)).trajectories
    assert episode.stop_reason == "max_tokens" and whole(episode) <= budget
    tried = [(turn.max_tokens, candidate.ids) for turn in episode.turns for candidate in turn.candidates]
    assert tried and all(cap is not None and len(ids) <= cap for cap, ids in tried)

    tokens = tokenizer(think=True)
    thinking = T2PO(
        TransformersPolicy(model(), tokens, eos_ids=[tokens.eos_token_id]),
        T2POConfig(think_budget=30, think_answer_reserve=8),
    )
    opened, closed = (tokens.convert_tokens_to_ids(tag) for tag in ("<think>", "</think>"))
    prompt = [20, 21, opened]
    for cap in (20, LEAST_REPLY):  # what a shrunken cap leaves: the answer keeps its share of it
        (reply,) = thinking.complete([Request("a", prompt, seed=3, max_tokens=cap)], Sampling(1.0, 60))
        assert reply.ids.index(closed) == cap - 8 - 1 and reply.notes["think_reserved"] == 1
        assert len(reply.ids) <= cap == reply.max_tokens


def test_a_policy_whose_tokens_nobody_can_count_is_refused() -> None:
    policy = OpenAIPolicy("tiny", base_url="http://127.0.0.1:9/v1")
    with pytest.raises(ValueError, match="max_episode_tokens=90: this policy answers with text"):
        play(policy, [job()], Sampling(1.0, 100, 90))
    with pytest.raises(ValueError, match="max_episode_tokens is 0"):
        Sampling(1.0, 100, 0)
