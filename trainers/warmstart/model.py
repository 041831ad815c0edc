"""The untrained small model of a warm start, its settings, and the loop that trains it."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerBase

from envs.answer_prompts import ANSWER_STYLES
from envs.prompts import STYLES
from envs.protocol import DEFAULT_PROTOCOL, PROTOCOLS
from tasks.settings import Settings, problems, setting, written
from trainers.errors import ConfigError
from trainers.settings.groups import DTYPES
from trainers.settings.parsing import known_settings, read_config, suggest
from trainers.warmstart.corpus import Batches, Corpus

# -- A small Llama with weights that copy: the untrained model of a warm start ----------------------------------------
# Random attention has to discover "look at the token that equals me" and "pass on what you look at" before it can copy
# a name, and on tens of millions of tokens that search takes most of the run. So both start near it: in every head the
# query and key maps share their weights (their product is then close to a scaled identity on the head's subspace), and
# the value and output maps together are close to a scaled identity.
#
# Source: Trockman and Kolter, "Mimetic Initialization of Self-Attention Layers", 2023.


@dataclass(frozen=True)
class ModelShape:
    """The architecture of a new model.

    Attributes:
        hidden: Width. Must be a multiple of `heads`.
        layers: Transformer blocks.
        heads: Attention heads (as many key/value heads).
        feed_forward: Width of the gated feed-forward layer.
        context: Longest sequence, in tokens.
        init_std: Deviation of every random weight and of the noise that is added to the mimetic ones.
        qk_scale: Diagonal of each head's query-key product; 0 leaves query and key random.
        ov_scale: Diagonal of the value-output product; 0 leaves value and output random.
    """

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    feed_forward: int = 384
    context: int = 2048
    init_std: float = 0.08
    qk_scale: float = 0.7
    ov_scale: float = 0.4


def build_model(tokenizer: PreTrainedTokenizerBase, shape: ModelShape, seed: int) -> LlamaForCausalLM:
    """A new model in float32 with tied embeddings, for `tokenizer`'s vocabulary. Same arguments, same weights.

    Raises:
        ValueError: `hidden` is no multiple of `heads`.
    """
    if shape.hidden % shape.heads:
        raise ValueError(f"model.hidden={shape.hidden} is no multiple of model.heads={shape.heads}")
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.feed_forward,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.context,
        initializer_range=shape.init_std,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config).float()
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            layers: Any = model.model.layers
            for layer in layers:
                _mimetic(layer.self_attn, shape, generator)
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model


def _mimetic(attention: Any, shape: ModelShape, generator: torch.Generator) -> None:
    """Set one attention layer's maps. A basis of the whole width, cut among the heads, serves each pair of maps."""
    query, key = attention.q_proj.weight, attention.k_proj.weight
    value, output = attention.v_proj.weight, attention.o_proj.weight
    if shape.qk_scale:
        basis = _orthogonal(shape.hidden, generator) * shape.qk_scale**0.5
        query.copy_(basis + _noise(shape, generator))
        key.copy_(basis + _noise(shape, generator))
    if shape.ov_scale:
        basis = _orthogonal(shape.hidden, generator) * shape.ov_scale**0.5
        value.copy_(basis + _noise(shape, generator))
        output.copy_(basis.T + _noise(shape, generator))


def _orthogonal(width: int, generator: torch.Generator) -> torch.Tensor:
    basis, upper = torch.linalg.qr(torch.randn(width, width, generator=generator))
    return basis * upper.diagonal().sign()  # one convention of signs: equal on every linear algebra library


def _noise(shape: ModelShape, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape.hidden, shape.hidden, generator=generator) * shape.init_std


# -- The training loop of supervised fine-tuning: weighted next-token loss over batches of similar length -------------
# Deterministic on a CPU, given the model and the seed. On a GPU the order of data and the arithmetic type are the same
# from run to run, and sums may still differ in their last bits.


@dataclass(frozen=True, slots=True)
class Progress:
    """One line of the log, over the steps since the last line.

    Attributes:
        step: Steps done, of `steps`.
        loss: Mean cross-entropy of the tokens that are trained at full weight (nats).
        token_accuracy: Share of those tokens that are the model's first choice.
        learning_rate: At the last step.
        tokens_per_second: Tokens trained on or read, without padding, per second of wall time.
    """

    step: int
    steps: int
    loss: float
    token_accuracy: float
    learning_rate: float
    tokens_per_second: float

    def line(self) -> str:
        """For people."""
        return (
            f"step {self.step:>5}/{self.steps}  loss {self.loss:.4f}  token accuracy {self.token_accuracy:.3f}  "
            f"lr {self.learning_rate:.2e}  {self.tokens_per_second:,.0f} tokens/s"
        )


def train(
    model: Any, corpus: Corpus, settings: SFTSettings, *, pad_id: int, device: torch.device,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Progress:  # fmt: skip
    """Train `model` in place and return the last progress. The order of the data depends on `settings.seed` alone.

    Raises:
        CorpusError: Nothing to train on.
        FloatingPointError: The loss is no longer a number.
    """
    batches = Batches(corpus, settings.batch_tokens, pad_id, settings.seed)
    steps = settings.max_steps or max(1, math.ceil(settings.epochs * len(batches)))
    optimizer = _optimizer(model, settings, device)
    model.to(device).train()
    totals = torch.zeros(3, device=device)  # loss, right, trained tokens
    tokens, since = 0, time.perf_counter()
    progress: Progress | None = None
    for step, (ids, trained, real) in enumerate(islice(_forever(batches), steps), start=1):
        rate = settings.learning_rate * schedule(step, steps, settings.warmup_steps)
        for group in optimizer.param_groups:
            group["lr"] = rate
        context_weight = settings.context_weight if step <= settings.context_until * steps else 0.0
        batch = Batch(*(torch.from_numpy(array).to(device, non_blocking=True) for array in (ids, trained, real)))
        loss, counts = weighted_loss(model, batch, context_weight, autocast=device.type == "cuda")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()
        totals += counts
        tokens += int(real.sum())
        if step % settings.logging_steps == 0 or step == steps:
            loss_sum, right, count = totals.tolist()
            if not math.isfinite(loss_sum):
                raise FloatingPointError(f"step {step}: the loss is {loss_sum}; lower learning_rate")
            seconds = time.perf_counter() - since
            progress = Progress(step, steps, loss_sum / count, right / count, rate, tokens / seconds)
            report(progress)
            totals.zero_()
            tokens, since = 0, time.perf_counter()
    assert progress is not None
    model.eval()
    return progress


def schedule(step: int, steps: int, warmup: int) -> float:
    """Share of the peak learning rate at a step (from 1): linear warm-up, then half a cosine to 0."""
    warmup = min(warmup, max(1, steps // 2))
    if step <= warmup:
        return step / warmup
    return 0.5 * (1.0 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


@dataclass(frozen=True, slots=True)
class Batch:
    """Tensors of shape (sequences, longest), see `Batches.epoch`."""

    ids: torch.Tensor
    trained: torch.Tensor
    real: torch.Tensor


def weighted_loss(
    model: Any, batch: Batch, context_weight: float, *, autocast: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean cross-entropy of the next token, and its bookkeeping.

    Args:
        model: A causal language model.
        batch: What to learn; padding has no weight.
        context_weight: Weight of tokens that are read only; tokens that are trained have weight 1.
        autocast: Compute in bfloat16.

    Returns:
        The weighted mean (nats), and sums over the trained tokens: loss, right first choices, count.
    """
    ids, trained, real = batch.ids, batch.trained, batch.real
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=autocast):
        logits = model(input_ids=ids, use_cache=False).logits
    goal = ids[:, 1:].reshape(-1)
    on = trained[:, 1:].reshape(-1)
    used = real[:, 1:].reshape(-1) if context_weight else on
    logits = logits[:, :-1].reshape(len(goal), -1)[used].float()
    goal, on = goal[used], on[used].float()
    each = functional.cross_entropy(logits, goal, reduction="none")
    weight = on + context_weight * (1.0 - on)
    with torch.no_grad():
        right = (logits.argmax(-1) == goal).float()
        counts = torch.stack([(each * on).sum(), (right * on).sum(), on.sum()])
    return (each * weight).sum() / weight.sum().clamp_min(1e-8), counts


def _forever(batches: Batches) -> Iterator[Any]:
    while True:
        yield from batches.epoch()


def _optimizer(model: Any, settings: SFTSettings, device: torch.device) -> torch.optim.Optimizer:
    learned = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in learned if p.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [p for p in learned if p.ndim < 2], "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, fused=device.type == "cuda")


# -- Settings of supervised fine-tuning: one dataclass, from a YAML file with flags on top ----------------------------

CONFIGS = Path(__file__).resolve().parent.parent / "configs"
WARM_START = CONFIGS / "warm_start.yaml"
"""The recipe of the shipped quickstart policy."""


STYLE_NAMES = tuple(dict.fromkeys(("auto", *STYLES, *ANSWER_STYLES)))
DEMONSTRATIONS = "compact"
"""Prompt style of generated demonstrations."""


class SFTConfigError(ValueError):
    """A setting is unknown or cannot work; the message names it."""


def demonstration_maker() -> Any:
    """What generates demonstrations: `benchmarks/warm_start` of the repository, which is no part of the package.

    Raises:
        SFTConfigError: It is not here.
    """
    try:
        return importlib.import_module("benchmarks.warm_start.corpus")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("benchmarks"):
            raise
        raise SFTConfigError(
            "data: none is named, so demonstrations would be generated, and what generates them comes with the "
            "repository and not with the package. Name --data and --model_name_or_path, or run this in the top folder "
            "of a checkout of the repository"
        ) from error


@dataclass(frozen=True)
class SFTSettings(Settings):
    """What to train, on what, and how. The defaults suit an existing model; `warm_start.yaml` makes a new one."""

    output_dir: str = setting("runs/sft", "Where the model goes; refused when occupied.")
    overwrite: bool = setting(False, "Replace what is in `output_dir`.")
    model_name_or_path: str | None = setting(
        None, "Model to go on from: `quickstart`, `smollm2`, a folder or a hub id. None builds a new one."
    )
    data: str | None = setting(
        None,
        "JSONL of trajectories (`trajectories/*.jsonl` of a run, or of field-notes) or of {'messages': [...]}. "
        "None generates demonstrations of the quickstart families.",
    )
    tasks: str | None = setting(
        None, "Tasks of field-notes episodes in `data`, which have no prompts: fieldnotes:PATH or any source."
    )
    prompt_style: str = setting(
        "auto",
        "How the data speaks, for the model's card: auto (as trajectories say, else as the model was made "
        "for) | standard | compact | base.",
        choices=STYLE_NAMES,
    )
    protocol: str = setting(
        "auto",
        "How its replies say what to do, for the model's card: auto (as trajectories say, else as the model was made "
        "for) | text | tools.",
        choices=("auto", *PROTOCOLS),
    )
    passed_only: bool = setting(True, "Of trajectories, keep those that passed.")
    n_demonstrations: int = setting(200_000, "Demonstrations to generate.", low=1)
    recipe: dict[str, Any] = setting(dict, "Faults of demonstrations (a flag takes JSON).")
    model: dict[str, Any] = setting(dict, "Shape of a new model (a flag takes JSON).")
    min_piece_count: int = setting(20, "New tokenizer: how often a piece must occur.", low=1)
    seed: int = setting(0, "Seeds data, order and initial weights.", low=0)
    device: str = setting("auto", "auto | cpu | cuda | cuda:1 ...")
    processes: int | None = setting(None, "Processes that make data; 0 = number of cores.", off=0, above=0)
    epochs: float = setting(1.0, "Passes over the data.", above=0)
    max_steps: int | None = setting(None, "Stop after this many steps (the schedule fits); 0 = epochs.", off=0, above=0)
    batch_tokens: int = setting(8192, "Tokens of a batch, padding included.", low=1)
    max_length: int = setting(2048, "Leave out conversations of more tokens than this.", low=1)
    learning_rate: float = setting(2e-5, "Peak learning rate.", above=0)
    warmup_steps: int = setting(10, "Steps of linear warm-up; a cosine to 0 follows.", low=0)
    weight_decay: float = setting(0.1, "AdamW weight decay of the matrices.", low=0)
    beta1: float = setting(0.9, "AdamW first moment.", low=0, below=1)
    beta2: float = setting(0.98, "AdamW second moment.", low=0, below=1)
    max_grad_norm: float = setting(1.0, "Gradients are clipped to this norm.", above=0)
    context_weight: float = setting(0.0, "Loss weight of tokens the policy only reads.", low=0)
    context_until: float = setting(0.5, "Share of the run after which that weight is 0.", low=0, high=1)
    lora_r: int | None = setting(None, "LoRA rank (needs peft); 0 trains all weights.", off=0, above=0)
    lora_alpha: int = setting(32, "LoRA scale.", low=1)
    save_dtype: str = setting("float32", "Weights on disk: float32 | bfloat16 | float16.", choices=DTYPES)
    logging_steps: int = setting(20, "Print and record every N steps.", low=1)

    def __post_init__(self) -> None:
        """Check what can be checked without the data.

        Raises:
            SFTConfigError: A value cannot work.
        """
        Settings.__post_init__(self)
        if wrong := list(problems(self)):
            raise SFTConfigError("\n".join(wrong))
        if self.data is None and self.prompt_style not in ("auto", DEMONSTRATIONS):
            raise SFTConfigError(
                f"prompt_style={self.prompt_style}: generated demonstrations speak {DEMONSTRATIONS}; name data= of "
                "another style, or leave it out"
            )
        if self.tasks is not None and self.data is None:
            raise SFTConfigError("tasks: does nothing without data, whose episodes are about them; leave it out")
        if self.data is None and self.protocol not in ("auto", DEFAULT_PROTOCOL):
            raise SFTConfigError(
                f"protocol={self.protocol}: generated demonstrations speak {DEFAULT_PROTOCOL}; name data= of another "
                "protocol, or leave it out"
            )
        if self.lora_r and self.model_name_or_path is None:
            raise SFTConfigError("lora_r: a new model has nothing to adapt; name one with model_name_or_path")
        if self.data is not None and self.model_name_or_path is None:
            raise SFTConfigError(
                "data without model_name_or_path: a new small model knows only the quickstart vocabulary. "
                "Name the model to train, for example --model_name_or_path quickstart"
            )
        self.shape()
        if self.data is None:
            self.faults()

    def faults(self) -> Any:
        """The faults of the demonstrations, a `Recipe` of `demonstration_maker`.

        Raises:
            SFTConfigError: An unknown key under `recipe`, no probability, or nothing here generates demonstrations.
        """
        kind = demonstration_maker().Recipe
        _known(self.recipe, kind, "recipe")
        try:
            return kind(**self.recipe)
        except (ValueError, TypeError, AttributeError) as error:
            raise SFTConfigError(str(error)) from error

    def shape(self) -> ModelShape:
        """The new model's shape.

        Raises:
            SFTConfigError: An unknown key under `model`.
        """
        _known(self.model, ModelShape, "model")
        return ModelShape(**self.model)

    def to_json(self) -> dict[str, Any]:
        """The settings that shape the weights: not where they are made and go, nor what their card says."""
        here = ("output_dir", "overwrite", "device", "processes", "logging_steps", "prompt_style", "protocol")
        unsaid = () if self.tasks else ("tasks",)
        return {name: value for name, value in written(self).items() if name not in (*here, *unsaid)}


def load_settings(path: Path | None, flags: Mapping[str, Any]) -> SFTSettings:
    """Settings of a YAML file (none: the defaults) with flags on top.

    Raises:
        SFTConfigError: No such file, no mapping, an unknown key, or a value that cannot work.
    """
    try:
        values = {} if path is None else read_config(path, (SFTSettings,))
    except ConfigError as error:
        raise SFTConfigError(str(error)) from error
    return SFTSettings(**{**values, **flags})


def _known(given: Mapping[str, Any], kind: Any, where: str) -> None:
    for name in given:
        if name not in (known := known_settings((kind,))):
            raise SFTConfigError(f"{where}.{name}: no such setting{suggest(name, known)}")
