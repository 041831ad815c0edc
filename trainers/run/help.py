"""`python -m trainers.grpo --help`: the flags a newcomer needs, from our own dataclasses, without importing TRL."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from agents.t2po import T2POConfig
from trainers.config import (
    CreditFields,
    EnvArguments,
    GuardFields,
    HeldOutFields,
    PolicyArguments,
    RolloutFields,
    TRLFields,
)
from trainers.config.credit import DETAILS
from trainers.config.rollouts import RARE as RARE_ROLLOUTS

CONFIGS = Path(__file__).parent.parent / "configs"
QUICKSTART = CONFIGS / "quickstart.yaml"
OURS = (CreditFields, HeldOutFields, RolloutFields, GuardFields)
RARE = {
    "num_generations_eval",
    "bf16",
    "logging_steps",
    "shuffle_dataset",
    "eval_strategy",
    "eval_on_start",
    "save_strategy",
    "save_total_limit",
}
"""Of `TRLFields`, what `--help-all` is enough for."""
COMMON = [
    *(f.name for f in dataclasses.fields(TRLFields) if f.name not in RARE),
    *(f.name for part in OURS for f in dataclasses.fields(part)),
]
"""Fields of `GiGPOConfig` that the short help shows and a run always records; the rest are TRL's."""


def asks_for_help(args: Sequence[str]) -> bool:
    """Whether a command line asks for the short help."""
    return "-h" in args or "--help" in args


def short_help() -> str:
    """The flags a newcomer needs, in groups, with defaults."""
    lines = [
        "usage: python -m trainers.grpo [--config FILE] [--flag value ...] [--dry-run]",
        "",
        "Trains a policy on multi-turn tasks and keeps the checkpoint that is best on held-out tasks.",
        "",
        "  python -m trainers.grpo                                  the quickstart, about 5 minutes on 2 cores",
        "  python -m trainers.grpo --tasks my_tasks/                the quickstart policy on your task YAMLs",
        "  python -m trainers.grpo --tasks my_tasks/ --env ClawGym-v0 --model_name_or_path Qwen/Qwen2.5-1.5B-Instruct",
        "  python -m trainers.grpo --resume                         go on after an interruption",
        "  accelerate launch --num_processes 2 -m trainers.grpo     on two GPUs (each has per_device_train_batch_size)",
        "",
        "  --config FILE      settings from YAML (flags win); the quickstart policy without it: quickstart.yaml",
        "  --from STEP        with --resume: go back to the checkpoint of that step (default: the newest)",
        "  --dry-run          check everything, print the settings, load no model",
        "  --help-all         also all of TRL's and transformers' settings",
    ]
    quickstart = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
    titles: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("tasks and environment", (EnvArguments,)),
        ("policy", (PolicyArguments,)),
        ("T2PO wrapper", (T2POConfig,)),
        ("training", (TRLFields, *OURS)),
    )
    for title, parts in titles:
        lines += ["", f"{title}:"]
        for part in parts:
            lines += _flags(part, quickstart)
    return "\n".join(lines)


def _flags(part: Any, quickstart: dict[str, Any]) -> Iterator[str]:
    for f in dataclasses.fields(part):
        if (part is TRLFields and f.name in RARE) or f.name in DETAILS | RARE_ROLLOUTS:
            continue
        default = f.default if f.default is not dataclasses.MISSING else ""
        shown = f"{default}; quickstart: {quickstart[f.name]}" if f.name in quickstart else f"{default}"
        yield f"  --{f.name} ({shown})"
        yield f"      {f.metadata.get('help', '').replace('%%', '%')}"
