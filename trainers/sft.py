"""Supervised fine-tuning on conversations: `python -m trainers.sft`.

Without arguments it makes the quickstart's warm start: a new tokenizer and a new small model, trained on generated
demonstrations (in a checkout of the repository only: `benchmarks/warm_start` generates them). With
`--model_name_or_path` and `--data` it trains any chat model on trajectories or messages.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TextIO

from trainers.errors import RunFolderError

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # we use processes; read once, at import

from trainers.run.pipes import start

if __name__ == "__main__":  # before what follows, which takes seconds to import and needs the extra `train`
    start("trainers.sft")

import torch
import transformers

from agents.models.card import MANIFEST, ModelCard, ModelError, find_card, write_card, write_manifest
from agents.models.loading import ModelKind, load_model, resolve_model
from sandboxes.guard import Parser
from tasks.families.quickstart import ALL_WORDS
from tasks.model import TaskError
from tasks.sources import load_tasks
from trainers.rollouts.manner import AUTO, SPOKEN
from trainers.run.folder import disk_full, refuse_occupied, refuse_unwritable
from trainers.warmstart.corpus import (
    Corpus,
    CorpusError,
    TokenizerError,
    read_corpus,
    save_tokenizer,
    spoken_in,
    train_tokenizer,
)
from trainers.warmstart.fieldnotes import Retold
from trainers.warmstart.model import (
    CONFIGS,
    DEMONSTRATIONS,
    WARM_START,
    Progress,
    SFTConfigError,
    SFTSettings,
    build_model,
    demonstration_maker,
    load_settings,
    train,
)

RECIPE = "recipe.json"
METRICS = "metrics.jsonl"
TOKENIZER_SAMPLE = 5_000
"""Demonstrations whose frequent pieces enter a new tokenizer."""


def new_policy(settings: SFTSettings) -> tuple[Any, Any]:
    """A new tokenizer and an untrained model for the generated families."""
    count = min(TOKENIZER_SAMPLE, settings.n_demonstrations)
    sample = demonstration_maker().demonstration_messages(count, settings.seed, settings.faults())
    texts = (message["content"] for messages in sample for message in messages)
    shape = settings.shape()
    tokenizer = train_tokenizer(ALL_WORDS, texts, min_count=settings.min_piece_count, context=shape.context)
    return build_model(tokenizer, shape, settings.seed), tokenizer


def load_policy(settings: SFTSettings) -> tuple[Any, Any]:
    """The named model in float32, with a LoRA adapter where one is asked for.

    Raises:
        SFTConfigError: It is an adapter, whose base alone would be trained, or nothing.
    """
    if resolve_model(settings.model_name_or_path or "").kind is ModelKind.ADAPTER:
        raise SFTConfigError(
            f"model_name_or_path={settings.model_name_or_path}: is an adapter. Merge it first (peft: "
            "`model.merge_and_unload()`, then `save_pretrained`) and name the merged folder."
        )
    model, tokenizer = load_model(settings.model_name_or_path or "", dtype=torch.float32)
    if settings.lora_r:
        from peft import LoraConfig, get_peft_model

        torch.manual_seed(settings.seed)
        adapter = LoraConfig(
            r=settings.lora_r, lora_alpha=settings.lora_alpha, target_modules="all-linear", task_type="CAUSAL_LM"
        )
        model = get_peft_model(model, adapter)
    return model, tokenizer


def run(settings: SFTSettings, *, dry: bool = False, say: Callable[[str], None] = print) -> Path:
    """Make data, train, save; returns the model folder. A dry run makes a little data and no model folder.

    Raises:
        RunFolderError: `output_dir` is occupied, or cannot be made.
        SFTConfigError, CorpusError: Settings or data cannot be used.
    """
    begin = time.perf_counter()
    folder = Path(settings.output_dir)
    check_folder(folder, overwrite=settings.overwrite)
    refuse_unwritable(folder)
    device = _device(settings.device)
    model, tokenizer = new_policy(settings) if settings.model_name_or_path is None else load_policy(settings)
    size = sum(parameter.numel() for parameter in model.parameters())
    say(f"model: {size:,} parameters, vocabulary {len(tokenizer):,}, on {device}")
    corpus = _corpus(settings, tokenizer, limit=500 if dry else None)
    kept = corpus.shorter_than(settings.max_length)
    left_out = len(corpus) - len(kept)
    say(
        f"data: {len(kept):,} conversations, {kept.tokens:,} tokens, {int(kept.trained.sum()):,} of them trained"
        + (f", {left_out:,} longer than {settings.max_length} left out" if left_out else "")
        + f" ({time.perf_counter() - begin:.1f} s)"
    )
    if dry:
        say(_plan(settings, kept))
        return folder
    card = card_of_data(settings)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / METRICS, "w", encoding="utf-8") as log:
        last = train(
            model,
            kept,
            settings,
            pad_id=_pad_id(tokenizer),
            device=device,
            report=lambda progress: _report(progress, begin, say, log),
        )
    weights = save(model, tokenizer, folder, settings, card)
    record = _record(settings, kept, left_out, model, tokenizer, device, last)
    record["weights_sha256"] = weights
    record["wall_seconds"] = round(time.perf_counter() - begin, 1)
    (folder / RECIPE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    write_manifest(folder)
    say(f"saved {folder} (weights sha256 {weights[:16]}...) after {record['wall_seconds']} s")
    return folder


def check_folder(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something, unless it may be overwritten and this program made it.

    Raises:
        RunFolderError: It is occupied.
    """
    hint = "choose another --output_dir, or add --overwrite"
    if overwrite:
        hint = "it was not made by this program, so --overwrite leaves it alone: choose another --output_dir"
    if not (overwrite and ((folder / RECIPE).exists() or (folder / METRICS).exists())):
        refuse_occupied(folder, hint=hint)


def save(model: Any, tokenizer: Any, folder: Path, settings: SFTSettings, card: ModelCard | None = None) -> str:
    """Write a Hugging Face folder (an adapter is merged first) and return the sha256 of its weights.

    `card` says how the data speaks; `None` is that of generated demonstrations.
    """
    if settings.lora_r:
        model = model.merge_and_unload()
    model.to("cpu", getattr(torch, settings.save_dtype))
    for old in (*folder.glob("*.safetensors*"), folder / MANIFEST):
        old.unlink(missing_ok=True)
    model.save_pretrained(folder)
    for path in folder.glob("*.safetensors"):
        path.chmod(0o644)  # written through a temporary file, which only the owner may read
    new = settings.model_name_or_path is None
    save_tokenizer(tokenizer, folder, plain=new)
    write_card(folder, card or ModelCard(prompt_style=DEMONSTRATIONS))
    write_manifest(folder)
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def card_of_data(settings: SFTSettings) -> ModelCard:
    """What the model that is made says about how it is spoken to: as its data speaks.

    Raises:
        SFTConfigError: The data speaks otherwise than the model was made for, or in several ways, unasked.
    """
    if settings.data is None:
        return ModelCard(prompt_style=DEMONSTRATIONS)
    source = resolve_model(settings.model_name_or_path or "")
    own = find_card(source.location) if source.kind is not ModelKind.HUB else None
    spoken = spoken_in(Path(settings.data), passed_only=settings.passed_only)
    style, protocol = (_agreed(name, settings, spoken, own) for name in SPOKEN)
    plain = ModelCard(prompt_style=style, protocol=protocol)
    if len(spoken) == 1:
        (card,) = spoken
        if own is not None and (own.environment, own.prompt_hash) == (card.environment, card.prompt_hash):
            return own  # with its caps
        return card
    if spoken:  # of several environments: common to them is how they speak, and maybe what became of old observations
        kept = {card.keep_observations for card in spoken}
        return replace(plain, keep_observations=kept.pop() if len(kept) == 1 else None)
    return own if own is not None and (own.prompt_style, own.protocol) == (style, protocol) else plain


def _agreed(name: str, settings: SFTSettings, spoken: Collection[ModelCard], own: ModelCard | None) -> str:
    """How the data speaks in one setting of a card: as it says, else as was asked, else as the model was made for.

    Raises:
        SFTConfigError: These differ, unasked.
    """
    asked = None if getattr(settings, name) == AUTO else str(getattr(settings, name))
    found = sorted({str(getattr(card, name)) for card in spoken})
    if asked is not None and found not in ([], [asked]):
        raise SFTConfigError(f"{name}={asked}: the trajectories in {settings.data} speak {', '.join(found)}")
    if asked is None and len(found) > 1:
        raise SFTConfigError(
            f"data={settings.data}: speaks {' and '.join(found)}, and a policy is made for one "
            f"{name.replace('_', ' ')}. Give it trajectories of one"
        )
    made_for = None if own is None else str(getattr(own, name))
    if asked is None and made_for is not None and found not in ([], [made_for]):
        raise SFTConfigError(
            f"data={settings.data}: speaks {found[0]}, and the model {settings.model_name_or_path} was made for "
            f"{made_for}. To train it so all the same, say so: --{name} {found[0]}"
        )
    return found[0] if found else asked or made_for or str(getattr(ModelCard(), name))


def _corpus(settings: SFTSettings, tokenizer: Any, limit: int | None) -> Corpus:
    if settings.data is not None:
        tasks = {task.id: task for task in load_tasks(settings.tasks)} if settings.tasks else {}
        retold = Retold(tasks, card_of_data(settings).prompt_style)
        return read_corpus(Path(settings.data), tokenizer, passed_only=settings.passed_only, retold=retold)
    count = settings.n_demonstrations if limit is None else min(limit, settings.n_demonstrations)
    maker, faults = demonstration_maker(), settings.faults()
    return maker.generated_corpus(tokenizer, count, settings.seed, faults, settings.processes)


def _pad_id(tokenizer: Any) -> int:
    return tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id


def _device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SFTConfigError(f"device={name!r}: auto, cpu, cuda or cuda:<number>") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SFTConfigError(f"device={name!r}: torch {torch.__version__} sees no CUDA device here; use cpu")
    return device


def _report(progress: Progress, begin: float, say: Callable[[str], None], log: TextIO) -> None:
    say(progress.line())
    record = {"step": progress.step, "wall_seconds": round(time.perf_counter() - begin, 3), "loss": progress.loss}
    record |= {"token_accuracy": progress.token_accuracy, "learning_rate": progress.learning_rate}
    log.write(json.dumps(record) + "\n")
    log.flush()


def _plan(settings: SFTSettings, sample: Corpus) -> str:
    full = len(sample) if settings.data is not None else settings.n_demonstrations
    tokens = sample.tokens * full / max(1, len(sample))
    steps = settings.max_steps or math.ceil(settings.epochs * tokens / settings.batch_tokens)
    return f"dry run: about {tokens:,.0f} tokens in {steps:,} steps would be trained on, into {settings.output_dir}"


def _record(
    settings: SFTSettings,
    corpus: Corpus,
    left_out: int,
    model: Any,
    tokenizer: Any,
    device: torch.device,
    last: Progress,
) -> dict[str, Any]:
    return {
        "made_by": "python -m trainers.sft",
        "seed": settings.seed,
        "settings": settings.to_json(),
        "faults": settings.faults().to_json() if settings.data is None else None,
        "data": {
            "sha256": corpus.sha256(), "conversations": len(corpus), "left_out": left_out,
            "tokens": corpus.tokens, "trained_tokens": int(corpus.trained.sum()),
        },
        "model": {"parameters": sum(p.numel() for p in model.parameters()), "vocabulary": len(tokenizer)},
        "result": {"steps": last.steps, "loss": last.loss, "token_accuracy": last.token_accuracy},
        "versions": {
            "python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__,
        },
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
    }  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The command line: one flag per setting that is not a mapping."""
    out = Parser(
        prog="python -m trainers.sft", description=(__doc__ or "").split("\n\n", 1)[1].replace("\n", " "),
        argument_default=argparse.SUPPRESS, allow_abbrev=False,
    )  # fmt: skip
    out.add_argument("--config", type=Path, help="YAML of settings, or the name of one that ships.")
    out.add_argument("--dry_run", "--dry-run", action="store_true", help="Say what would be done, on a little data.")
    kinds: dict[str, Callable[[str], Any]] = {
        "int": int,
        "int | None": int,
        "float": float,
        "str": str,
        "str | None": str,
        "dict[str, Any]": _mapping,
    }
    for setting in fields(SFTSettings):
        kind = str(setting.type)
        if kind == "bool":
            out.add_argument(f"--{setting.name}", action=argparse.BooleanOptionalAction, help=setting.metadata["help"])
        elif kind in kinds:
            out.add_argument(f"--{setting.name}", type=kinds[kind], metavar="X", help=setting.metadata["help"])
    return out


def _mapping(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON ({error}): {text}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f'must be a JSON object such as {{"habit": 0.5}}: {text}')
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Command line entry; 2 for a mistake that the message explains."""
    flags = vars(parser().parse_args(argv))
    dry = flags.pop("dry_run", False)
    named = "model_name_or_path" in flags
    config = flags.pop("config", None if named else WARM_START)
    if config is not None and not config.exists() and (CONFIGS / f"{config}.yaml").exists():
        config = CONFIGS / f"{config}.yaml"
    try:
        run(load_settings(config, flags), dry=dry)
    except (SFTConfigError, CorpusError, TaskError, TokenizerError, ModelError, RunFolderError) as error:
        print(f"trainers.sft: {error}", file=sys.stderr)
        return 2
    except Exception as error:  # a writer in another language raises errors of its own
        if not disk_full(error):
            raise
        print("trainers.sft: no space left on the disk: make room, and start again with --overwrite", file=sys.stderr)
        return 1
    return 0
