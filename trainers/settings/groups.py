"""A run's own settings, by group: tasks and environment, policy, rollouts, held-out rule, guards."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agents.models.loading import four_bit_problem
from agents.rollout.engine import RolloutMode
from envs.registry import BUILT_IN
from sandboxes.sandbox import Backend
from tasks.settings import Settings, idle, setting, unless, without
from trainers.credit.token import TokenSignal
from trainers.rollouts.curriculum import CurriculumOrder
from trainers.rollouts.rules import IN_PROCESS, SAME, SAMPLE_DTYPES, VLLM, Adaptive, Schedule, schedule

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
    keep_observations: int | None = setting(
        None,
        "Tasks of many turns: a prompt shows the last N observations in full and each older one as a line; "
        "0: all in full, or as the policy was trained here before.",
        off=0,
        above=0,
        unit="observations",
    )
    tools: bool = setting(True, "Questions: the agent may run bash before it answers; false: it only answers.")
    revise: int = setting(0, "IFEval: times an answer may be revised once it is told what it misses.")
    sandbox_workers: int | None = setting(
        None, "Threads that step environments in lockstep, and that lay out tasks; 0 = number of cores.", off=0, above=0
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


# -- Settings of the rollouts of training: which attempts are made and which of them are trained on -------------------

_SERVED = unless(lambda c: not c.sampler.startswith(VLLM), " without sampler=vllm:URL")
_EXACT = unless(lambda c: c.samples_exactly, ": this sampler is exact, so there is no such weight")


@dataclass
class RolloutFields(Settings):
    """How the episodes of a step come about."""

    rounded = False
    """The weights are in a type of few digits, so that sampling and training round differently. No setting of its own:
    `dtype` says it, or the model that a trainer is given."""

    importance_cap: float = setting(
        2.0,
        "Cap on the weight exp(trained - sampled log-probability) of a token whose sampler was not exactly "
        "the trained weights (another number format, a server, older weights); an exact sampler needs none.",
        above=0,
        why="1 never raises a token's weight",
        needs=(_EXACT,),
    )
    adaptive_successes: int | None = setting(
        None,
        "Attempt a task until this many attempts passed (and adaptive_failures failed); K of them are "
        "trained on, both outcomes among them where both were seen. 0: exactly K attempts. Biases advantages.",
        off=0,
        above=0,
    )
    adaptive_failures: int | None = setting(None, "Failures wanted; goes with adaptive_successes.", off=0, above=0)
    adaptive_attempts: int | None = setting(
        None,
        "Attempts at one task at most; 0: four times K.",
        off=0,
        above=0,
        requires=(without("adaptive_successes"),),
    )
    adaptive_chunk: int | None = setting(
        None, "Attempts between two looks; 0: K.", off=0, above=0, requires=(without("adaptive_successes"),)
    )
    refill_rounds: int = setting(
        0, "How often groups in which no token has a weight are replaced by groups of other tasks.", low=0
    )
    curriculum: str = setting(
        "",
        "Pass rates that order the pool: a folder of `python -m trainers.evaluate --samples N`, or a JSONL "
        "with task_id, passes and n. Then shuffle_dataset does nothing.",
    )
    curriculum_order: CurriculumOrder = setting(
        CurriculumOrder.EASY_FIRST,
        "easy_first (all tasks, again and again) | band (only those solved sometimes, not always).",
        choices=CurriculumOrder,
        requires=(without("curriculum"),),
    )
    curriculum_allow_missing: bool = setting(
        False, "Leave out tasks of the pool that the curriculum does not know.", requires=(without("curriculum"),)
    )
    max_staleness: int | None = setting(
        None,
        "Optimizer steps that the weights which train may be ahead of those which sampled; rows beyond it "
        "are masked. Default: what num_iterations and steps_per_generation need; with overlap 1, with "
        "partial_batches 2.",
    )
    overlap: int | None = setting(
        None,
        "1: while a generation is learned on, the next one is sampled with the weights before; tokens are weighted as "
        "importance_cap says. 0: one after the other. In one process.",
        off=0,
        above=0,
        high=1,
        unit="generations",
    )
    partial_batches: int | None = setting(
        None,
        "Groups that are begun beyond those of a batch: a step learns on the first that are complete, and those that "
        "straggle go to a later one, within max_staleness. Works against slow tasks; not with resume. 0: off.",
        off=0,
        above=0,
        unit="groups",
        requires=(
            without("overlap"),
            without("rollout_mode", RolloutMode.ASYNCHRONOUS),
            unless(
                lambda c: c.adaptive_successes or c.refill_rounds,
                ": adaptive sampling and refill wait for whole generations, to see how they ended",
            ),
        ),
    )
    sampler: str = setting(
        IN_PROCESS,
        "in_process | vllm:URL (a server that gets each new LoRA adapter; several with commas between share the load; "
        "see docs/rollouts.md).",
        common=True,
    )
    rollout_mode: RolloutMode = setting(
        RolloutMode.AUTO,
        "asynchronous (no episode waits for another one's command or reply) | lockstep (all take their turns together: "
        "equal seeds, equal bytes) | auto (lockstep where the CPU samples, else asynchronous).",
        choices=RolloutMode,
    )
    sampler_adapters: str = setting(
        "",
        "Folder for the adapters that a vLLM server sees under the same path; empty: a temporary one.",
        requires=(_SERVED,),
    )
    sampler_retries: int | None = setting(
        None,
        "Attempts after the first at a vLLM server, with waits that double up to a minute. Default: 10 (four minutes).",
        low=0,
        requires=(_SERVED,),
    )
    sample_dtype: str = setting(
        SAME,
        "Sample from a merged copy of the model in this type: same | bfloat16 | float32 | auto.",
        choices=SAMPLE_DTYPES,
    )

    def adaptive_rule(self) -> Adaptive | None:
        """Adaptive sampling of these settings; `None` where it is off."""
        if self.adaptive_successes is None or self.adaptive_failures is None:
            return None
        k: int = self._trl("num_generations")
        most = self.adaptive_attempts or 4 * k
        return Adaptive(self.adaptive_successes, self.adaptive_failures, most, self.adaptive_chunk or k)

    def step_schedule(self, ahead: int | None = None) -> Schedule:
        """How generations and optimizer steps interleave.

        Args:
            ahead: Generations that sampling begins before learning needs it; default: what these settings need.

        Raises:
            ValueError: They do not divide.
        """
        rows: int = self._trl("per_device_train_batch_size")
        passes: int = (self._trl("steps_per_generation") or 1) * self._trl("num_iterations")
        return schedule(
            rows * self._trl("gradient_accumulation_steps"),
            rows,
            rows * passes,
            self._ahead if ahead is None else ahead,
        )

    @property
    def samples_exactly(self) -> bool:
        """Sampling surely reads the very weights that are trained (a copy in their own type may, too), in float32."""
        return self.sampler == IN_PROCESS and self.sample_dtype == SAME and not self.overlap and not self.rounded

    @property
    def _ahead(self) -> int:
        """Generations that sampling must be able to begin before learning needs it."""
        return (self.overlap or 0) + bool(self.partial_batches)

    @property
    def carried_at_most(self) -> int:
        """Generations that a group may be carried on with `partial_batches`, so that the staleness bound is kept."""
        bound, carried = self.staleness_bound, 0
        assert bound is not None and self.overlap is not None
        while self.step_schedule(self.overlap + carried + 1).required_staleness <= bound:
            carried += 1
        return carried

    @property
    def rows_in_flight(self) -> int:
        """Episodes of training that are under way at a time, at most."""
        return int(self._trl("generation_batch_size") + (self.partial_batches or 0) * self._trl("num_generations"))

    @property
    def staleness_bound(self) -> int | None:
        """Optimizer steps that samples may be behind the weights that train; `None` where the schedule alone says."""
        return self._ahead or None if self.max_staleness is None else self.max_staleness

    def rollout_problems(self) -> Iterator[str]:
        """One line per setting that cannot work."""
        yield from self._adaptive_problems()
        if self.curriculum and not Path(self.curriculum).expanduser().exists():
            yield f"curriculum={self.curriculum}: no such file or folder."
        yield from self._sampler_problems()
        groups = (self._trl("generation_batch_size") or 0) // (self._trl("num_generations") or 1)
        if self.partial_batches and self.partial_batches > groups:
            yield f"partial_batches={self.partial_batches}: at most the {groups} groups of a generation."
        if (bound := self.staleness_bound) is not None and self._trl("num_iterations") >= 1:
            needed = self.step_schedule().required_staleness
            if bound < needed:
                ahead = f"overlap={self.overlap}, " if self.overlap else ""
                ahead += f"partial_batches={self.partial_batches}, " if self.partial_batches else ""
                yield (
                    f"max_staleness={bound}: {ahead}num_iterations={self._trl('num_iterations')} and "
                    f"steps_per_generation={self._trl('steps_per_generation')} train on samples up to {needed} "
                    f"optimizer steps old. Use {needed} or more, or lower them."
                )

    def _adaptive_problems(self) -> Iterator[str]:
        successes, failures, k = self.adaptive_successes, self.adaptive_failures, self._trl("num_generations") or 0
        if (successes is None) != (failures is None):
            yield (
                f"adaptive_successes={successes}, adaptive_failures={failures}: both above 0 (attempts until both "
                "outcomes were seen), or both 0 (off)."
            )
        elif successes is None or failures is None:
            return
        elif successes + failures > k:
            yield (
                f"adaptive_successes={successes} and adaptive_failures={failures} do not fit into the "
                f"num_generations={k} episodes of a task that are trained on."
            )
        elif self.adaptive_attempts is not None and self.adaptive_attempts <= k:
            yield f"adaptive_attempts={self.adaptive_attempts}: must be above num_generations={k}, or 0 for {4 * k}."

    def _sampler_problems(self) -> Iterator[str]:
        served = self.sampler.startswith(VLLM)
        if self.sampler != IN_PROCESS and not served:
            yield f"sampler={self.sampler!r}: in_process, or vllm:URL such as vllm:http://127.0.0.1:8000."
        elif served and not all(map(_is_address, self.sampler.removeprefix(VLLM).split(","))):
            yield f"sampler={self.sampler!r}: no address of a server; such as vllm:http://127.0.0.1:8000."
        if served and self.sample_dtype != SAME:
            yield f"sample_dtype={self.sample_dtype}: a vLLM server has its own --dtype. Leave it at same."
        if served and self._needs_entropies():
            yield (
                "token_signal=entropy: a vLLM server gives only bounds of the entropy, and token_operators read it "
                "exactly. Use token_signal=surprisal, or sampler=in_process."
            )

    def _needs_entropies(self) -> bool:
        """Whether a token operator reads exact entropies (settings of credit, where there are any)."""
        operators = getattr(self, "token_operators", "none").strip()
        return operators not in ("", "none") and getattr(self, "token_signal", "") == TokenSignal.ENTROPY

    def _trl(self, name: str) -> Any:
        """A setting of TRL's, which this part does not declare."""
        return getattr(self, name)


def _is_address(url: str) -> bool:
    """Whether a request can be sent there."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # fails where it is no number
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


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


def take_apart(name: str) -> Metric:
    """A metric's arm and figure.

    Raises:
        ValueError: It is none of ours; the message names the nearest one.
    """
    for figure in Figure:
        arm = name.removesuffix(f"_{figure}")
        if arm != name and arm.removeprefix(UNSEEN) in tuple(Arm):
            return Metric(arm, figure)
    raise ValueError(unknown(name, known_metrics(greedy=True)))


def canonical(name: str) -> str:
    """A metric's name without what may stand before it."""
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return name


def known_metrics(*, greedy: bool) -> list[str]:
    """Names that may decide; those of unseen families need tasks of such families."""
    arms = [Arm.SAMPLED, *([Arm.GREEDY] if greedy else [])]
    return [f"{side}{arm}_{figure}" for side in ("", UNSEEN) for arm in arms for figure in Figure]


def unknown(name: str, known: list[str]) -> str:
    """The message for a name that is none of `known`."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    meant = f"; did you mean {near[0]!r}?" if near else "."
    return f"best_metric={name!r}: no figure of the held-out tasks{meant} Known: {', '.join(known)}."


@dataclass
class HeldOutFields(Settings):
    """The held-out rule. The pool never decides."""

    held_out_samples: int = setting(
        1, "Sampled attempts at each held-out task (the greedy arm has one: all are alike).", low=1, common=True
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
        "`unseen_` before it for families that are never trained on. Empty: metric_for_best_model, else "
        f"{DEFAULT_METRIC} on families that are trained on.",
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
        known = known_metrics(greedy=self.held_out_greedy)
        if self.best_metric in known_metrics(greedy=True) and self.best_metric not in known:
            yield f"best_metric={self.best_metric!r}: is not measured with held_out_greedy off. Set held_out_greedy."
        elif self.best_metric not in known:
            yield unknown(self.best_metric, known)
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
