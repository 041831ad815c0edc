"""Settings of the environment: which one, which tasks, and where their commands run."""

from __future__ import annotations

from dataclasses import dataclass, field

from envs.registry import BUILT_IN
from sandboxes.sandbox import Backend


@dataclass
class EnvArguments:
    """Which environment, which tasks, and where their commands run."""

    env: str = field(
        default="ClawGym-v0",
        metadata={"help": f"Environment: {' | '.join(BUILT_IN)}, or one of your own (module:Id-v0)."},
    )
    tasks: str = field(
        default="generated:quickstart?n=2000&seed=1",
        metadata={
            "help": "Tasks to train on: a YAML file, a folder, `library`, `generated:<family>?n=..&seed=..`, "
            "`gsm8k:PATH` and the like; several with commas between (in YAML also as a list)."
        },
    )
    held_out: str = field(
        default="split",
        metadata={
            "help": "Tasks only measured on: a source like `tasks`; `split` holds out a part of `tasks`; FILE.lock "
            "takes both sides out of `tasks`, as `python -m tasks split` locked them; `none` measures nothing, and "
            "then nothing selects a checkpoint."
        },
    )
    held_out_fraction: float = field(default=0.25, metadata={"help": "Share of `tasks` held out by `split`."})
    unseen_families: str = field(
        default="0",
        metadata={"help": "held_out=split: families only measured on, as a set of its own: a number, or names."},
    )
    held_out_limit: int = field(
        default=0, metadata={"help": "Measure on the first N tasks of each held-out set only; 0 = all."}
    )
    confirm: float = field(
        default=0.1,
        metadata={
            "help": "Share of the run's tasks to measure start and `best/` on once more at the end, on which nothing "
            "was trained or chosen (20 to 500): of generated families fresh tasks, else a third side of the split, out "
            "of the pool; 0 = leave it out."
        },
    )
    allow_in_process_judges: bool = field(
        default=False,
        metadata={
            "help": "Take tasks whose judge runs the agent's code in its own process, where that code can write the "
            "verdict; they are left out otherwise."
        },
    )
    allow_exposed_judges: bool = field(
        default=False,
        metadata={
            "help": "Take tasks whose judge runs code of the agent also where the sandbox cannot keep the two apart "
            "(judge_isolation: none); refused otherwise."
        },
    )
    sandbox: str = field(
        default="auto", metadata={"help": f"{' | '.join(('auto', *Backend))} (isolates nothing, only by its name)."}
    )
    max_turns: int = field(default=0, metadata={"help": "Turns per episode; 0 takes each task's own budget."})
    reward: str = field(
        default="shaped", metadata={"help": "shaped (rate minus a share of turns) | binary | delta | one of your own."}
    )
    turn_penalty: float = field(default=0.2, metadata={"help": "shaped: reward lost by using the whole turn budget."})
    subtract_baseline: bool = field(
        default=False,
        metadata={"help": "Measure the rate from the untouched workspace's rate, so that a no-op earns 0."},
    )
    agent_errors: str = field(
        default="fail",
        metadata={
            "help": "What counts where the agent kept itself from being judged (a check broke on what it made, its "
            "sandbox was lost twice): fail | error (no grade and no reward, in no mean)."
        },
    )
    prompt_style: str = field(
        default="auto",
        metadata={"help": "auto (what the policy was made for) | standard | compact | base (questions, base models)."},
    )
    tools: bool = field(
        default=True, metadata={"help": "Questions: the agent may run bash before it answers; false: it only answers."}
    )
    revise: int = field(
        default=0, metadata={"help": "IFEval: times an answer may be revised once it is told what it misses."}
    )
    sandbox_workers: int = field(default=0, metadata={"help": "Threads that step environments; 0 = number of cores."})
    slots: int = field(default=32, metadata={"help": "Episodes in flight at a time (sandboxes kept warm)."})
