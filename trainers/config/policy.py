"""Settings of the policy: which model acts and learns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from tasks.settings import Settings, idle, setting, unless

ADAPTERS = ("auto", "lora", "none")
DTYPES = ("float32", "bfloat16", "float16")


NO_DROPOUT = (
    "would do nothing, dropout is off in training (sampling runs without it, and what was sampled is trained). Set it "
    "to 0."
)
_ADAPTED = unless(lambda c: c.full, ": all weights are trained (adapter)")


@dataclass
class PolicyArguments(Settings):
    """Which model acts and learns."""

    model_name_or_path: str = setting(
        "quickstart",
        "`quickstart` (ships with us), `smollm2`, a local folder (a model, or an adapter, which then goes "
        "on learning), or a hub id.",
        common=True,
    )
    dtype: str = setting("float32", "Weights: float32 | bfloat16 | float16.", choices=DTYPES, common=True)
    torch_threads: int | None = setting(
        None, "CPU threads of torch; 0 = one for a small policy, else all cores.", off=0, above=0
    )
    adapter: str = setting(
        "auto",
        "auto (LoRA, but the quickstart policy in full) | lora | none (train all weights).",
        choices=ADAPTERS,
        common=True,
    )
    lora_r: int = setting(16, "LoRA rank.", low=1, needs=(_ADAPTED,))
    lora_alpha: int = setting(32, "LoRA scale.", low=1, needs=(_ADAPTED,))
    lora_dropout: float = setting(
        0.0, "Always 0: what was sampled is trained, and sampling runs without dropout.", refused=NO_DROPOUT
    )
    lora_target_modules: str = setting("all-linear", "LoRA targets, comma separated.", needs=(_ADAPTED,))

    @property
    def full(self) -> bool:
        """Whether all weights are trained (of a model; an adapter is never trained so)."""
        return self.adapter == "none" or (self.adapter == "auto" and self.model_name_or_path == "quickstart")

    def policy_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        if not self.model_name_or_path.strip():
            yield "model_name_or_path: is empty; name a folder or a hub id, or leave it out for the quickstart policy."
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
        if not is_adapter:
            yield from idle(self)
            return
        for f in fields(self):
            if f.name.startswith("lora_") and getattr(self, f.name) != f.default:
                given = f"{f.name}={getattr(self, f.name)}"
                yield f"{given} does nothing: the adapter in {self.model_name_or_path} has its own settings"
