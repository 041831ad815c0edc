"""TRL's fields that a run is most often changed by: our help, and our defaults where TRL's are wrong here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tasks.settings import Settings, never, setting, unless
from trainers.metric_names import MetricNames

AUTO, AUTO_TOKENS, REPLAYED_TOKENS = "auto", 12288, 4096
"""`micro_batch_tokens` chosen by the trainer; its tokens where no GPU's memory says otherwise; and those where passes
are replayed as CUDA graphs: small ones are nearly as fast then, and the memory of two is held."""
LOSSES = ("dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "luspo")
"""Loss types of TRL under which token advantages reach the gradient as they are."""
HELD_OUT = "held-out tasks are measured by their own rule (held_out_*)"
AUTOCAST = (
    "autocast: sampling runs without it, so sampled and trained log-probabilities would differ (with bf16 by 0.03 nats "
    "a token in the mean, 3 % of the tokens by more than 10 %). Leave it off and choose the weights' type with dtype, "
    "which sampling and training share."
)


def _no_tf32(_: Any) -> bool:
    """Whether this machine has no TF32; looked for only where the setting was given, since it loads torch."""
    from transformers.utils import is_torch_tf32_available

    return not is_torch_tf32_available()


@dataclass
class TRLFields(Settings):
    """What TRL's own settings are here.

    Sources of the optimizer's defaults: `adam_epsilon` 1e-5 with 30 steps of warm-up are those of the good runs of the
    RLVR notes (learning rates 1e-6 to 1e-5); the quickstart, whose recipe was measured with other ones, pins its own.
    """

    output_dir: str = setting("runs/run", "The run folder; refused when occupied.", common=True)
    resume: bool = setting(
        False, "Continue in an occupied `output_dir` from its last checkpoint (or start).", common=True
    )
    overwrite: bool = setting(
        False, "Start anew where a run is; the old folder is kept as `<output_dir>.replaced-<n>`.", common=True
    )
    save_trajectories: bool = setting(True, "Write every training episode to the run folder.")
    emergence: bool = setting(
        False,
        "Write emergence/steps.jsonl and generations.jsonl, the logs of retrain and textpolicy, with the most "
        "surprising tokens of each step and attempt.",
    )
    metric_names: MetricNames = setting(
        MetricNames.OURS,
        "Names of a step's figures in metrics.jsonl and trackers: ours | retrain (those of its guide beside ours: "
        "running_correct_rate, num_datums, ...).",
        choices=MetricNames,
        recorded=False,
    )
    device_preset: str = setting(
        "auto",
        "On a CUDA GPU settings that no flag and no file gives are those that are fast there (`--dry-run` shows them): "
        "auto | none.",
        choices=("auto", "none"),
    )
    seed: int = setting(
        42, "Seeds tasks, sampling and new weights: same seed, same run.", low=0, below=2**32, common=True
    )

    max_steps: int = setting(
        100, "Optimizer steps.", low=1, why="epochs are not counted here", unit="steps", common=True
    )
    num_generations: int = setting(
        8,
        "K: attempts at each task of a step (group_size), 2 or more.",
        low=2,
        why="a group of one has nothing to be compared with",
        common=True,
    )
    per_device_train_batch_size: int = setting(
        8,
        "Episodes of one forward and backward pass: it decides the memory that is needed.",
        low=1,
        unit="episodes",
        common=True,
    )
    gradient_accumulation_steps: int = setting(
        1, "Passes before an optimizer step; a step has this many times the batch size.", low=1, common=True
    )
    micro_batch_tokens: str = setting(
        "0",
        "Cut the rows of a step into passes of at most N tokens, padding included, whatever the batch size; half of it "
        f"where memory ends. auto: {REPLAYED_TOKENS} where passes are replayed as CUDA graphs, else {AUTO_TOKENS}, "
        "or what a GPU has free. 0: passes of per_device_train_batch_size, never replayed.",
        unit="tokens",
    )
    learning_rate: float = setting(1e-5, "Peak rate; 1e-5 suits LoRA, all weights want less.", low=0, common=True)
    lr_scheduler_type: str = setting("linear", "linear | constant_with_warmup | constant (no warm-up) | cosine.")
    warmup_steps: float = setting(
        30, "Steps over which the rate rises from 0 to its peak.", low=0, unit="steps", common=True
    )
    adam_epsilon: float = setting(
        1e-5, "Adam's epsilon: at 1e-5 a weight whose gradient is all noise hardly moves.", above=0
    )
    temperature: float = setting(
        1.0,
        "Of the sampling that is trained on.",
        above=0,
        why="training samples (held-out has its own greedy arm)",
        common=True,
    )
    beta: float = setting(
        0.0,
        "Weight of the KL (k3, kl_beta) from where the run started; 0 keeps no reference in memory.",
        low=0,
        common=True,
    )
    loss_type: str = setting(
        "dapo",
        "dapo | grpo | bnpo | dr_grpo | cispo | sapo | luspo.",
        choices=LOSSES,
        why="under others token advantages do not reach the gradient as they are (vespo weighs whole sequences)",
        common=True,
    )
    eval_steps: float | None = setting(10, "Held-out evaluation every N steps.", common=True)
    save_steps: float = setting(10, "Checkpoint every N steps.", common=True)

    # TRL's defaults that are wrong here, each with its reason.
    num_generations_eval: int | None = setting(
        1, "Not used: held-out has its own rule.", requires=(never(HELD_OUT),), recorded=False
    )
    bf16: bool | None = setting(
        False,
        "Autocast: always refused, sampled and trained log-probabilities would differ; see dtype.",
        refused=AUTOCAST,
        recorded=False,
    )
    disable_dropout: bool = setting(True, "Dropout makes sampled and trained ids disagree.")
    gradient_checkpointing: bool = setting(False, "Slower, less memory.")
    tf32: bool | None = setting(
        None,
        "GPU: multiply float32 with 10 bits of mantissa, several times as fast: true | false; unset as torch has it.",
        recorded=False,
        needs=(unless(_no_tf32, ": no GPU here multiplies so"),),
    )
    logging_steps: float = setting(1, "Log every N steps.", above=0, unit="steps", recorded=False)
    shuffle_dataset: bool | None = setting(
        True,
        "Draw tasks in a seeded random order.",
        recorded=False,
        needs=(unless(lambda c: c.curriculum, ": the curriculum names the tasks"),),
    )
    eval_strategy: str = setting("steps", "Held-out evaluation: steps | no.", choices=("steps", "no"), recorded=False)
    eval_on_start: bool = setting(True, "Measure the step-0 baseline; it competes for best.", recorded=False)
    save_strategy: str = setting(
        "steps", "Checkpoints for --resume: steps | no.", choices=("steps", "no"), recorded=False
    )
    save_total_limit: int | None = setting(2, "Checkpoints kept; `best/` is outside of it.", recorded=False)

    @property
    def checkpoints_activations(self) -> bool:
        """Whether a backward pass computes activations anew (under either name that transformers has for it)."""
        return bool(self.gradient_checkpointing or getattr(self, "activation_checkpointing", False))

    @property
    def budget_is_auto(self) -> bool:
        """Whether the trainer chooses the tokens of a pass."""
        return self.micro_batch_tokens == AUTO

    @property
    def token_budget(self) -> int | None:
        """Tokens of a pass at most, to begin with, where none is replayed; `None` cuts passes by rows."""
        return AUTO_TOKENS if self.budget_is_auto else int(self.micro_batch_tokens) or None

    def tokens_of_a_pass(self, *, replayed: bool) -> int | None:
        """The same, where passes are replayed or not."""
        return REPLAYED_TOKENS if replayed and self.budget_is_auto else self.token_budget

    def rows_of_a_pass(self, tokens: int, *, replayed: bool = False) -> int:
        """How many rows of so many tokens a pass holds at most."""
        rows: int = self.per_device_train_batch_size
        budget = self.tokens_of_a_pass(replayed=replayed)
        return rows if budget is None else max(1, min(rows, budget // tokens))

    def may_replay_passes(self, *, cuda: bool, pieces: bool) -> bool:
        """Whether learning passes are replayed as CUDA graphs, as far as settings and device tell.

        What only the loaded model tells is looked at in `trainers.graphed`.

        Args:
            cuda: A CUDA device learns.
            pieces: Episodes are scored in pieces (`keep_observations`).
        """
        given: Any = self
        if not cuda or pieces or self.token_budget is None or self.checkpoints_activations:
            return False
        return not given.overlap  # with it two threads would record

    def fold_accumulation(self) -> None:
        """By tokens, a step's rows are one batch: accumulation moves into `per_device_train_batch_size`.

        Rows of a step, rows of a generation, and how often each is trained on stay as they are.

        Raises:
            ValueError: `micro_batch_tokens` is no number, or a step holds several generations.
        """
        given: Any = self
        self.micro_batch_tokens = str(self.micro_batch_tokens)  # a number may be given as one
        if not self.budget_is_auto and not self.micro_batch_tokens.isdecimal():
            raise ValueError(f"micro_batch_tokens={self.micro_batch_tokens!r}: a whole number of tokens, 0 or auto.")
        passes = given.gradient_accumulation_steps
        if self.token_budget is None or passes == 1:
            return
        if given.steps_per_generation is not None and given.steps_per_generation % passes:
            raise ValueError(
                f"micro_batch_tokens={self.micro_batch_tokens}: an optimizer step takes its rows from one generation, "
                f"but steps_per_generation={given.steps_per_generation} is no multiple of gradient_accumulation_steps="
                f"{passes}. Make it one, or leave micro_batch_tokens out."
            )
        given.per_device_train_batch_size *= passes
        given.gradient_accumulation_steps = 1
        if given.steps_per_generation is not None:
            given.steps_per_generation //= passes

    def idle_trl_settings(self) -> Iterator[str]:
        """Settings of the schedule that do nothing, or not what one would think, one sentence each."""
        warmup: Any = self.warmup_steps
        schedule = str(getattr(self.lr_scheduler_type, "value", self.lr_scheduler_type))
        if self.learning_rate == 0:
            yield "learning_rate=0: nothing is learned"
        if warmup and schedule == "constant":
            yield f"warmup_steps={warmup:g} does nothing with lr_scheduler_type constant (constant_with_warmup has one)"
        elif warmup >= 1 and self.max_steps <= warmup:
            yield (
                f"max_steps={self.max_steps} ends within the warm-up of {warmup:g} steps: learning_rate is never "
                "reached. Set warmup_steps lower"
            )
