"""Settings of supervised fine-tuning: one dataclass, from a YAML file with flags on top."""

from __future__ import annotations

import difflib
import importlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from envs.answer_prompts import ANSWER_STYLES
from envs.prompts import STYLES
from trainers.errors import ConfigError
from trainers.run.settings_file import read_settings
from trainers.warmstart.model import ModelShape

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
WARM_START = CONFIGS / "warm_start.yaml"
"""The recipe of the shipped quickstart policy."""


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
class SFTSettings:
    """What to train, on what, and how. The defaults suit an existing model; `warm_start.yaml` makes a new one."""

    output_dir: str = field(default="runs/sft", metadata={"help": "Where the model goes; refused when occupied."})
    overwrite: bool = field(default=False, metadata={"help": "Replace what is in `output_dir`."})
    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Model to go on from: `quickstart`, `smollm2`, a folder or a hub id. None builds a new one."},
    )
    data: str | None = field(
        default=None,
        metadata={
            "help": "JSONL of trajectories (`trajectories/*.jsonl` of a run) or of {'messages': [...]}. "
            "None generates demonstrations of the quickstart families."
        },
    )
    prompt_style: str = field(
        default="auto",
        metadata={
            "help": "How the data speaks, for the model's card: auto (as trajectories say, else as the model was made "
            "for) | standard | compact | base."
        },
    )
    passed_only: bool = field(default=True, metadata={"help": "Of trajectories, keep those that passed."})
    n_demonstrations: int = field(default=200_000, metadata={"help": "Demonstrations to generate."})
    recipe: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "Faults of demonstrations (a flag takes JSON)."}
    )
    model: dict[str, Any] = field(default_factory=dict, metadata={"help": "Shape of a new model (a flag takes JSON)."})
    min_piece_count: int = field(default=20, metadata={"help": "New tokenizer: how often a piece must occur."})
    seed: int = field(default=0, metadata={"help": "Seeds data, order and initial weights."})
    device: str = field(default="auto", metadata={"help": "auto | cpu | cuda | cuda:1 ..."})
    processes: int = field(default=0, metadata={"help": "Processes that make data; 0 = number of cores."})
    epochs: float = field(default=1.0, metadata={"help": "Passes over the data."})
    max_steps: int = field(default=0, metadata={"help": "Stop after this many steps (the schedule fits); 0 = epochs."})
    batch_tokens: int = field(default=8192, metadata={"help": "Tokens of a batch, padding included."})
    max_length: int = field(default=2048, metadata={"help": "Leave out conversations of more tokens than this."})
    learning_rate: float = field(default=2e-5, metadata={"help": "Peak learning rate."})
    warmup_steps: int = field(default=10, metadata={"help": "Steps of linear warm-up; a cosine to 0 follows."})
    weight_decay: float = field(default=0.1, metadata={"help": "AdamW weight decay of the matrices."})
    beta1: float = field(default=0.9, metadata={"help": "AdamW first moment."})
    beta2: float = field(default=0.98, metadata={"help": "AdamW second moment."})
    max_grad_norm: float = field(default=1.0, metadata={"help": "Gradients are clipped to this norm."})
    context_weight: float = field(default=0.0, metadata={"help": "Loss weight of tokens the policy only reads."})
    context_until: float = field(default=0.5, metadata={"help": "Share of the run after which that weight is 0."})
    lora_r: int = field(default=0, metadata={"help": "LoRA rank (needs peft); 0 trains all weights."})
    lora_alpha: int = field(default=32, metadata={"help": "LoRA scale."})
    save_dtype: str = field(default="float32", metadata={"help": "Weights on disk: float32 | bfloat16 | float16."})
    logging_steps: int = field(default=20, metadata={"help": "Print and record every N steps."})

    def __post_init__(self) -> None:
        """Check what can be checked without the data.

        Raises:
            SFTConfigError: A value cannot work.
        """
        for name in ("batch_tokens", "max_length", "logging_steps", "min_piece_count", "lora_alpha"):
            if getattr(self, name) < 1:
                raise SFTConfigError(f"{name}={getattr(self, name)}: must be 1 or more")
        for name in ("max_steps", "warmup_steps", "processes", "lora_r", "seed", "weight_decay", "context_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SFTConfigError(f"{name}={getattr(self, name)}: must be 0 or more")
        for name in ("learning_rate", "epochs", "max_grad_norm"):
            if not 0 < getattr(self, name) < math.inf:
                raise SFTConfigError(f"{name}={getattr(self, name)}: must be above 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise SFTConfigError(f"{name}={getattr(self, name)}: must be 0 or more, below 1")
        if self.data is None and self.n_demonstrations < 1:
            raise SFTConfigError(f"n_demonstrations={self.n_demonstrations}: must be 1 or more")
        styles = ("auto", *STYLES, *ANSWER_STYLES)
        if self.prompt_style not in styles:
            raise SFTConfigError(f"prompt_style={self.prompt_style!r}: one of {', '.join(dict.fromkeys(styles))}")
        if self.data is None and self.prompt_style not in ("auto", DEMONSTRATIONS):
            raise SFTConfigError(
                f"prompt_style={self.prompt_style}: generated demonstrations speak {DEMONSTRATIONS}; name data= of "
                "another style, or leave it out"
            )
        if self.save_dtype not in ("float32", "bfloat16", "float16"):
            raise SFTConfigError(f"save_dtype={self.save_dtype!r}: one of float32, bfloat16, float16")
        if not 0.0 <= self.context_until <= 1.0:
            raise SFTConfigError(f"context_until={self.context_until}: a share lies between 0 and 1")
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
        _known(dict.fromkeys(self.recipe, "recipe."), {f.name for f in fields(kind)})
        try:
            return kind(**self.recipe)
        except (ValueError, TypeError, AttributeError) as error:
            raise SFTConfigError(str(error)) from error

    def shape(self) -> ModelShape:
        """The new model's shape.

        Raises:
            SFTConfigError: An unknown key under `model`.
        """
        _known(dict.fromkeys(self.model, "model."), {f.name for f in fields(ModelShape)})
        return ModelShape(**self.model)

    def to_json(self) -> dict[str, Any]:
        """The settings that shape the weights: not where they are made and go, nor what their card says."""
        here = ("output_dir", "overwrite", "device", "processes", "logging_steps", "prompt_style")
        return {name: value for name, value in asdict(self).items() if name not in here}


def load_settings(path: Path | None, flags: Mapping[str, Any]) -> SFTSettings:
    """Settings of a YAML file (none: the defaults) with flags on top.

    Raises:
        SFTConfigError: No such file, no mapping, an unknown key, or a value that cannot work.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            document = read_settings(path)
        except ConfigError as error:
            raise SFTConfigError(str(error)) from error
        where = {name: f"{path}:{document.lines[name,]}: " for name in document.data}
        _known(where, {f.name for f in fields(SFTSettings)})
        values = {name: _typed(name, value, where[name]) for name, value in document.data.items()}
    return SFTSettings(**{**values, **flags})


def _typed(name: str, value: Any, where: str) -> Any:
    """Check a YAML value against the default's type; whole numbers serve as fractions, and `3e-3` is read as one."""
    default = next(f for f in fields(SFTSettings) if f.name == name)
    kind = str(default.type)
    if kind == "float" and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            return float(value)  # YAML 1.1 reads 3e-3, without a dot, as text
        except ValueError as error:
            raise SFTConfigError(f"{where}{name}={value!r}: must be a number") from error
    accepted: dict[str, tuple[type, ...]] = {
        "int": (int,), "str": (str,), "bool": (bool,), "str | None": (str, type(None)), "dict[str, Any]": (dict,),
    }  # fmt: skip
    wrong_bool = isinstance(value, bool) and kind != "bool"
    if kind in accepted and (wrong_bool or not isinstance(value, accepted[kind])):
        raise SFTConfigError(f"{where}{name}={value!r}: must be of type {kind}")
    return value


def _known(given: Mapping[str, str], known: set[str]) -> None:
    """`given`: where each setting stands, for the message."""
    for name, where in given.items():
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"
            raise SFTConfigError(f"{where}{name}: no such setting; {hint}")
