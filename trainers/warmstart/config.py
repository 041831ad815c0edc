"""Settings of supervised fine-tuning: one dataclass, from a YAML file with flags on top."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.prompts import ANSWER_STYLES, STYLES
from tasks.settings import Settings, problems, setting, written
from trainers.errors import ConfigError
from trainers.settings.environment import DTYPES
from trainers.settings.parsing import known_settings, read_config, suggest
from trainers.warmstart.model import ModelShape

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
WARM_START = CONFIGS / "warm_start.yaml"
"""The recipe of the shipped quickstart policy."""


STYLE_NAMES = tuple(dict.fromkeys(("auto", *STYLES, *ANSWER_STYLES)))
DEMONSTRATIONS = "compact"
"""Prompt style of generated demonstrations."""


class SFTConfigError(ValueError):
    """A setting is unknown or cannot work; the message names it."""


def demonstration_maker() -> Any:
    """What generates demonstrations: `benchmarks/warm_start` of the repository, which is no part of the package.

    Raises:
        SFTConfigError: It is not here.
    """
    try:
        return importlib.import_module("benchmarks.warm_start.corpus")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("benchmarks"):
            raise
        raise SFTConfigError(
            "data: none is named, so demonstrations would be generated, and what generates them comes with the "
            "repository and not with the package. Name --data and --model_name_or_path, or run this in the top folder "
            "of a checkout of the repository"
        ) from error


@dataclass(frozen=True)
class SFTSettings(Settings):
    """What to train, on what, and how. The defaults suit an existing model; `warm_start.yaml` makes a new one."""

    output_dir: str = setting("runs/sft", "Where the model goes; refused when occupied.")
    overwrite: bool = setting(False, "Replace what is in `output_dir`.")
    model_name_or_path: str | None = setting(
        None, "Model to go on from: `quickstart`, `smollm2`, a folder or a hub id. None builds a new one."
    )
    data: str | None = setting(
        None,
        "JSONL of trajectories (`trajectories/*.jsonl` of a run) or of {'messages': [...]}. "
        "None generates demonstrations of the quickstart families.",
    )
    prompt_style: str = setting(
        "auto",
        "How the data speaks, for the model's card: auto (as trajectories say, else as the model was made "
        "for) | standard | compact | base.",
        choices=STYLE_NAMES,
    )
    passed_only: bool = setting(True, "Of trajectories, keep those that passed.")
    n_demonstrations: int = setting(200_000, "Demonstrations to generate.", low=1)
    recipe: dict[str, Any] = setting(dict, "Faults of demonstrations (a flag takes JSON).")
    model: dict[str, Any] = setting(dict, "Shape of a new model (a flag takes JSON).")
    min_piece_count: int = setting(20, "New tokenizer: how often a piece must occur.", low=1)
    seed: int = setting(0, "Seeds data, order and initial weights.", low=0)
    device: str = setting("auto", "auto | cpu | cuda | cuda:1 ...")
    processes: int | None = setting(None, "Processes that make data; 0 = number of cores.", off=0, above=0)
    epochs: float = setting(1.0, "Passes over the data.", above=0)
    max_steps: int | None = setting(None, "Stop after this many steps (the schedule fits); 0 = epochs.", off=0, above=0)
    batch_tokens: int = setting(8192, "Tokens of a batch, padding included.", low=1)
    max_length: int = setting(2048, "Leave out conversations of more tokens than this.", low=1)
    learning_rate: float = setting(2e-5, "Peak learning rate.", above=0)
    warmup_steps: int = setting(10, "Steps of linear warm-up; a cosine to 0 follows.", low=0)
    weight_decay: float = setting(0.1, "AdamW weight decay of the matrices.", low=0)
    beta1: float = setting(0.9, "AdamW first moment.", low=0, below=1)
    beta2: float = setting(0.98, "AdamW second moment.", low=0, below=1)
    max_grad_norm: float = setting(1.0, "Gradients are clipped to this norm.", above=0)
    context_weight: float = setting(0.0, "Loss weight of tokens the policy only reads.", low=0)
    context_until: float = setting(0.5, "Share of the run after which that weight is 0.", low=0, high=1)
    lora_r: int | None = setting(None, "LoRA rank (needs peft); 0 trains all weights.", off=0, above=0)
    lora_alpha: int = setting(32, "LoRA scale.", low=1)
    save_dtype: str = setting("float32", "Weights on disk: float32 | bfloat16 | float16.", choices=DTYPES)
    logging_steps: int = setting(20, "Print and record every N steps.", low=1)

    def __post_init__(self) -> None:
        """Check what can be checked without the data.

        Raises:
            SFTConfigError: A value cannot work.
        """
        Settings.__post_init__(self)
        if wrong := list(problems(self)):
            raise SFTConfigError("\n".join(wrong))
        if self.data is None and self.prompt_style not in ("auto", DEMONSTRATIONS):
            raise SFTConfigError(
                f"prompt_style={self.prompt_style}: generated demonstrations speak {DEMONSTRATIONS}; name data= of "
                "another style, or leave it out"
            )
        if self.lora_r and self.model_name_or_path is None:
            raise SFTConfigError("lora_r: a new model has nothing to adapt; name one with model_name_or_path")
        if self.data is not None and self.model_name_or_path is None:
            raise SFTConfigError(
                "data without model_name_or_path: a new small model knows only the quickstart vocabulary. "
                "Name the model to train, for example --model_name_or_path quickstart"
            )
        self.shape()
        if self.data is None:
            self.faults()

    def faults(self) -> Any:
        """The faults of the demonstrations, a `Recipe` of `demonstration_maker`.

        Raises:
            SFTConfigError: An unknown key under `recipe`, no probability, or nothing here generates demonstrations.
        """
        kind = demonstration_maker().Recipe
        _known(self.recipe, kind, "recipe")
        try:
            return kind(**self.recipe)
        except (ValueError, TypeError, AttributeError) as error:
            raise SFTConfigError(str(error)) from error

    def shape(self) -> ModelShape:
        """The new model's shape.

        Raises:
            SFTConfigError: An unknown key under `model`.
        """
        _known(self.model, ModelShape, "model")
        return ModelShape(**self.model)

    def to_json(self) -> dict[str, Any]:
        """The settings that shape the weights: not where they are made and go, nor what their card says."""
        here = ("output_dir", "overwrite", "device", "processes", "logging_steps", "prompt_style")
        return {name: value for name, value in written(self).items() if name not in here}


def load_settings(path: Path | None, flags: Mapping[str, Any]) -> SFTSettings:
    """Settings of a YAML file (none: the defaults) with flags on top.

    Raises:
        SFTConfigError: No such file, no mapping, an unknown key, or a value that cannot work.
    """
    try:
        values = {} if path is None else read_config(path, (SFTSettings,))
    except ConfigError as error:
        raise SFTConfigError(str(error)) from error
    return SFTSettings(**{**values, **flags})


def _known(given: Mapping[str, Any], kind: Any, where: str) -> None:
    for name in given:
        if name not in (known := known_settings((kind,))):
            raise SFTConfigError(f"{where}.{name}: no such setting{suggest(name, known)}")
