"""Ways to hold and run a model that this trainer was never run with: refused by name, before a model loads.

Each would change what is sampled, what is trained, or what a checkpoint holds, and none of them can be tried without
several GPUs or another package. A refusal is a line of text; a wrong number would be a month.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from transformers.integrations import get_available_reporting_integrations

LORA = "Use LoRA (adapter=lora) with dtype=bfloat16"
SMALLER = f"{LORA}, gradient_checkpointing, or a smaller per_device_train_batch_size"

_SWITCHES = {
    "deepspeed": f"DeepSpeed is untested here: it splits the weights that sampling reads. {SMALLER}.",
    "fsdp": f"FSDP is untested here: it splits the weights that sampling reads. {SMALLER}.",
    "parallelism_config": f"tensor, context and sequence parallelism are untested here. {SMALLER}.",
    "torch_compile": (
        "compiled training is untested here, and sampling would go around it; on a GPU sampling has its own CUDA "
        "graphs. Leave it off."
    ),
    "use_liger_kernel": (
        "Liger's kernels replace layers in training only, so sampled and trained log-probabilities would differ. "
        "Leave it off: the log-probabilities are computed in chunks without it."
    ),
    "model_init_kwargs": "the model is loaded before the trainer is made. Use model_name_or_path and dtype.",
    "sync_ref_model": "the KL is measured from where the run started, so the reference never moves. Leave it off.",
}
"""Settings that are refused wherever they are set, with the reason and the remedy."""

_LAUNCHERS = {
    "ACCELERATE_USE_DEEPSPEED": "DeepSpeed",
    "ACCELERATE_USE_FSDP": "FSDP",
    "ACCELERATE_USE_PARALLELISM_CONFIG": "tensor or context parallelism",
    "ACCELERATE_USE_MEGATRON_LM": "Megatron",
}
"""What `accelerate launch` sets in the environment."""


def backend_problems(config: Any) -> Iterator[str]:
    """One line per setting of the `TrainingArguments` that needs a backend which is not supported."""
    for name, reason in _SWITCHES.items():
        value = getattr(config, name, None)
        if value:
            yield f"{name}={value!r}: {reason}"
    if getattr(config, "fsdp_config", None) and not getattr(config, "fsdp", None) and _set(config.fsdp_config):
        yield f"fsdp_config: {_SWITCHES['fsdp']}"
    yield from reporting_problems(config.report_to)
    for variable, name in _LAUNCHERS.items():
        if os.environ.get(variable, "false").lower() in ("true", "1"):
            yield f"accelerate launches {name} ({variable}): untested here. Choose plain multi-GPU. {SMALLER}."


def reporting_problems(report_to: Any) -> Iterator[str]:
    """One line per tracker that transformers does not know or that is not installed."""
    names = [report_to] if isinstance(report_to, str) else list(report_to or ())
    there = get_available_reporting_integrations()
    for name in names:
        if name not in ("none", "all", *there):
            here = f"here there are {', '.join(there)}" if there else "none is installed here"
            yield f"report_to={name}: no tracker of that name is installed ({here}). Install it, or leave it out."


AUTOCAST = "choose the weights' type with dtype, which sampling and training share"


def refuse_early(deepspeed: Any, *, autocast: str = "") -> None:
    """Refuse what transformers would look a package or a GPU up for while it reads the settings.

    Args:
        deepspeed: The setting.
        autocast: Which of bf16 and fp16 is on, where there is no GPU.

    Raises:
        ValueError: DeepSpeed is asked for, or autocast where transformers' own message would send people astray.
    """
    if autocast:
        raise ValueError(f"{autocast}: autocast is always refused here. Leave it off and {AUTOCAST}.")
    if deepspeed:
        raise ValueError(f"deepspeed={deepspeed!r}: {_SWITCHES['deepspeed']}")


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


def _set(fsdp_config: Any) -> bool:
    """Whether anything in it differs from what transformers fills in."""
    if not isinstance(fsdp_config, Mapping):
        return True
    return any(value for key, value in fsdp_config.items() if key not in ("min_num_params", "xla", "xla_fsdp_v2"))
