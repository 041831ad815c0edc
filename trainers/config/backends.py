"""Ways to hold and run a model that this trainer was never run with: refused by name, before a model loads.

Each would change what is sampled, what is trained, or what a checkpoint holds, and none of them can be tried without
several GPUs or another package. A refusal is a line of text; a wrong number would be a month. Plain switches stand in
`trainers.config.inherited`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from transformers.integrations import get_available_reporting_integrations

from trainers.config.inherited import LORA, REFUSED, SMALLER

_LAUNCHERS = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "tensor or context parallelism",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron",
}
"""What `accelerate launch` sets in the environment."""
_FILLED_IN = ("min_num_params", "xla", "xla_fsdp_v2")
"""Keys of `fsdp_config` that transformers sets itself."""


def backend_problems(config: Any) -> Iterator[str]:
    """One line per setting of the `TrainingArguments` that needs a backend which is not supported."""
    sharding = getattr(config, "fsdp_config", None)
    if isinstance(sharding, Mapping):
        sharding = any(value for key, value in sharding.items() if key not in _FILLED_IN)
    if sharding and not getattr(config, "fsdp", None):
        yield f"fsdp_config: {REFUSED['fsdp']}"
    yield from _reporting_problems(config.report_to)
    for variable, name in _LAUNCHERS.items():
        if os.environ.get(variable, "false").lower() in ("true", "1"):
            yield f"accelerate launches {name} ({variable}): untested here. Choose plain multi-GPU. {SMALLER}."


def _reporting_problems(report_to: Any) -> Iterator[str]:
    """One line per tracker that transformers does not know or that is not installed."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    there = get_available_reporting_integrations()
    for name in names:
        if name not in ("none", "all", *there):
            here = f"here there are {', '.join(there)}" if there else "none is installed here"
            yield f"report_to={name}: no tracker of that name is installed ({here}). Install it, or leave it out."


def quantization_problem(config: Mapping[str, Any]) -> str | None:
    """Why a model with this config.json cannot be trained: its weights are quantized. `None` where they are not."""
    found = config.get("quantization_config")
    if not found:
        return None
    method = found.get("quant_method", "unknown") if isinstance(found, Mapping) else "unknown"
    bits = next((b for b in ("4", "8") if isinstance(found, Mapping) and found.get(f"load_in_{b}bit")), "")
    return (
        f"its weights are quantized ({method}{f', {bits} bits' if bits else ''}): training on them is untested here. "
        f"{LORA} on the unquantized model"
    )
