"""A run's own settings, by group: tasks and environment, policy, held-out rule, guards (rollouts: `rollouts`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple

from agents.models.loading import four_bit_problem
from agents.rollout.engine import RolloutMode
from envs.protocol import PROTOCOLS
from envs.registry import BUILT_IN
from sandboxes.sandbox import NAMES
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
        "Tasks only measured on: a source like `tasks`; `split` holds out a part of `tasks`; FILE.lock takes both "
        "sides out of `tasks`, as `python -m tasks split` locked them; `none`: nothing selects a checkpoint. "
        "`split,aime=math:PATH` adds a set with figures of its own.",
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
    allow_shared_judges: bool = setting(
        False,
        "Take tasks that are judged beside processes which the agent left running (judge_isolation: shared); they are "
        "left out otherwise.",
    )
    verifier_network: str | None = setting(
        None,
        "Name of a network of the docker engine, such as bridge, for verifiers that need one: they are root in a "
        "container of their own, and the agent has no network. Tasks that need it are left out otherwise.",
        off="none",
    )
    sandbox: str = setting(
        "auto",
        f"{' | '.join(NAMES)} (local isolates nothing, only by its name; ray: on a cluster).",
        choices=NAMES,
        common=True,
    )
    max_turns: int | None = setting(
        None, "Turns per episode; 0 takes each task's own budget.", off=0, above=0, unit="turns"
    )
    max_episode_tokens: int | None = setting(
        None,
        "Tokens of an episode: prompt, replies and whole observations. The cap of a reply shrinks to what is left; "
        "where too little is, the episode ends with stop reason max_tokens. 0 = no budget, or as trained here before.",
        off=0,
        above=0,
        unit="tokens",
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
    protocol: str = setting(
        "auto",
        "Shell tasks: auto (what the policy was made for) | text (a bash block, a stop word) | tools (tool calls in "
        "the form of the policy's chat template).",
        choices=("auto", *PROTOCOLS),
        recorded=False,
    )
    keep_observations: int | None = setting(
        None,
        "Tasks of many turns: a prompt shows the last N observations in full and each older one as a line; "
        "0: all in full, or as the policy was trained here before.",
        off=0,
        above=0,
        unit="observations",
    )
    tools: bool = setting(True, "Questions: the agent may run bash before it answers; false: it only answers.")
    shots: int = setting(
        0,
        "GSM8K, MATH: solved examples before each question (0, 4, 8), drawn by the seed from the pool, which is "
        "trained without them; never from what is held out. 0 = none, or as the policy was trained here before.",
        low=0,
        unit="examples",
    )
    revise: int = setting(0, "IFEval: times an answer may be revised once it is told what it misses.")
    sandbox_workers: int | None = setting(
        None,
        "Threads that step environments and lay out tasks (asynchronous: 4 and 2 at work); 0 = number of cores.",
        off=0,
        above=0,
    )
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
    quantize: str = setting(
        "none",
        "Weights under a LoRA adapter: none | 4bit (QLoRA: nf4, products in bfloat16; needs a CUDA GPU and "
        "bitsandbytes).",
        choices=("none", "4bit"),
    )
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
        small = self.model_name_or_path in ("quickstart", "quickstart_turns")
        return self.adapter == "none" or (self.adapter == "auto" and small)

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

    def quantize_problems(self, *, copies: bool) -> Iterator[str]:
        """Why `quantize` cannot be what it is.

        Args:
            copies: Sampling would need a merged copy of the weights.
        """
        if self.quantize == "none":
            return
        if why := four_bit_problem():
            yield f"quantize={self.quantize}: {why}. Leave it out; dtype=bfloat16 is the next smaller."
        if self.full:
            yield f"quantize={self.quantize}: weights in 4 bits cannot be trained, an adapter can. Set adapter=lora."
        if copies:
            yield (
                f"quantize={self.quantize}: no merged copy is made of weights in 4 bits. Use sample_dtype=same and "
                "overlap=0, or a server."
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


# -- Settings of the held-out measurement: how it decodes, what chooses `best/`, when a run stops ---------------------

DEFAULT_METRIC = "sampled_pass_rate"
"""Sampled pass rate on held-out tasks of the families that are trained on."""
UNSEEN = "unseen_"
"""Begins the names of arms and figures of the tasks whose families are never trained on."""
PREFIXES = ("eval_", "held_out_")
"""May stand before a metric's name: as the logs write it, and to say that tasks of trained families are meant."""


class Arm(StrEnum):
    """How the held-out episodes are decoded."""

    SAMPLED = "sampled"
    GREEDY = "greedy"


class Figure(StrEnum):
    """What of a measurement may choose the checkpoint. Larger is better for every one."""

    PASS_RATE = "pass_rate"
    ASSERTION_RATE = "assertion_rate"
    REWARD = "reward"


class Metric(NamedTuple):
    """A deciding metric, taken apart: `unseen_greedy_reward` is the `reward` of the arm `unseen_greedy`."""

    arm: str
    figure: Figure

    @property
    def side(self) -> str:
        """Which tasks: empty (of trained families), `unseen`, or the name of a set."""
        return self.arm.rpartition("_")[0]

    @property
    def decode(self) -> Arm:
        """How they are decoded."""
        return Arm(self.arm.rpartition("_")[2])


def take_apart(name: str) -> Metric:
    """A metric's arm and figure.

    Raises:
        ValueError: It is none of ours; the message names the nearest one.
    """
    for figure in Figure:
        arm = name.removesuffix(f"_{figure}")
        if arm != name and arm.rpartition("_")[2] in tuple(Arm):
            return Metric(arm, figure)
    raise ValueError(unknown(name, known_metrics(greedy=True, sides=("", UNSEEN))))


def canonical(name: str) -> str:
    """A metric's name without what may stand before it."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def known_metrics(*, greedy: bool, sides: Iterable[str]) -> list[str]:
    """Names that may decide; `sides` begin them: `""`, `unseen_`, `NAME_` of a set."""
    arms = [Arm.SAMPLED, *([Arm.GREEDY] if greedy else [])]
    return [f"{side}{arm}_{figure}" for side in sides for arm in arms for figure in Figure]


def unknown(name: str, known: list[str]) -> str:
    """The message for a name that is none of `known`."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return f"best_metric={name!r}: no figure of the held-out tasks{meant} Known: {', '.join(known)}."


@dataclass
class HeldOutFields(Settings):
    """The held-out rule. The pool never decides."""

    held_out_samples: int = setting(
        1, "Sampled attempts at each held-out task (the greedy arm has one: all are alike).", low=1
    )
    held_out_temperature: float = setting(
        1.0,
        "Temperature of the sampled held-out arm (a greedy arm runs beside it).",
        above=0,
        why="the greedy arm is measured by held_out_greedy",
    )
    held_out_greedy: bool = setting(True, "Also measure greedily.")
    held_out_together: bool = setting(
        False,
        "Play the arms at the same time: the policy waits less for sandboxes, in batches half as large. "
        "Slower for a small policy on few cores (python -m benchmarks.evaluation).",
        needs=(
            unless(lambda c: c.rollout_mode == RolloutMode.ASYNCHRONOUS, ": rollout_mode=asynchronous waits for none"),
        ),
    )
    best_metric: str = setting(
        "",
        "Held-out figure that chooses `best/`: {sampled,greedy}_{pass_rate,assertion_rate,reward}, with "
        "`unseen_` before it for families that are never trained on, `NAME_` for a named set. Empty: "
        f"metric_for_best_model, else {DEFAULT_METRIC}.",
        common=True,
    )
    patience: int | None = setting(
        None,
        "Stop after this many held-out evaluations without a new best; 0 = never.",
        off=0,
        above=0,
        unit="evaluations",
        common=True,
    )
    min_delta: float = setting(0.0, "How much better a new best must be.", low=0, why="a new best is never a worse one")

    def __post_init__(self) -> None:
        """Fill in the deciding metric; transformers' name for it, where it is used, follows.

        What contradicts is left as it is, for `held_out_problems` to say.
        """
        asked = getattr(self, "metric_for_best_model", None)
        self.best_metric = canonical(self.best_metric or asked or DEFAULT_METRIC)
        if asked is None and getattr(self, "load_best_model_at_end", False):
            asked = self.best_metric  # transformers would look for a `loss`
        if asked is not None:
            self.metric_for_best_model = f"eval_{canonical(asked)}"
            if getattr(self, "greater_is_better", None) is None:
                self.greater_is_better = True
        super().__post_init__()

    def held_out_problems(self) -> Iterator[str]:
        """One line per setting that cannot work with the others."""
        try:
            decode = take_apart(self.best_metric).decode
        except ValueError as error:
            yield str(error)
        else:
            if decode is Arm.GREEDY and not self.held_out_greedy:
                why = "is not measured with held_out_greedy off. Set held_out_greedy."
                yield f"best_metric={self.best_metric!r}: {why}"
        yield from self._stock_problems()

    def _stock_problems(self) -> Iterator[str]:
        """Transformers' own settings for choosing a checkpoint, where they contradict ours or would do nothing."""
        asked = getattr(self, "metric_for_best_model", None)
        if asked is not None and canonical(asked) != self.best_metric:
            yield (
                f"metric_for_best_model={canonical(asked)!r} and best_metric={self.best_metric!r}: one figure chooses "
                "`best/`. Set one of the two."
            )
        if getattr(self, "greater_is_better", None) is False:
            yield "greater_is_better=False: every held-out figure is better when it is larger. Leave it out."
        if getattr(self, "load_best_model_at_end", False) and getattr(self, "eval_strategy", "no") == "no":
            yield "load_best_model_at_end: nothing is measured with eval_strategy=no. Set eval_strategy=steps."


# -- Settings of the run-time checks: which are on, and what each does when it fires ----------------------------------


@dataclass
class GuardFields(Settings):
    """The guards. All are on by default; docs/guards.md says what each looks at."""

    guards: str = setting(
        "all",
        "Run-time checks: all | none, then `name=off|note|warn|stop` for single ones, with commas between "
        "(`resample_budget=off,update_health=warn`). stop ends the run after the step; notes stay notes.",
        common=True,
    )
