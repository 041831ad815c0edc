"""A lockstep rollout on stock `generate`, as trainers with a multi-turn loop write it.

Each turn the conversations so far are padded on the left and given to `model.generate`, which computes all of them
again (it keeps a cache within a call only). Everything else is as in the engine, so that the comparison is about
decoding: ids are kept and never encoded again, a slot whose episode ends takes the next task in the same round, and
environments step in as many threads, in the same sandboxes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from agents.chat import ChatTemplate, Conversation
from agents.policy import FinishReason, Sampling
from agents.rollout import Job
from benchmarks.peers.rollout_loop import Played, generate_settings, until_end
from envs.conversation import ConversationEnv
from envs.episode import CutReply


@dataclass(slots=True)
class _Episode:
    env: ConversationEnv
    conversation: Conversation
    cap: int


def play(
    model: Any,
    tokenizer: Any,
    eos_ids: frozenset[int],
    jobs: Sequence[Job],
    envs: Sequence[ConversationEnv],
    sampling: Sampling,
    threads: ThreadPoolExecutor,
) -> Played:
    """Play every job once, at most one for each of `envs` at a time."""
    played, begin = Played(), time.perf_counter()
    template = ChatTemplate(tokenizer, eos_ids)
    settings = generate_settings(sampling, eos_ids, tokenizer.pad_token_id)
    waiting, free, live = list(reversed(jobs)), list(envs), list[_Episode]()

    def start(job: Job, env: ConversationEnv) -> _Episode:
        observation, _ = env.reset(seed=job.seed, options={"task": job.task})
        conversation = Conversation(template)
        conversation.start(env.system_prompt, observation)
        return _Episode(env, conversation, min(sampling.max_tokens, job.task.budget.turn_tokens))

    def step(episode: _Episode, text: str) -> bool:
        observation, _, terminated, truncated, info = episode.env.step(text)
        if terminated or truncated:
            played.passed += bool(info["passed"])
            return True
        episode.conversation.observe(observation)
        return False

    while waiting or live:
        count = min(len(free), len(waiting))
        starting = [(waiting.pop(), free.pop()) for _ in range(count)]
        live += threads.map(start, *zip(*starting, strict=True)) if starting else []
        replies = _generate(model, [e.conversation.ids for e in live], max(e.cap for e in live), settings, played)
        texts = []
        for episode, row in zip(live, replies, strict=True):
            ids = until_end(row, eos_ids)[: episode.cap]
            whole = ids[-1] in eos_ids
            text = episode.conversation.reply(ids, FinishReason.STOP if whole else FinishReason.LENGTH)
            texts.append(text if whole else CutReply(text))
            played.turns += 1
            played.tokens += len(ids)
        over = list(threads.map(step, live, texts))
        free += [episode.env for episode, done in zip(live, over, strict=True) if done]
        played.episodes += sum(over)
        live = [episode for episode, done in zip(live, over, strict=True) if not done]
    played.seconds = time.perf_counter() - begin
    return played


def _generate(
    model: Any, prompts: list[list[int]], cap: int, settings: dict[str, Any], played: Played
) -> list[list[int]]:
    clock = time.perf_counter()
    width = max(map(len, prompts))
    ids = torch.tensor([[settings["pad_token_id"]] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    with torch.no_grad():
        out = model.generate(ids, attention_mask=mask, max_new_tokens=cap, **settings)
    replies: list[list[int]] = out[:, width:].tolist()
    played.model_seconds += time.perf_counter() - clock
    return replies
