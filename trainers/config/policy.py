"""Settings of the policy: which model acts and learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

ADAPTERS = ("auto", "lora", "none")
DTYPES = ("float32", "bfloat16", "float16")


def dropout_problem(value: float) -> str:
    """Why an adapter has no dropout, whether its settings come from flags or from Python."""
    return (
        f"lora_dropout={value}: would do nothing, dropout is off in training (sampling runs without it, and what was "
        "sampled is trained). Set it to 0."
    )


@dataclass
class PolicyArguments:
    """Which model acts and learns."""

    model_name_or_path: str = field(
        default="quickstart",
        metadata={
            "help": "`quickstart` (ships with us), `smollm2`, a local folder (a model, or an adapter, which then goes "
            "on learning), or a hub id."
        },
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
    lora_dropout: float = field(
        default=0.0, metadata={"help": "Always 0: what was sampled is trained, and sampling runs without dropout."}
    )
    lora_target_modules: str = field(default="all-linear", metadata={"help": "LoRA targets, comma separated."})

    @property
    def full(self) -> bool:
        """Whether all weights are trained (of a model; an adapter is never trained so)."""
        return self.adapter == "none" or (self.adapter == "auto" and self.model_name_or_path == "quickstart")

    def policy_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        if not self.model_name_or_path.strip():
            yield "model_name_or_path: is empty; name a folder or a hub id, or leave it out for the quickstart policy."
        if self.adapter not in ADAPTERS:
            yield f"adapter={self.adapter!r}: one of {', '.join(ADAPTERS)}."
        if self.dtype not in DTYPES:
            yield f"dtype={self.dtype!r}: one of {', '.join(DTYPES)}."
        if self.torch_threads < 0:
            yield f"torch_threads={self.torch_threads}: 0 or more."
        if self.lora_r < 1 or self.lora_alpha <= 0:
            yield f"lora_r={self.lora_r}, lora_alpha={self.lora_alpha}: a rank and a scale are 1 or more."
        if self.lora_dropout != 0:
            yield dropout_problem(self.lora_dropout)
        if not [name for name in self.lora_target_modules.split(",") if name.strip()]:
            yield "lora_target_modules: names of layers with commas between, or all-linear."
        if "lm_head" in [name.strip() for name in self.lora_target_modules.split(",")]:
            yield (
                "lora_target_modules: lm_head: log-probabilities read the head's own weight, so an adapter on it would "
                "never be trained. Leave it out."
            )

    def idle_settings(self, *, is_adapter: bool) -> Iterator[str]:
        """Settings that were given and do nothing, one sentence each.

        Args:
            is_adapter: The run goes on with an adapter, whose own settings hold.
        """
        if self.full and self.dtype != "float32" and not is_adapter:
            yield (
                f"dtype={self.dtype} with all weights trained: an update under about 1/256 of a weight is rounded "
                "away, and most are at usual learning rates; use float32, or LoRA, whose adapter is float32"
            )
        fields = {f.name: f.default for f in self.__dataclass_fields__.values() if f.name.startswith("lora_")}
        given = {name: getattr(self, name) for name, default in fields.items() if getattr(self, name) != default}
        for name, value in given.items():
            if is_adapter:
                yield f"{name}={value} does nothing: the adapter in {self.model_name_or_path} has its own settings"
            elif self.full:
                yield f"{name}={value} does nothing: all weights are trained (adapter)"
