"""The loop that tutorials show: one episode at a time, the conversation a list of messages.

Each turn the chat template renders all messages to text, the text is encoded, and `model.generate` computes the whole
conversation again for a batch of one. No cache outlives a call, and no two episodes share one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from agents.policy import Sampling
from agents.rollout import Job
from benchmarks.peers.rollout_loop import Played, generate_settings, until_end
from envs.conversation import ConversationEnv
from envs.episode import CutReply


def play(
    model: Any, tokenizer: Any, eos_ids: frozenset[int], jobs: Sequence[Job], env: ConversationEnv, sampling: Sampling
) -> Played:
    """Play every job once, one after the other."""
    played, begin = Played(), time.perf_counter()
    settings = generate_settings(sampling, eos_ids, tokenizer.pad_token_id)
    for job in jobs:
        observation, _ = env.reset(seed=job.seed, options={"task": job.task})
        messages = [{"role": "system", "content": env.system_prompt}] if env.system_prompt else []
        messages.append({"role": "user", "content": observation})
        cap, over = min(sampling.max_tokens, job.task.budget.turn_tokens), False
        while not over:
            clock = time.perf_counter()
            text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            prompt = tokenizer(text, return_tensors="pt", add_special_tokens=False)
            with torch.no_grad():
                out = model.generate(
                    prompt["input_ids"], attention_mask=prompt["attention_mask"], max_new_tokens=cap, **settings
                )
            ids = until_end(out[0, prompt["input_ids"].shape[1] :].tolist(), eos_ids)
            played.model_seconds += time.perf_counter() - clock
            played.turns += 1
            played.tokens += len(ids)
            whole = ids[-1] in eos_ids
            reply = tokenizer.decode(ids[:-1] if whole else ids, skip_special_tokens=False)
            observation, _, terminated, truncated, info = env.step(reply if whole else CutReply(reply))
            over = terminated or truncated
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": observation}]
        played.episodes += 1
        played.passed += bool(info["passed"])
    played.seconds = time.perf_counter() - begin
    return played
