"""Settings of what a run plays and who plays it: tasks, environment, sandbox, policy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

from envs.registry import BUILT_IN
from sandboxes.sandbox import Backend
from tasks.settings import Settings, idle, setting, unless

# -- Settings of the environment: which one, which tasks, and where their commands run --------------------------------


@dataclass
class EnvArguments(Settings):
    """Which environment, which tasks, and where their commands run."""

    env: str = setting(
        "ClawGym-v0", f"Environment: {' | '.join(BUILT_IN)}, or one of your own (module:Id-v0).", common=True
    )
    tasks: str = setting(
        "generated:quickstart?n=2000&seed=1",
        "Tasks to train on: a YAML file, a folder, `library`, `generated:<family>?n=..&seed=..`, "
        "`gsm8k:PATH` and the like; several with commas between (in YAML also as a list).",
        common=True,
    )
    held_out: str = setting(
        "split",
        "Tasks only measured on: a source like `tasks`; `split` holds out a part of `tasks`; FILE.lock "
        "takes both sides out of `tasks`, as `python -m tasks split` locked them; `none` measures nothing, and "
        "then nothing selects a checkpoint.",
        common=True,
    )
    held_out_fraction: float = setting(0.25, "Share of `tasks` held out by `split`.")
    unseen_families: str = setting(
        "0",
        "held_out=split: families only measured on, as a set of its own: a number, or names.",
    )
    held_out_limit: int | None = setting(
        None, "Measure on the first N tasks of each held-out set only; 0 = all.", off=0, above=0, unit="tasks"
    )
    confirm: float = setting(
        0.1,
        "Share of the run's tasks to measure start and `best/` on once more at the end, on which nothing "
        "was trained or chosen (20 to 500): of generated families fresh tasks, else a third side of the split, out "
        "of the pool; 0 = leave it out.",
        low=0,
        high=0.5,
    )
    allow_in_process_judges: bool = setting(
        False,
        "Take tasks whose judge runs the agent's code in its own process, where that code can write the "
        "verdict; they are left out otherwise.",
    )
    allow_exposed_judges: bool = setting(
        False,
        "Take tasks whose judge runs code of the agent also where the sandbox cannot keep the two apart "
        "(judge_isolation: none); refused otherwise.",
    )
    sandbox: str = setting(
        "auto",
        f"{' | '.join(('auto', *Backend))} (isolates nothing, only by its name).",
        choices=("auto", *Backend),
        common=True,
    )
    max_turns: int | None = setting(
        None, "Turns per episode; 0 takes each task's own budget.", off=0, above=0, unit="turns"
    )
    reward: str = setting(
        "shaped", "shaped (rate minus a share of turns) | binary | delta | one of your own.", common=True
    )
    turn_penalty: float = setting(0.2, "shaped: reward lost by using the whole turn budget.")
    subtract_baseline: bool = setting(
        False, "Measure the rate from the untouched workspace's rate, so that a no-op earns 0."
    )
    agent_errors: str = setting(
        "fail",
        "What counts where the agent kept itself from being judged (a check broke on what it made, its "
        "sandbox was lost twice): fail | error (no grade and no reward, in no mean).",
    )
    prompt_style: str = setting(
        "auto", "auto (what the policy was made for) | standard | compact | base (questions, base models)."
    )
    tools: bool = setting(True, "Questions: the agent may run bash before it answers; false: it only answers.")
    revise: int = setting(0, "IFEval: times an answer may be revised once it is told what it misses.")
    sandbox_workers: int | None = setting(None, "Threads that step environments; 0 = number of cores.", off=0, above=0)
    slots: int = setting(32, "Episodes in flight at a time (sandboxes kept warm).", low=1)


# -- Settings of the policy: which model acts and learns --------------------------------------------------------------

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
