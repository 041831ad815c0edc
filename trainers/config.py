"""What a run is made of: four dataclasses, one YAML file, flags on top.

`GiGPOConfig` is TRL's `GRPOConfig` with our fields; the other three say which tasks, which policy and which T2PO
switches. `trainers.run.cli` parses them; every field has its help here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trl import GRPOConfig

from trainers.credit import TurnGrouping


@dataclass
class EnvArguments:
    """Which environment, which tasks, and where their commands run."""

    env: str = field(
        default="ClawGym-v0",
        metadata={"help": "Environment: ClawGym-v0 | GSM8K-v0 | MATH-v0 | IFEval-v0 | Mixed-v0."},
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
    held_out_limit: int = field(default=0, metadata={"help": "Measure on the first N held-out tasks only; 0 = all."})
    sandbox: str = field(
        default="auto", metadata={"help": "auto | bubblewrap | landlock | local (unsafe, only by its name)."}
    )
    max_turns: int = field(default=0, metadata={"help": "Turns per episode; 0 takes each task's own budget."})
    reward: str = field(default="shaped", metadata={"help": "shaped (rate minus a share of turns) | binary | delta."})
    turn_penalty: float = field(default=0.2, metadata={"help": "shaped: reward lost by using the whole turn budget."})
    subtract_baseline: bool = field(
        default=False,
        metadata={"help": "Measure the rate from the untouched workspace's rate, so that a no-op earns 0."},
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


@dataclass
class T2POArguments:
    """The T2PO wrapper. All off by default; each switch is independent. In held-out measurements only the cap stays."""

    max_turn_tokens: int = field(default=0, metadata={"help": "Cap on one reply, in tokens; 0 = the task's budget."})
    think_budget: int = field(default=0, metadata={"help": "Close the think block after this many tokens; 0 = off."})
    think_answer_reserve: int = field(
        default=64, metadata={"help": "Tokens of a reply kept for the answer when thinking is limited."}
    )
    think_stop: str = field(default="none", metadata={"help": "Close a stagnant think block: none | official | paper."})
    think_stop_patience: int = field(default=20, metadata={"help": "official: still tokens in a row."})
    think_stop_eps: float = field(
        default=1e-4, metadata={"help": "official: change of the score that counts as still."}
    )
    think_stop_window: int = field(default=16, metadata={"help": "paper: tokens whose change is averaged."})
    think_stop_window_eps: float = field(default=0.02, metadata={"help": "paper: mean change that counts as still."})
    think_stop_min_tokens: int = field(
        default=32, metadata={"help": "paper: tokens of thought before anything counts."}
    )
    think_open: str = field(default="<think>", metadata={"help": "Opening tag, one token of the model."})
    think_close: str = field(default="</think>", metadata={"help": "Closing tag, one token of the model."})
    think_evaluate: bool = field(default=False, metadata={"help": "Limit thinking in held-out measurements, too."})
    turn_resample: bool = field(
        default=False, metadata={"help": "Resample a turn whose uncertainty hardly moved since the last turn."}
    )
    turn_resample_eta: float = field(
        default=0.0,
        metadata={"help": "Band in the signal's unit; 0 calibrates it to `turn_resample_rate` from the first turns."},
    )
    turn_resample_rate: float = field(default=0.15, metadata={"help": "Target share of turns that are resampled."})
    turn_resample_warmup: int = field(default=128, metadata={"help": "Turns that calibration looks at first."})
    turn_resample_max_try: int = field(default=2, metadata={"help": "Extra samples per turn at most."})
    turn_resample_together: bool = field(
        default=True, metadata={"help": "Draw the extra samples in one pass; off: another only while it is needed."}
    )
    turn_resample_keep: str = field(default="last", metadata={"help": "Which sample stays: last | first | max_change."})
    turn_resample_signal: str = field(
        default="entropy", metadata={"help": "Uncertainty of a token: entropy (nats) | confidence | top1 (nats)."}
    )
    turn_resample_aggregate: str = field(
        default="arithmetic", metadata={"help": "Mean over a turn's tokens: arithmetic | geometric."}
    )
    turn_resample_min_tokens: int = field(default=1, metadata={"help": "Shorter turns have no signal."})
    turn_resample_evaluate: bool = field(
        default=False, metadata={"help": "Resample in held-out measurements, too (the greedy arm never is)."}
    )


@dataclass
class GiGPOConfig(GRPOConfig):
    """TRL's GRPO settings with GiGPO credit and held-out selection.

    Source of the credit: GiGPO (Feng et al. 2025); `beta_turn` 0.3 and anchors from our own runs.
    """

    output_dir: str = field(default="runs/run", metadata={"help": "The run folder; refused when occupied."})
    alpha_episode: float = field(default=1.0, metadata={"help": "Weight of the episode term of the advantage."})
    beta_turn: float = field(default=0.3, metadata={"help": "Weight of the turn term of the advantage."})
    turn_grouping: str = field(
        default=TurnGrouping.ANCHOR.value,
        metadata={"help": "Which turns are compared: anchor (same state before) | turn_index | none."},
    )
    turn_gamma: float = field(default=0.95, metadata={"help": "Discount of later turns' signals."})
    turn_std: bool = field(default=False, metadata={"help": "Divide turn advantages by their group's deviation."})
    held_out_temperature: float = field(
        default=1.0, metadata={"help": "Temperature of the sampled held-out arm (a greedy arm runs beside it)."}
    )
    held_out_greedy: bool = field(default=True, metadata={"help": "Also measure greedily."})
    best_metric: str = field(
        default="sampled_pass_rate",
        metadata={"help": "Held-out figure that chooses `best/`: {sampled,greedy}_{pass_rate,assertion_rate,reward}."},
    )
    patience: int = field(
        default=0, metadata={"help": "Stop after this many held-out evaluations without a new best; 0 = never."}
    )
    min_delta: float = field(default=0.0, metadata={"help": "How much better a new best must be."})
    resume: bool = field(
        default=False, metadata={"help": "Continue in an occupied `output_dir` from its last checkpoint (or start)."}
    )
    save_trajectories: bool = field(default=True, metadata={"help": "Write every training episode to the run folder."})

    # TRL's defaults that are wrong here, each with its reason.
    max_steps: int = field(default=100, metadata={"help": "Optimizer steps."})
    learning_rate: float = field(default=1e-5, metadata={"help": "Peak rate; 1e-5 suits LoRA, all weights want less."})
    num_generations_eval: int | None = field(default=1, metadata={"help": "Not used: held-out has its own rule."})
    scale_rewards: str = field(
        default="none", metadata={"help": "What divides the episode term: none | group (GRPO) | batch."}
    )
    bf16: bool | None = field(
        default=False,
        metadata={"help": "Autocast in training only: sampled and trained log-probabilities then differ by ~0.03."},
    )
    disable_dropout: bool = field(default=True, metadata={"help": "Dropout makes sampled and trained ids disagree."})
    gradient_checkpointing: bool = field(default=False, metadata={"help": "Slower, less memory."})
    logging_steps: float = field(default=1, metadata={"help": "Log every N steps."})
    shuffle_dataset: bool | None = field(default=True, metadata={"help": "Draw tasks in a seeded random order."})
    eval_strategy: str = field(default="steps", metadata={"help": "Held-out evaluation: steps | no."})
    eval_on_start: bool = field(default=True, metadata={"help": "Measure the step-0 baseline; it competes for best."})
    eval_steps: float | None = field(default=10, metadata={"help": "Held-out evaluation every N steps."})
    save_strategy: str = field(default="steps", metadata={"help": "Checkpoints for --resume: steps | no."})
    save_steps: float = field(default=10, metadata={"help": "Checkpoint every N steps."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Checkpoints kept; `best/` is outside of it."})
    loss_type: str = field(default="dapo", metadata={"help": "dapo | grpo | bnpo | dr_grpo | cispo | sapo | luspo."})
