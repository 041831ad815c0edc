"""What a GPU chooses for settings that nobody gave: one table, applied once, before anything reads the settings.

A setting counts as given where a flag or a YAML file names it, whatever it says. What is chosen goes through the parser
as any default does, so that hash, `config.yaml` and every check see it; the file holds `device_preset: none` and the
values themselves, and a run that is resumed, here or on another machine, has those and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tasks.settings import plain
from trainers.rollouts.rules import VLLM
from trainers.settings.gigpo_config import GiGPOConfig
from trainers.settings.groups import EnvArguments, PolicyArguments


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU that trains: its name, its bytes (`free` of them now), and the formats that its hardware multiplies."""

    name: str
    total: int
    free: int
    bfloat16: bool = True
    tf32: bool = True


def find_gpu(*, use_cpu: bool) -> Gpu | None:
    """The GPU that training would use; `None` where it is a CPU."""
    import torch

    if use_cpu or not torch.cuda.is_available():
        return None
    free, total = torch.cuda.mem_get_info()
    bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return Gpu(torch.cuda.get_device_name(), total, free, bfloat16, torch.cuda.get_device_capability()[0] >= 8)


@dataclass(frozen=True)
class Asked:
    """What is known when something is chosen.

    Attributes:
        gpu: Which trains.
        chosen: What was chosen so far, by setting.
    """

    env: EnvArguments
    policy: PolicyArguments
    config: GiGPOConfig
    gpu: Gpu
    chosen: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """Of the weights."""
        return str(self.chosen.get("dtype", self.policy.dtype))

    @cached_property
    def adapter(self) -> dict[str, Any] | None:
        """Settings of the adapter that goes on learning; `None` where the policy is a whole model."""
        try:
            path = Path(self.policy.model_name_or_path).expanduser() / "adapter_config.json"
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):  # what is wrong with it is told where the policy is looked for
            return None
        return found if isinstance(found, dict) else None

    @property
    def new_adapter(self) -> bool:
        """A LoRA adapter begins with this run."""
        return not self.policy.full and self.adapter is None

    @property
    def learns_float32(self) -> bool:
        """What learns is in float32: PEFT keeps adapters so, whatever the weights under them are."""
        return self.dtype == "float32" or not self.policy.full or self.adapter is not None

    @property
    def merges(self) -> bool:
        """A merged copy can sample, as far as settings tell (see `agents.policies.merged`)."""
        if getattr(self.policy, "quantize", None) == "4bit":
            return False
        if self.adapter is not None:
            return not any(self.adapter.get(name) for name in ("use_dora", "modules_to_save", "lora_bias"))
        return self.policy.full or "embed_tokens" not in self.policy.lora_target_modules


LEAST, MOST = 32, 256
"""Episodes in flight that are chosen: the default at least, and so many that decoding is fast at most."""


def _dtype(a: Asked) -> str | None:
    """An adapter learns in float32 over weights in bfloat16: what they round is corrected (`importance_cap`)."""
    return "bfloat16" if a.new_adapter and a.gpu.bfloat16 else None


def _sample_dtype(a: Asked) -> str | None:
    """A merged copy decodes an adapter without its own products, and float32 weights at half the bytes."""
    served = a.config.sampler.startswith(VLLM)
    return "auto" if a.learns_float32 and a.merges and a.gpu.bfloat16 and not served else None


def _tf32(a: Asked) -> bool | None:
    return True if a.learns_float32 and a.gpu.tf32 else None


def _slots(a: Asked) -> int | None:
    """As many as the rows of a step, of one process."""
    rows = -(-a.config.rows_in_flight // a.config.world_size)
    return min(max(rows, LEAST), MOST)


def _micro_batch_tokens(a: Asked) -> str | None:
    """Passes by tokens, as the memory allows, where a pass may be cut so (see `trainers.passes`)."""
    c = a.config
    one_generation = (c.steps_per_generation or 1) % c.gradient_accumulation_steps == 0
    return "auto" if one_generation and c.top_entropy_quantile == 1 else None


class Row(NamedTuple):
    """A setting, and what is chosen for it; `None`: it stays as it is."""

    setting: str
    value: Callable[[Asked], Any]


PRESET = (
    Row("dtype", _dtype),
    Row("sample_dtype", _sample_dtype),
    Row("tf32", _tf32),
    Row("slots", _slots),
    Row("micro_batch_tokens", _micro_batch_tokens),
)
"""In this order: what stands above is known below."""


@dataclass(frozen=True, slots=True)
class Preset:
    """What was chosen.

    Attributes:
        chosen: Settings with their values.
        source: Whose choice it is, for people.
        idle: `device_preset=auto` was given where there is nothing to choose.
    """

    chosen: Mapping[str, Any] = field(default_factory=dict)
    source: str = ""
    idle: bool = False

    def line(self) -> str:
        """For people; empty where nothing was chosen."""
        parts = [f"{name}={json.dumps(value).strip(chr(34))}" for name, value in self.chosen.items()]
        return f"device preset ({self.source}): {', '.join(parts)}" if parts else ""


def choose(
    env: EnvArguments,
    policy: PolicyArguments,
    config: GiGPOConfig,
    given: Collection[str],
    written: Mapping[str, Any] | None = None,
) -> Preset:
    """What the device chooses for settings that were not given.

    Args:
        env: The settings without it.
        policy: The same.
        config: The same.
        given: Names of the settings that a flag or a file gives.
        written: What the run that is resumed began with: it holds, and nothing is chosen anew.
    """
    now = {name: value for part in (env, policy, config) for name, value in vars(part).items()}
    if written is not None:
        names = [row.setting for row in PRESET if row.setting in written and row.setting not in given]
        return Preset({name: written[name] for name in names if written[name] != plain(now[name])}, "as the run began")
    if config.device_preset != "auto":
        return Preset()
    gpu = find_gpu(use_cpu=config.use_cpu)
    if gpu is None:
        return Preset(idle="device_preset" in given)
    chosen: dict[str, Any] = {}
    for row in PRESET:
        value = row.value(Asked(env, policy, config, gpu, chosen)) if row.setting not in given else None
        if value is not None and value != plain(now[row.setting]):
            chosen[row.setting] = value
    return Preset(chosen, gpu.name)
