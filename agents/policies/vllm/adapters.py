"""LoRA adapters published to a running vLLM server, one after the other, without a restart.

Every version gets a name and a folder that were never used before. A server keys its prefix cache by name and path of
the adapter, not by its weights: under a name used before, long prompts are answered with keys and values of the older
weights (measured: log-probabilities off by 0.5 nats on 700 ids, with no error anywhere), and replies that are under way
change weights in their middle. With fresh names neither happens.
"""

from __future__ import annotations

import json
import logging
import math
import secrets
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agents.models.card import CARD_FILE
from agents.policies.vllm.replicas import Alive, Replicas
from agents.policy import PolicyError
from tasks.endpoints.http import HttpError, JsonClient

LOAD = "/v1/load_lora_adapter"
UNLOAD = "/v1/unload_lora_adapter"
CONFIG = "adapter_config.json"
KEPT = 2
"""Newest versions that stay on the server: the current one, and the one that replies may still be using."""
_READ = frozenset({"r", "lora_alpha", "target_modules", "use_rslora", "use_dora", "bias", "modules_to_save"}) | {
    # What follows the server refuses by what it finds in the weights, or it does not change what an adapter computes.
    *("trainable_token_indices", "task_type", "peft_type", "auto_mapping", "peft_version", "base_model_name_or_path"),
    *("revision", "inference_mode", "exclude_modules", "layers_to_transform", "layers_pattern", "lora_dropout"),
    *("fan_in_fan_out", "init_lora_weights", "eva_config", "megatron_core", "qalora_group_size", "ensure_weight_tying"),
}
"""Keys of an adapter's configuration that vLLM heeds, or refuses by itself. It passes over the others in silence."""
_PLAIN_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` that leave the base model as it is."""
_ENABLE = "start the server with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment and --enable-lora"

FAULT = 500
CLOSE_SECONDS = 10.0
"""Longest wait for a server to unload an adapter when all is over."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Version:
    """A published adapter, and how many calls are sampling with it."""

    name: str
    folder: Path
    users: int = 0


class Adapters:
    """The adapters that this process has on a server, or on each of its replicas.

    Args:
        servers: Calls to them.
        folder: Where adapters are written; the server must see it under the same path. Default: a temporary one.
    """

    def __init__(self, servers: Replicas, folder: str | Path | None = None) -> None:
        self._servers = servers
        self._parent = None if folder is None else Path(folder).expanduser().resolve()
        self._folder: Path | None = None
        self._versions: list[_Version] = []
        self._count = 0
        self._lock = threading.RLock()  # a replica may come back, and be given what is here, while one is published

    @property
    def current(self) -> str | None:
        """Name of the newest version; `None` before the first."""
        return self._versions[-1].name if self._versions else None

    def publish(self, model: Any) -> str:
        """Write the active adapter of a PEFT model, load it, and sample with it from the next call on; its name.

        Raises:
            PolicyError: The model has no LoRA adapter, or the server does not take it.
        """
        name = _active_lora(model)
        _check_layers(model, name)

        def save(target: Path) -> None:
            # Embeddings that PEFT might add are none that vLLM reads; left to itself it would ask the hub about them.
            model.save_pretrained(target, selected_adapters=[name], save_embedding_layers=False)
            if name != "default":
                for file in (target / name).iterdir():
                    file.rename(target / file.name)
                (target / name).rmdir()

        return self._publish(save)

    def publish_folder(self, folder: str | Path) -> str:
        """The same for an adapter that PEFT has saved. The folder is copied; it may change afterwards.

        Raises:
            PolicyError: No adapter is there, or the server does not take it.
        """
        source = Path(folder).expanduser()
        if not (source / CONFIG).is_file():
            raise PolicyError(
                f"{source} holds no adapter (no {CONFIG}): give a folder that PEFT's save_pretrained wrote"
            )

        def copy(target: Path) -> None:
            card = source / CARD_FILE
            for file in [source / CONFIG, *source.glob("adapter_model*"), *([card] if card.is_file() else [])]:
                shutil.copy2(file, target)

        return self._publish(copy)

    @contextmanager
    def pinned(self) -> Iterator[str | None]:
        """The current version's name; it stays on the server until the end of the block, whatever is published."""
        with self._lock:
            version = self._versions[-1] if self._versions else None
            if version is not None:
                version.users += 1
        try:
            yield version.name if version is not None else None
        finally:
            if version is not None:
                with self._lock:
                    version.users -= 1

    def close(self) -> None:
        """Unload and delete everything that was published. A server that is gone is no error, but it is logged."""
        with self._lock:
            versions, self._versions = self._versions, []
            for version in versions:
                self._drop(version.name, retries=0, timeout=CLOSE_SECONDS)
            if self._folder is not None:
                with suppress(FileNotFoundError):  # somebody has cleaned up
                    shutil.rmtree(self._folder)
                self._folder = None

    def _publish(self, write: Callable[[Path], None]) -> str:
        with self._lock:
            home = self._home()
            name = f"{home.name}-v{self._count}"
            self._count += 1
            unfinished, target = home / f".{name}", home / name
            try:
                unfinished.mkdir()
                write(unfinished)
                _check(unfinished)
                unfinished.rename(target)  # in one step: nobody reads half an adapter
                try:
                    self._load(name, target)
                except BaseException:
                    self._drop(name, retries=0, timeout=CLOSE_SECONDS)  # the load may have come through
                    raise
            except BaseException:
                for folder in (unfinished, target):
                    shutil.rmtree(folder, ignore_errors=True)  # it may not exist yet
                raise
            self._versions.append(_Version(name, target))
            self._retire()
            return name

    def _home(self) -> Path:
        """The folder of this run; its name has a random part, so that two runs on one server never meet."""
        if self._folder is None:
            if self._parent is None:
                self._folder = Path(tempfile.mkdtemp(prefix="turngym-adapters-")).resolve()
            else:
                self._folder = self._parent / f"turngym-{secrets.token_hex(4)}"
                self._folder.mkdir(parents=True)
        return self._folder

    def restore(self, client: JsonClient) -> None:
        """Load what is published onto a server that was away.

        Raises:
            PolicyError: It does not take it.
        """
        with self._lock:
            for version in self._versions:
                with _explained(version.name, version.folder):
                    _load(client, version.name, version.folder)

    def _load(self, name: str, folder: Path) -> None:
        with _explained(name, folder):
            self._servers.everywhere(lambda client, alive: _load(client, name, folder, alive))

    def _retire(self) -> None:
        for version in list(self._versions[:-KEPT]):
            if version.users == 0:
                self._versions.remove(version)
                self._drop(version.name)
                shutil.rmtree(version.folder, ignore_errors=True)  # a leftover is no reason to end a run

    def _drop(self, name: str, **how: Any) -> None:
        """Take an adapter off the server. One that stays there costs memory and changes no reply: that is logged."""

        def drop(client: JsonClient, alive: Alive) -> None:
            try:
                client.tell(UNLOAD, {"lora_name": name}, **how)
            except HttpError as error:
                if error.status != 404:  # already gone
                    log.warning("adapter %s may still be on the server: %s", name, error)

        self._servers.everywhere(drop)


def _load(client: JsonClient, name: str, folder: Path, alive: Alive | None = None) -> None:
    try:
        # The server answers 500 when it cannot take an adapter: no reason to ask again.
        client.tell(LOAD, {"lora_name": name, "lora_path": str(folder)}, final=(FAULT,), alive=alive)
    except HttpError as error:
        if "already been loaded" not in error.said:
            raise
        # By an earlier attempt of this call, whose answer was lost: nobody else uses the name.


@contextmanager
def _explained(name: str, folder: Path) -> Iterator[None]:
    """Say what to do about an adapter that a server does not take."""
    try:
        yield
    except HttpError as error:
        raise PolicyError(f"adapter {name} was not loaded: {error}. {_remedy(error, folder)}") from error


def _active_lora(model: Any) -> str:
    """Name of the one active adapter, if it is a LoRA."""
    configs = getattr(model, "peft_config", None)
    if not configs or not hasattr(model, "active_adapters"):
        raise PolicyError(
            f"{type(model).__name__} has no adapter, and whole models cannot be sent to a running vLLM server. "
            "Train a LoRA (use_peft), or sample in this process"
        )
    active = model.active_adapters
    if len(active) != 1:
        raise PolicyError(f"{len(active)} adapters are active ({', '.join(active)}): a server serves one at a time")
    (name,) = active
    kind = getattr(configs[name].peft_type, "value", configs[name].peft_type)
    if kind != "LORA":
        raise PolicyError(f"the active adapter '{name}' is of type {kind}: vLLM serves LoRA adapters only")
    return str(name)


def _check_layers(model: Any, name: str) -> None:
    """Refuse a model whose layers compute something else than the adapter's files say: a server reads only those."""
    config = model.peft_config[name]
    if getattr(config, "rank_pattern", None) or getattr(config, "alpha_pattern", None):
        return  # refused later, by its files
    usual = config.lora_alpha / (math.sqrt(config.r) if getattr(config, "use_rslora", False) else config.r)
    for path, layer in getattr(model, "named_modules", tuple)():
        scaling = getattr(layer, "scaling", None)
        if not isinstance(scaling, dict) or name not in scaling:
            continue
        if getattr(layer, "disable_adapters", False):
            raise PolicyError(
                f"the adapter '{name}' is disabled (at {path}), and a server would sample with it. Publish outside of "
                "disable_adapter(), or enable_adapter_layers() first"
            )
        if not math.isclose(scaling[name], usual):
            raise PolicyError(
                f"the adapter '{name}' is scaled by {scaling[name]:g} at {path}, and a server scales it by {usual:g}, "
                "as its configuration says. Undo set_scale or scale_layer"
            )


def _check(folder: Path) -> None:
    """Refuse what a server would compute otherwise than PEFT does, without a word."""
    config = json.loads((folder / CONFIG).read_text("utf-8"))
    unread = sorted(key for key, value in config.items() if value and key not in _READ)
    if unread:
        raise PolicyError(
            f"this adapter uses {', '.join(unread)}, which vLLM passes over: it would sample from another model than "
            "the one that is trained. Train a plain LoRA, or sample in this process"
        )
    start = config.get("init_lora_weights")
    if start not in _PLAIN_STARTS:
        raise PolicyError(
            f"init_lora_weights={start!r} changed the base model when training began, and the server has it unchanged. "
            "Use the default, or sample in this process"
        )


def _remedy(error: HttpError, folder: Path) -> str:
    """What to do about an adapter that the server did not take."""
    said = error.said.lower()
    if error.status == 404 and said == "not found":
        return f"Remedy: {_ENABLE}"
    if error.status == 404 or "no such file" in said or "does not exist" in said:
        return (
            f"The server does not see the folder {folder}: it runs on another machine, in a container or as another "
            "user. Remedy: pass adapters= a folder that both see under the same path"
        )
    if "max_lora_rank" in said or "lora rank" in said:
        return "Remedy: start the server with --max-lora-rank at least as high as the adapter's r"
    if "lora" in said and "enable" in said:
        return f"Remedy: {_ENABLE}"
    return "The server's log says more"
