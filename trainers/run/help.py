"""`python -m trainers.grpo --help`: the flags a newcomer needs, from our own dataclasses, without importing TRL."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from agents.t2po import T2POConfig
from tasks.settings import Settings, plain, rules_of
from trainers.config import (
    CreditSettings,
    EnvArguments,
    GuardFields,
    HeldOutFields,
    PolicyArguments,
    RolloutFields,
    TRLFields,
)

CONFIGS = Path(__file__).parent.parent / "configs"
QUICKSTART = CONFIGS / "quickstart.yaml"
TASKS = (
    ("what is trained on what", (EnvArguments, PolicyArguments)),
    ("how long and how fast", (TRLFields,)),
    ("what chooses and stops", (HeldOutFields, GuardFields)),
    ("credit", (CreditSettings,)),
    ("replies and sampling", (T2POConfig, RolloutFields)),
)
"""Groups of the short help, by what somebody wants to change."""


def asks_for_help(args: Sequence[str]) -> bool:
    """Whether a command line asks for the short help."""
    return "-h" in args or "--help" in args


def short_help() -> str:
    """The flags that matter most, by what they change, with defaults."""
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
        "  --help-all         all settings: ours, TRL's and transformers'",
    ]
    quickstart = yaml.safe_load(QUICKSTART.read_text(encoding="utf-8"))
    for title, groups in TASKS:
        lines += ["", f"{title}:"]
        for group in groups:
            lines += _flags(group, quickstart)
    return "\n".join(lines)


def _flags(group: type[Settings], quickstart: dict[str, Any]) -> Iterator[str]:
    for f in dataclasses.fields(group):  # type: ignore[arg-type]
        rules = rules_of(f)
        if rules.common:
            default = rules.off if f.default is None else plain(f.default)
            shown = f"{default}; quickstart: {quickstart[f.name]}" if f.name in quickstart else f"{default}"
            yield f"  --{f.name} ({shown})"
            yield f"      {f.metadata['help'].replace('%%', '%')}"
