"""--dry-run: what would run, and whether it fits into memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

import yaml

from agents.policies.cuda import GraphStepper, prefill_read, roomy
from agents.policies.draw import EagerStepper
from agents.policies.slots import by_half
from envs.prompts import LINE_CUT
from envs.protocol import protocol
from envs.questions import AnswerEnv
from envs.registry import environment
from trainers.cutting import SHARE
from trainers.rollouts.rules import SAME, VLLM
from trainers.run.policy import NAMED, DecoderShape, check_tokenizer, find_shape, what_is_trained
from trainers.run.setup import Run, more_text, most_turns, reply_cap
from trainers.settings import GiGPOConfig, preset
from trainers.settings.checks import check_t2po

# ---------------------------------------------------------------------------------------------------------------------
# How much memory a run needs, from the shape of its model and its settings: an estimate, before anything is loaded.
#
# Weights, gradients and optimizer states follow from parameter counts, which are exact. Activations count what one
# layer keeps for its backward pass; the figures per layer were found by counting the tensors that autograd holds, and
# a test counts them again (within 15 % on the toy shapes). The cache is for full slots at the longest episode, which
# is an upper bound, as it grows to it: in blocks, by half, by a quarter of its slots. Sampling and learning do not need
# their own parts at the same time; cache and graphs stay through both. What an allocator keeps beyond that is in
# `SLACK`.

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
GIB = 2**30
MAIN_MEMORY = "main memory"
PROGRAM = GIB
"""Python, torch and its libraries; on a GPU the context and the CUDA graphs."""
SLACK = 1.15
"""Fragments, workspaces and temporary gradients, on top of all that is counted."""
ERROR = 0.25
"""How far a measured peak may be from the estimate; what is beyond it does not fit for certain."""
HEAD_TOKENS, HEAD_WIDTH = 4096, 32768
"""TRL computes log-probabilities in tiles of so many tokens by so many entries of the vocabulary, in float32."""
LINEAR_LAYERS = 7
"""Of one block: query, key, value, output, gate, up, down."""
DRAW = 28
"""Bytes of one entry of the vocabulary while ids are drawn on a GPU: shifted and weights in float32, the running sum in
float64 with its copy of the weights, and one more in float32 before (see `agents.policies.draw`)."""
LOGITS = 12
"""The same on a CPU, as far as a peak showed it."""
IN_SAMPLING = ("sampling: first prompts", "sampling: logits")
COMPARED = "gradient of plain GRPO, to compare"
ACTIVATIONS, REPLAYS = "activations of one pass", "CUDA graphs of passes"
IN_LEARNING = ("gradients", COMPARED, ACTIVATIONS, "log-probabilities")
"""Parts that are there in one phase of a step only; all others stay."""


@dataclass(frozen=True, slots=True)
class Load:
    """What decides the memory of a run.

    Attributes:
        shape: Of the model.
        dtype: Of its weights, by name.
        lora: Weights of the adapter; 0 trains all of the model's.
        lora_r: Its rank.
        reference: Weights that are kept once more for the KL.
        batch: Episodes of one forward and backward pass.
        slots: Episodes in flight while sampling; 0 where another program samples.
        tries: Replies of one turn that are sampled at the same time, each in a slot (`turn_resample_together`).
        longest: Tokens of the longest episode; `first` of its first prompt.
        checkpointing: Gradient checkpointing is on.
        start: Weights of the start that are kept in this memory until the confirmation.
        copy: Bytes of one weight of a copy that samples; 0 without one.
        graphs: Sampling decodes with CUDA graphs, in a stream that takes episodes as they come.
        by_tokens: Passes are cut by tokens (`micro_batch_tokens`).
        compared: The gradient of plain GRPO is kept beside that of the step (`gradient_cosine_steps`).
        room: Bytes that the activations of a pass take at most, where a GPU's free memory decides how long it is.
        replayed: Passes are replayed as CUDA graphs, as far as settings and device tell.
    """

    shape: DecoderShape
    dtype: str
    lora: int
    lora_r: int
    reference: int
    batch: int
    slots: int
    longest: int
    checkpointing: bool = False
    start: int = 0
    copy: int = 0
    first: int = 0
    graphs: bool = False
    by_tokens: bool = False
    compared: bool = False
    tries: int = 1
    room: int | None = None
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes by part, in the order in which they are shown."""

    parts: dict[str, int]

    @property
    def total(self) -> int:
        """All of it, with `SLACK` on what varies."""
        return PROGRAM + self.tensors

    @property
    def tensors(self) -> int:
        """Without the program itself: what torch counts on a GPU."""
        sampling, learning = (sum(self.parts.get(name, 0) for name in names) for names in (IN_SAMPLING, IN_LEARNING))
        return int(SLACK * (sum(self.parts.values()) - min(sampling, learning)))


@dataclass(frozen=True, slots=True)
class Machine:
    """What there is: the first GPU, or the main memory."""

    name: str
    total: int
    free: int


def estimate(load: Load) -> MemoryEstimate:
    """The memory of a run at its peak, in bytes by part."""
    shape, size = load.shape, BYTES[load.dtype]
    learned, learned_size = (load.lora, 4) if load.lora else (shape.parameters, size)  # PEFT keeps adapters in float32
    activations = load.batch * load.longest * activation_bytes(load)
    activations = activations if load.room is None else min(activations, load.room)
    samples = load.copy or size
    rows = load.slots * load.tries
    slots = rows + rows // 8 * load.graphs  # by a quarter when one is missing: half of that in the mean
    words, prompts = rows * shape.vocabulary, _prefill_bytes(load, samples)
    draw = words * (DRAW + samples if load.graphs else LOGITS)
    parts = {
        "weights": shape.parameters * size + load.lora * 4,
        "gradients": learned * learned_size,
        COMPARED: learned * learned_size * load.compared,
        "optimizer (Adam, two states)": 2 * learned * learned_size,
        "reference for the KL": load.reference * (4 if load.lora else size),
        "the start, for the confirmation": load.start * learned_size,
        "sampling: a copy of the weights": shape.parameters * load.copy,
        ACTIVATIONS: activations,
        # Their pool holds those of one pass, also while sampling; a shape that comes first runs beside it, unrecorded.
        # Gradients are summed in tensors of their own.
        REPLAYS: (activations + learned * learned_size) * load.replayed,
        "log-probabilities": _head_bytes(load),
        "sampling: keys and values": slots * cache_length(load) * shape.cache_values() * samples,
        "sampling: CUDA graphs": max(draw, prompts) * load.graphs,  # one pool, of which one graph at a time is in use
        "sampling: first prompts": prompts,
        "sampling: logits": draw,
    }
    return MemoryEstimate({name: number for name, number in parts.items() if number})


def cache_length(load: Load) -> int:
    """Positions that the cache has per slot once the longest episode was in it."""
    if load.graphs:
        return roomy(load.longest + 1, 0)  # one position is spare
    length = 0
    for need in range(load.first + 1, load.longest + 1):
        if need > length:
            length = by_half(need, length)
    return length


def _prefill_bytes(load: Load, size: int) -> int:
    """Of the forward that reads as many first prompts as one takes: a layer's widest tensors, and the mask."""
    if not load.first:
        return 0
    s, tokens = load.shape, _power_of_two(load.first) if load.graphs else load.first
    cells = GraphStepper.cells if load.graphs else EagerStepper.cells
    rows, read = min(load.slots, max(1, cells // tokens**2)), prefill_read(load.first) if load.graphs else tokens
    layer = size * (3 * s.feed_forward + 4 * s.hidden + 4 * s.query)
    return rows * tokens * (layer + (size + 1) * read)


def _power_of_two(number: int) -> int:
    return int(1 << (number - 1).bit_length())


def activation_bytes(load: Load) -> int:
    """What one token keeps for the backward pass, over all layers."""
    layer, size = _layer_bytes(load), BYTES[load.dtype]
    last = load.shape.hidden * (4 + size * (1 if load.lora else 2))  # the last norm
    if load.checkpointing:
        return load.shape.layers * load.shape.hidden * size + layer + last
    return load.shape.layers * layer + last


def _layer_bytes(load: Load) -> int:
    """Of one block: what its norms, attention and gated layer hold.

    A norm holds its input in float32, and its normalised input where its own weight is trained. A linear layer holds
    its input where its weight, or an adapter on it, is trained (see `trainers.activations`).
    """
    s, size = load.shape, BYTES[load.dtype]
    attention = 2 * s.query + 2 * s.key + s.qk_norm * (s.query + s.key)
    if not load.lora:
        norms = 2 * s.hidden * (4 + 2 * size) + s.qk_norm * (s.query + s.key) * size
        return norms + size * (attention + 4 * s.feed_forward)
    inner = LINEAR_LAYERS * load.lora_r * 4
    inputs = size * 2 * s.hidden
    return 2 * s.hidden * 4 + inputs + size * (attention + 4 * s.feed_forward) + inner


def _head_bytes(load: Load) -> int:
    tile = min(HEAD_TOKENS, load.batch * load.longest) * min(HEAD_WIDTH, load.shape.vocabulary) * 4
    weight = 0 if load.lora else load.shape.vocabulary * load.shape.hidden * 4  # its gradient is added up in float32
    return 2 * tile + weight


def machine(*, use_cpu: bool) -> Machine:
    """The memory that training would use here."""
    if (gpu := preset.find_gpu(use_cpu=use_cpu)) is not None:
        return Machine(gpu.name, gpu.total, gpu.free)
    page = os.sysconf("SC_PAGE_SIZE")
    return Machine(MAIN_MEMORY, os.sysconf("SC_PHYS_PAGES") * page, os.sysconf("SC_AVPHYS_PAGES") * page)


def lines(load: Load, estimated: MemoryEstimate, has: Machine) -> Iterator[str]:
    """The estimate for people, with the remedy where it does not fit."""
    trained = f"{load.lora / 1e6:,.2f} M of an adapter trained" if load.lora else "all of them trained"
    yield (
        f"memory, estimated: {gib(estimated.total)} of {gib(has.total)} ({has.name}); "
        f"{load.shape.parameters / 1e6:,.1f} M parameters in {load.dtype}, {trained}; episodes of up to "
        f"{load.longest:,} tokens"
    )
    for name, number in estimated.parts.items():
        yield f"  {gib(number):>10}  {name}"
    yield f"  {gib(PROGRAM):>10}  the program itself; 15 % are added to the parts above"
    if load.graphs:
        yield f"  {'':>10}  not at the same time: {', '.join(IN_SAMPLING)}; {', '.join(IN_LEARNING)}"
    if why := too_large(load, estimated, has):
        yield f"  a start is refused: {why}"
    elif estimated.total > has.total:
        yield f"  too large by {gib(estimated.total - has.total)}: {'; '.join(remedies(load, estimated))}"


def too_large(load: Load, estimated: MemoryEstimate, has: Machine) -> str:
    """Why a run cannot fit into a GPU, with what helps; empty where it may, and on a CPU, which has other memory."""
    if has.name == MAIN_MEMORY or estimated.total <= (1 + ERROR) * has.total:
        return ""
    return (
        f"it needs about {gib(estimated.total)} and the {has.name} has {gib(has.total)}, more than the estimate can be "
        f"wrong ({ERROR:.0%}). What helps most: {'; '.join(remedies(load, estimated))}"
    )


def gib(number: float) -> str:
    """Bytes as people read them."""
    return f"{number / GIB:,.2f} GiB" if number >= GIB / 100 else f"{number / 2**20:,.2f} MiB"


def remedies(load: Load, estimated: MemoryEstimate) -> Iterator[str]:
    """What would help, what helps most first."""
    parts = estimated.parts
    choices = [
        (parts.get(ACTIVATIONS, 0) + parts.get(REPLAYS, 0), _smaller_pass(load)),
        (_of_slots(parts), f"slots below {load.slots}, or a lower max_turn_tokens"),
        (0 if load.lora else parts["gradients"] * 3, "adapter=lora"),
        (0 if load.dtype != "float32" else parts["weights"] // 2, "dtype=bfloat16"),
        (parts.get("reference for the KL", 0), "beta=0 (no reference)"),
        (parts.get("the start, for the confirmation", 0), "confirm=0 (no confirmation)"),
        (parts.get(COMPARED, 0), "gradient_cosine_steps=0"),
        (parts.get("sampling: a copy of the weights", 0), "overlap=0 and sample_dtype=same (no copy)"),
    ]
    for saved, text in sorted(choices, key=lambda choice: -choice[0]):
        if saved and text:
            yield text


def _of_slots(parts: dict[str, int]) -> int:
    return sum(number for name, number in parts.items() if name.startswith("sampling") and "weights" not in name)


def _smaller_pass(load: Load) -> str:
    smaller = ""
    if load.by_tokens:
        smaller = "a lower micro_batch_tokens"
    elif load.batch > 1:
        smaller = f"per_device_train_batch_size below {load.batch} with gradient_accumulation_steps"
    return " or ".join(t for t in ("" if load.checkpointing else "gradient_checkpointing", smaller) if t)


# -- `--dry-run`: what would run, what of it was checked and what could not be, and whether it fits; loads no model ---

MESSAGE_TOKENS = {"compact": 70, "standard": 400}
"""What one message of the environment is counted with; an observation can be longer (both styles cut it)."""
CHARACTERS = 3
"""Of English text and shell output per token, at least."""


def describe(run: Run) -> str:
    """The settings as `--config` takes them back, under what is known about them as comments.

    Raises:
        ConfigError: The tokenizer cannot carry the conversation.
    """
    c = run.settings.config
    trained = what_is_trained(run.settings.policy, run.source)
    about = [
        "dry run: settings, tasks and sandbox are right; no model was loaded",
        f"pool {len(run.tasks.pool)} tasks, held-out {len(run.tasks.held_out)} tasks{more_text(run.tasks)} "
        "(none in both)",
        f"confirmation at the end: {run.tasks.confirm_text}",
        f"sandbox {run.backend}; policy {run.model_folder}; prompt style {run.prompt_style}"
        + (f", protocol {run.protocol}" if protocol(run.protocol).tools else ""),
        *([line] if (line := run.settings.preset.line()) else []),
        f"trained: {trained.text}; KL {_reference(run)}",
        f"{c.max_steps} steps of {c.generation_batch_size // c.num_generations} tasks x {c.num_generations} attempts",
        *check_policy(run),
        *memory_lines(run),
        *[f"note: {note}" for note in run.notes()],
        *[f"self-test: {line.strip()}" for line in run.coverage.splitlines()],
        f"settings hash {run.sha256}",
    ]
    settings = yaml.safe_dump(run.settings.resolved(), sort_keys=False).rstrip()
    return "\n".join([*(f"# {line}" for line in about), settings])


def check_policy(run: Run) -> list[str]:
    """What the tokenizer says, T2PO's tags included.

    Raises:
        ConfigError: It cannot carry the conversation, or has no tokens for the tags.
    """
    found = check_tokenizer(run.source, raw=run.raw_prompts, protocol=run.protocol)
    if run.t2po is None or not run.t2po.thinks:
        return found.lines
    if found.tokenizer is None:
        return [*found.lines, "think tags: not checked either"]
    check_t2po(run.t2po, found.tokenizer)
    return [*found.lines, f"think tags: {run.t2po.think_open} and {run.t2po.think_close} are one token each"]


def memory_lines(run: Run) -> Iterator[str]:
    """The memory estimate, or why there is none."""
    shape = find_shape(run.source)
    if shape is None:
        yield (
            "memory: unknown, the shape of this model is not known here (known: config.json of llama, mistral, qwen2 "
            f"and qwen3 models on this machine, and by name {', '.join(NAMED)})"
        )
        return
    load = load_of(run, shape)
    longest = longest_episode(run)
    yield from lines(load, estimate(load), machine(use_cpu=run.settings.config.use_cpu))
    if longest > shape.context:
        yield f"  an episode could have {longest:,} tokens, and the model knows {shape.context:,}: it would end early"


def load_of(run: Run, shape: DecoderShape) -> Load:
    """What decides the memory of the run."""
    policy, c, t2po = run.settings.policy, run.settings.config, run.settings.t2po
    trained = what_is_trained(policy, run.source)
    lora = shape.lora_parameters(trained.lora_r, trained.targets) if trained.lora_r else 0
    reference = 0
    if c.beta:
        reference = shape.parameters if not lora else lora if run.peft is None else 0
    longest = min(longest_episode(run), shape.context)
    # A GPU's copy of the start waits in main memory.
    gpu = preset.find_gpu(use_cpu=c.use_cpu)
    keeps = bool(run.tasks.confirm) and gpu is None
    served = c.sampler.startswith(VLLM)
    replayed = c.may_replay_passes(cuda=gpu is not None, pieces=run.settings.env.keep_observations is not None)
    load = Load(
        shape=shape,
        dtype=policy.dtype,
        lora=lora,
        lora_r=trained.lora_r,
        reference=reference,
        batch=c.rows_of_a_pass(longest, replayed=replayed),
        slots=0 if served else episodes_at_once(run),
        longest=longest,
        checkpointing=c.checkpoints_activations,
        start=(lora or shape.parameters) if keeps else 0,
        copy=_copy_bytes(c, policy.dtype, gpu, adapted=bool(lora)),
        first=min(_first_prompt(run), longest),
        graphs=gpu is not None and not served,
        by_tokens=c.token_budget is not None,
        compared=bool(c.gradient_cosine_steps),
        tries=t2po.turn_resample_max_try if t2po.turn_resample and t2po.turn_resample_together else 1,
        replayed=replayed,
    )
    if gpu is None or not c.budget_is_auto:
        return load
    stays = estimate(replace(load, batch=0)).total
    return replace(load, room=int(SHARE * max(0, gpu.total - stays)) // (2 if replayed else 1))


def _copy_bytes(c: GiGPOConfig, dtype: str, gpu: preset.Gpu | None, *, adapted: bool) -> int:
    """Bytes of one weight of the copy that samples in this process; 0 where the model itself or a server does."""
    own = BYTES[dtype]
    size = BYTES.get(c.sample_dtype, own)
    if c.sample_dtype == "auto" and gpu is not None and gpu.bfloat16:  # elsewhere mostly at most its own
        size = BYTES["bfloat16"]
    copied = c.overlap or (c.sample_dtype != SAME and (adapted or size != own))
    return size if copied and not c.sampler.startswith(VLLM) else 0


def episodes_at_once(run: Run) -> int:
    """Episodes that one process has in flight: of a step, or of the larger side of an evaluation."""
    c, sides = run.settings.config, run.tasks.split.sides
    side = max((len(tasks) for name, tasks in sides.items() if name != "pool"), default=0)
    most = max(c.rows_in_flight, side * c.held_out_samples)
    return min(run.settings.env.slots, -(-most // c.world_size))


def longest_episode(run: Run) -> int:
    """Tokens that the last reply of an episode sees, itself included, which uses every turn and all of each reply."""
    env = run.settings.env
    said = MESSAGE_TOKENS.get(run.prompt_style, MESSAGE_TOKENS["standard"])
    turns, keep = most_turns(run), env.keep_observations
    if issubclass(environment(env.env), AnswerEnv) and not env.tools:
        # A reply that is cut is no answer: it is asked again, in a few words.
        turns = env.max_turns or max(task.budget.max_turns for task in run.tasks.everything)
        said = min(said, MESSAGE_TOKENS["compact"])
    full = turns if keep is None else min(turns, keep)
    again = full * said + (turns - full) * min(said, LINE_CUT // CHARACTERS)
    longest, budget = _first_prompt(run) + turns * reply_cap(run) + again, env.max_episode_tokens
    return longest if budget is None else min(longest, budget)


def _first_prompt(run: Run) -> int:
    """Tokens of the longest first prompt."""
    said = MESSAGE_TOKENS.get(run.prompt_style, MESSAGE_TOKENS["standard"])
    shown = len(protocol(run.protocol).words.beside) + sum(len(asked) + len(answer) for asked, answer in run.shots)
    return said + (shown + max(len(task.intent) for task in run.tasks.everything)) // CHARACTERS


def _reference(run: Run) -> str:
    beta = run.settings.config.beta
    if not beta:
        return "off (beta 0), no reference in memory"
    if run.peft is not None:
        return f"{beta:g} from the model without its adapter"
    return f"{beta:g} from a frozen copy of what the run starts with"
