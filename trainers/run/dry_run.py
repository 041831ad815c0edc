"""`--dry-run`: what would run, what of it was checked and what could not be, and whether it fits; loads no model."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from trainers.run.memory import MAIN_MEMORY, Load, estimate, lines, machine
from trainers.run.policy_setup import check_tokenizer, find_shape, what_is_trained
from trainers.run.setup import Run, most_turns, reply_cap, unseen_text
from trainers.run.shapes import NAMED, DecoderShape
from trainers.run.t2po_setup import check_t2po

MESSAGE_TOKENS = {"compact": 70, "standard": 400}
"""What one message of the environment is counted with; an observation can be longer (both styles cut it)."""
CHARACTERS = 3
"""Of English text and shell output per token, at least."""


def describe(run: Run) -> str:
    """The settings as `--config` takes them back, under what is known about them as comments.

    Raises:
        ConfigError: The tokenizer cannot carry the conversation.
    """
    c = run.settings.config
    trained = what_is_trained(run.settings.policy, run.source)
    about = [
        "dry run: settings, tasks and sandbox are right; no model was loaded",
        f"pool {len(run.tasks.pool)} tasks, held-out {len(run.tasks.held_out)} tasks{unseen_text(run.tasks)} "
        "(none in both)",
        f"confirmation at the end: {run.tasks.confirm_text}",
        f"sandbox {run.backend}; policy {run.model_folder}; prompt style {run.prompt_style}",
        f"trained: {trained.text}; KL {_reference(run)}",
        f"{c.max_steps} steps of {c.generation_batch_size // c.num_generations} tasks x {c.num_generations} attempts",
        *check_policy(run),
        *memory_lines(run),
        *[f"note: {note}" for note in run.notes()],
        *[f"self-test: {line.strip()}" for line in run.coverage.splitlines()],
        f"settings hash {run.sha256}",
    ]
    settings = yaml.safe_dump(run.settings.resolved(), sort_keys=False).rstrip()
    return "\n".join([*(f"# {line}" for line in about), settings])


def check_policy(run: Run) -> list[str]:
    """What the tokenizer says, T2PO's tags included.

    Raises:
        ConfigError: It cannot carry the conversation, or has no tokens for the tags.
    """
    found = check_tokenizer(run.source, raw=run.raw_prompts)
    if run.t2po is None or not run.t2po.thinks:
        return found.lines
    if found.tokenizer is None:
        return [*found.lines, "think tags: not checked either"]
    check_t2po(run.t2po, found.tokenizer)
    return [*found.lines, f"think tags: {run.t2po.think_open} and {run.t2po.think_close} are one token each"]


def memory_lines(run: Run) -> Iterator[str]:
    """The memory estimate, or why there is none."""
    shape = find_shape(run.source)
    if shape is None:
        yield (
            "memory: unknown, the shape of this model is not known here (known: config.json of llama, mistral, qwen2 "
            f"and qwen3 models on this machine, and by name {', '.join(NAMED)})"
        )
        return
    load = load_of(run, shape)
    longest = longest_episode(run)
    yield from lines(load, estimate(load), machine(use_cpu=run.settings.config.use_cpu))
    if longest > shape.context:
        yield f"  an episode could have {longest:,} tokens, and the model knows {shape.context:,}: it would end early"


def load_of(run: Run, shape: DecoderShape) -> Load:
    """What decides the memory of the run."""
    policy, c = run.settings.policy, run.settings.config
    trained = what_is_trained(policy, run.source)
    lora = shape.lora_parameters(trained.lora_r, trained.targets) if trained.lora_r else 0
    reference = 0
    if c.beta:
        reference = shape.parameters if not lora else lora if run.peft is None else 0
    # A GPU's copy of the start waits in main memory.
    keeps = bool(run.tasks.confirm) and machine(use_cpu=c.use_cpu).name == MAIN_MEMORY
    return Load(
        shape=shape,
        dtype=policy.dtype,
        lora=lora,
        lora_r=trained.lora_r,
        reference=reference,
        batch=c.per_device_train_batch_size,
        slots=episodes_at_once(run),
        longest=min(longest_episode(run), shape.context),
        checkpointing=bool(c.gradient_checkpointing or c.activation_checkpointing),
        start=(lora or shape.parameters) if keeps else 0,
    )


def episodes_at_once(run: Run) -> int:
    """Episodes that one process has in flight: of a step, or of the larger side of an evaluation."""
    c, side = run.settings.config, max(map(len, (run.tasks.held_out, run.tasks.unseen, run.tasks.confirm)))
    most = max(c.generation_batch_size, side * c.held_out_samples)
    return min(run.settings.env.slots, -(-most // c.world_size))


def longest_episode(run: Run) -> int:
    """Tokens of an episode that uses every turn and every token of each reply."""
    said = MESSAGE_TOKENS.get(run.prompt_style, MESSAGE_TOKENS["standard"])
    intent = max(len(task.intent) for task in run.tasks.everything) // CHARACTERS
    return said + intent + most_turns(run) * (reply_cap(run) + said)


def _reference(run: Run) -> str:
    beta = run.settings.config.beta
    if not beta:
        return "off (beta 0), no reference in memory"
    if run.peft is not None:
        return f"{beta:g} from the model without its adapter"
    return f"{beta:g} from a frozen copy of what the run starts with"
