"""What guards are told about a run before its first step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from agents.models.card import read_card
from agents.policy import Sampling
from agents.t2po import T2PO
from trainers.gigpo import GiGPOTrainer
from trainers.guards import Facts
from trainers.run.setup import Run, reply_cap


def facts_of(run: Run, trainer: GiGPOTrainer, tokenizer: Any) -> Facts:
    """The facts of a run that is put together."""
    config, facts = run.settings.config, trainer_facts(trainer, tokenizer)
    raw = run.prompt_style == "base"
    return replace(
        facts,
        config=config,
        pool=run.tasks.pool,
        held_out=run.tasks.measured,
        choice=run.tasks.split.choice,
        sampling=Sampling(config.temperature, reply_cap(run)),
        environment=run.settings.env.env,
        prompt_hash=run.prompt_hash,
        card=read_card(run.model_folder),
        raw_prompts=raw,
        overrun=None if raw else facts.overrun,
        self_test=run.self_test,
        resample_rate=run.settings.t2po.turn_resample_rate,
    )


def trainer_facts(trainer: GiGPOTrainer, tokenizer: Any = None) -> Facts:
    """What a trainer knows by itself: not its environment's prompts, the policy's card or how the sides were chosen."""
    policy, config = trainer.policy, trainer.args
    tokenizer = trainer.processing_class if tokenizer is None else tokenizer
    inner = policy.policy if isinstance(policy, T2PO) else policy
    dtype = str(next(trainer.model.parameters()).dtype).removeprefix("torch.")
    resamples = isinstance(policy, T2PO) and policy.config.turn_resample
    held_out = trainer.held_out
    return Facts(
        config=config,
        pool=list(trainer.rollouts.pool.values()),
        held_out=held_out.everything if held_out is not None else (),
        sampling=trainer.rollouts.sampling,
        arms=dict(held_out.arms) if held_out is not None else {},
        template_ids=template_tokens(tokenizer),
        overrun=trainer.engine.template.overrun if tokenizer.chat_template else None,
        pad_id=tokenizer.pad_token_id,
        eos_ids=frozenset(policy.eos_ids),
        exact=trainer.rollouts.exact,
        sampler=type(inner).__name__,
        dtype=dtype,
        training_dtype="bfloat16" if config.bf16 else "float16" if config.fp16 else dtype,
        resampling=policy.warning if isinstance(policy, T2PO) and resamples else None,
        parameters=sum(p.numel() for p in trainer.model.parameters()),
    )


def template_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Special tokens that the chat template puts around a message; none where there is no template."""
    if not tokenizer.chat_template:
        return ()
    text = tokenizer.apply_chat_template([{"role": "user", "content": "x"}], add_generation_prompt=True, tokenize=False)
    return tuple(token for token in tokenizer.all_special_tokens if token in text)
