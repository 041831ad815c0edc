"""What guards are told about a run before its first step."""

from __future__ import annotations

from typing import Any

from agents.models.card import read_card
from agents.policy import Sampling
from agents.t2po import T2PO
from trainers.gigpo import GiGPOTrainer
from trainers.guards import Facts
from trainers.run.setup import Run, reply_cap


def facts_of(run: Run, trainer: GiGPOTrainer, tokenizer: Any) -> Facts:
    """The facts of a run that is put together."""
    policy, config = trainer.policy, run.settings.config
    inner = policy.policy if isinstance(policy, T2PO) else policy
    dtype = str(next(trainer.model.parameters()).dtype).removeprefix("torch.")
    resamples = isinstance(policy, T2PO) and policy.config.turn_resample
    return Facts(
        config=config,
        pool=run.tasks.pool,
        held_out=run.tasks.held_out,
        choice=run.tasks.split.choice,
        sampling=Sampling(config.temperature, reply_cap(run)),
        arms=dict(trainer.held_out.arms) if trainer.held_out is not None else {},
        environment=run.settings.env.env,
        prompt_hash=run.prompt_hash,
        card=read_card(run.model_folder),
        raw_prompts=run.prompt_style == "base",
        template_ids=template_tokens(tokenizer),
        pad_id=tokenizer.pad_token_id,
        eos_ids=frozenset(policy.eos_ids),
        sampler=type(inner).__name__,
        dtype=dtype,
        training_dtype="bfloat16" if config.bf16 else "float16" if config.fp16 else dtype,
        self_test=run.self_test,
        resampling=policy.warning if isinstance(policy, T2PO) and resamples else None,
        resample_rate=run.settings.t2po.turn_resample_rate,
    )


def template_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Special tokens that the chat template puts around a message; none where there is no template."""
    if not tokenizer.chat_template:
        return ()
    text = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], add_generation_prompt=True, tokenize=False)
    return tuple(token for token in tokenizer.all_special_tokens if token in text)
