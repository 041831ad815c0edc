"""`python -m trainers.grpo --help`: the flags a newcomer needs, from our own dataclasses, without importing TRL."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from agents.t2po import T2POConfig
from tasks.settings import Settings, rules_of, shown_default
from trainers.settings import (
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
        if rules_of(f).common:
            quick = f"; quickstart: {quickstart[f.name]}" if f.name in quickstart else ""
            yield f"  --{f.name} ({shown_default(f)}{quick})"
            yield textwrap.fill(f.metadata["help"], 100, initial_indent=" " * 6, subsequent_indent=" " * 6)


def options_page() -> str:
    """The manual's page of our options, in Markdown."""
    lines = [
        "# Options of training",
        "",
        "Which settings `python -m trainers.grpo` has of its own, what each takes, and its default. Each is a flag,",
        "a key of a YAML file, and a field of one name. The options of TRL and transformers stand in `--help-all`.",
        "This page is made from the settings: `python -m tests.trainers.settings.test_options_page` writes it anew.",
    ]
    for title, groups in TASKS:
        lines += ["", f"## {title.capitalize()}", "", "| option | default | takes | what |", "|---|---|---|---|"]
        for f in (f for group in groups for f in dataclasses.fields(group)):
            rules = rules_of(f)
            takes = (", ".join(rules.choices) or rules.range()) + (f" ({rules.unit})" if rules.unit else "")
            what = f.metadata["help"] + (f" Source: {rules.source}." if rules.source else "")
            cells = (f"`{f.name}`", f"`{shown_default(f)}`", takes, what)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
