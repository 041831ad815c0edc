"""Settings of the policy: which model acts and learns."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class PolicyArguments:
    """Which model acts and learns."""

    model_name_or_path: str = field(
        default="quickstart",
        metadata={"help": "`quickstart` (ships with us), `smollm2`, a local folder, or a hub id."},
    )
    dtype: str = field(default="float32", metadata={"help": "Weights: float32 | bfloat16 | float16."})
    torch_threads: int = field(
        default=0, metadata={"help": "CPU threads of torch; 0 = one for a small policy, else all cores."}
    )
    adapter: str = field(
        default="auto",
        metadata={"help": "auto (LoRA, but the quickstart policy in full) | lora | none (train all weights)."},
    )
    lora_r: int = field(default=16, metadata={"help": "LoRA rank."})
    lora_alpha: int = field(default=32, metadata={"help": "LoRA scale."})
    lora_target_modules: str = field(default="all-linear", metadata={"help": "LoRA targets, comma separated."})
