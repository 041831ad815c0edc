"""A policy from its name: a script, a person, a model in this process, or an endpoint.

| name | who acts |
|---|---|
| `oracle`, `noop` | the task's own solution; nobody |
| `human` | a person at this terminal |
| `openai:MODEL@URL` | a chat endpoint, at text level; the key is in `OPENAI_API_KEY` |
| `vllm:URL`, `vllm:URL#NAME` | a vLLM server, token for token; the key is in `VLLM_API_KEY` |
| `quickstart`, `smollm2`, a folder, a hub id | a model in this process (see `agents.models.loading`) |
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agents.models.card import ModelCard, read_card
from agents.models.errors import ModelError
from agents.models.loading import (
    NAMES,
    ModelKind,
    ModelSource,
    check_files,
    load_model,
    resolve,
    resolve_model,
    torch_dtype,
)
from agents.policies.http import checked_url, plain_text
from agents.policies.openai import OpenAIPolicy
from agents.policies.scripted import NoOpPolicy, OraclePolicy
from agents.policy import Policy

SCRIPTED: dict[str, Callable[[], Policy]] = {"oracle": OraclePolicy, "noop": NoOpPolicy}
EXAMPLES = {"openai": "openai:gpt-4o-mini@https://api.openai.com/v1", "vllm": "vllm:http://127.0.0.1:8000"}

_LONGEST = 80
"""Characters of a folder's name that are taken from a model's."""


class PolicyKind(StrEnum):
    """How a policy is reached."""

    SCRIPTED = "scripted"
    HUMAN = "human"
    OPENAI = "openai"
    VLLM = "vllm"
    WEIGHTS = "weights"
    """A model in this process."""


@dataclass(frozen=True, slots=True)
class PolicyName:
    """A policy's name, taken apart.

    Attributes:
        text: As given.
        kind: How it is reached.
        model: Its name at the endpoint; empty for the only one that a vLLM server has. Elsewhere as `text`.
        url: The endpoint.
    """

    text: str
    kind: PolicyKind
    model: str
    url: str = ""

    @property
    def short(self) -> str:
        """For the name of a folder."""
        name = self.model or re.sub(r"^\w+://", "", self.url)
        return re.sub(r"[^A-Za-z0-9._-]+", "-", name if self.url else Path(name).name).strip("-.")[:_LONGEST] or "model"


@dataclass(frozen=True, slots=True)
class Actor:
    """A policy that is open, and what is known about it.

    Attributes:
        policy: Acts.
        source: The model in this process, resolved; `None` for anything else.
        card: What it was made for.
        weights: The model itself, if it is in this process.
    """

    policy: Policy
    source: ModelSource | None = None
    card: ModelCard = ModelCard()
    weights: Any = None

    def close(self) -> None:
        """Close connections of the policy, if it holds any."""
        if close := getattr(self.policy, "close", None):
            close()


def read_name(text: str) -> PolicyName:
    """Take a policy's name apart; opens nothing.

    Raises:
        ModelError: It is none; the message says what was probably meant, and shows no address (it may hold a password).
    """
    if text in SCRIPTED or text == "human":
        return PolicyName(text, PolicyKind.SCRIPTED if text in SCRIPTED else PolicyKind.HUMAN, text)
    if text in NAMES or _is_there(text):
        return PolicyName(text, PolicyKind.WEIGHTS, text)
    prefix, colon, rest = text.partition(":")
    if not colon:
        near = [] if "/" in text else difflib.get_close_matches(text, [*SCRIPTED, "human", *NAMES, *EXAMPLES], n=1)
        if near:
            raise ModelError(f"no model {text!r}: did you mean {EXAMPLES.get(near[0], near[0])!r}?")
        return PolicyName(text, PolicyKind.WEIGHTS, text)
    if prefix not in EXAMPLES:
        near = difflib.get_close_matches(prefix, list(EXAMPLES), n=1)
        hint = f"did you mean {near[0] + ':'!r}?" if near else f"such names are {' and '.join(EXAMPLES.values())}"
        raise ModelError(f"no name of a model begins with {prefix + ':'!r}; {hint}")
    if prefix == "openai":
        model, at, url = rest.rpartition("@http")
        url = f"http{url}" if at else ""
    else:
        url, _, model = rest.partition("#")
    if not re.match(r"https?://", url) or (prefix == "openai" and not model):
        raise ModelError(f"{prefix}: names a model and the address of its server, as in {EXAMPLES[prefix]}")
    try:
        return PolicyName(text, PolicyKind(prefix), model, checked_url(url))
    except ValueError as error:
        raise ModelError(f"{prefix}: {error}") from error


def _is_there(text: str) -> bool:
    """Whether a file or a folder has this name.

    Raises:
        ModelError: It can be no path, and means nothing else.
    """
    try:
        return Path(text).expanduser().exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, another user's home that is none, a null byte
        if text.startswith(tuple(f"{prefix}:" for prefix in EXAMPLES)):
            return False
        shown = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
        raise ModelError(f"no model {plain_text(shown)!r}: {getattr(error, 'strerror', None) or error}") from error


def card_of(named: PolicyName) -> ModelCard:
    """What a policy that is not open yet was made for; the default where nobody says.

    Raises:
        ValueError: What should say it cannot be read.
        ModelError: There is no such model.
        PolicyError: A server does not answer.
    """
    if named.kind is PolicyKind.VLLM:
        served = _served(named, {})
        return read_card(served.own) if served.own else ModelCard()
    if named.kind is not PolicyKind.WEIGHTS:
        return ModelCard()
    source = resolve_model(named.text, convert=False)
    check_files(source)  # a card that is damaged would be told of as no card
    return read_card(source.location) if source.kind is not ModelKind.HUB else ModelCard()


def open_policy(
    name: str | PolicyName,
    *,
    dtype: str = "float32",
    device: str = "auto",
    sample_dtype: str | None = None,
    tokenizer: str | None = None,
    eos_ids: Iterable[int] | None = None,
    concurrency: int | None = None,
    timeout: float | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Actor:
    """Open the policy that a name means.

    Args:
        name: See the module.
        dtype: Of the weights of a model in this process; `device` where they go (`auto`: a GPU if there is one).
        device: See `dtype`.
        sample_dtype: Sample from a merged copy of these weights in this type, or in the machine's fastest (`auto`).
        tokenizer: Folder, name or hub id, for a vLLM server whose model is in no folder of this machine.
        eos_ids: Ids that end a turn at a vLLM server; default: those that its folder names, or the tokenizer's.
        concurrency: Requests under way at an endpoint; default: 8, for vLLM 64.
        timeout: Seconds to wait for it; default: 300, for vLLM 600.
        extra: Further keys of a chat endpoint's requests.

    Raises:
        ModelError: It cannot be opened; the message says what to do.
        PolicyError: A server does not answer.
    """
    named = read_name(name) if isinstance(name, str) else name
    given = {"concurrency": concurrency, "timeout": timeout}
    limits: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    try:
        match named.kind:
            case PolicyKind.SCRIPTED:
                return Actor(SCRIPTED[named.text]())
            case PolicyKind.HUMAN:
                from agents.policies.human import HumanPolicy

                return Actor(HumanPolicy())
            case PolicyKind.OPENAI:
                return Actor(OpenAIPolicy(named.model, base_url=named.url, extra=extra, **limits))
            case PolicyKind.VLLM:
                if extra:
                    raise ValueError("every key of a request to vLLM is set here; extra is for chat endpoints")
                return _open_vllm(named, tokenizer, eos_ids, limits)
    except ValueError as error:
        raise ModelError(f"{named.kind}: {error}") from error
    return _open_weights(named.text, dtype, device, sample_dtype)


def _open_weights(name: str, dtype: str, device: str, sample_dtype: str | None) -> Actor:
    import torch
    import transformers

    from agents.policies.transformers import TransformersPolicy

    transformers.logging.disable_progress_bar()
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    source = resolve_model(name)
    weights, tokenizer = load_model(name, dtype=dtype, device=device)
    sampled = sample_dtype if sample_dtype in (None, "auto") else torch_dtype(sample_dtype)
    card = read_card(source.location)
    policy = TransformersPolicy(weights, tokenizer, eos_ids=card.end_ids or None, sample_dtype=sampled)
    return Actor(policy, source, card, weights)


@dataclass(frozen=True, slots=True)
class _Folders:
    """What a server says that it serves.

    Attributes:
        model: The whole model's folder, or its name elsewhere.
        own: The same, or the adapter's.
    """

    model: str
    own: str


def _open_vllm(
    named: PolicyName, tokenizer: str | None, eos_ids: Iterable[int] | None, limits: Mapping[str, Any]
) -> Actor:
    """A vLLM server, with the tokenizer, the end ids and the card of the folder that it serves, if that is here.

    Raises:
        ValueError: No tokenizer is known, or what is in the folder cannot be read.
    """
    from agents.policies.transformers import end_ids
    from agents.policies.vllm import VllmPolicy

    loaded = None if tokenizer is None else _load_tokenizer(tokenizer)
    served = _served(named, limits)
    here = served.model != "" and Path(served.model).is_dir()
    if loaded is None:
        if not here:
            raise ValueError(
                f"{named.url} serves {served.model or 'no model'}, which is no folder of this machine: name its "
                "tokenizer with --tokenizer FOLDER or hub id"
            )
        loaded = _load_tokenizer(served.model)
    if eos_ids is None and here:
        eos_ids = end_ids(_listed_ends(Path(served.model)), loaded)
    card = read_card(served.own) if served.own else ModelCard()
    if eos_ids is None and card.end_ids:
        eos_ids = card.end_ids
    policy = VllmPolicy(named.url, loaded, model=named.model or None, eos_ids=eos_ids, **limits)
    return Actor(policy, card=card)


def _served(named: PolicyName, limits: Mapping[str, Any]) -> _Folders:
    """The folder of a server's model, where the server runs on this machine and says which it is.

    Raises:
        ValueError: It does not serve what was named.
    """
    from agents.policies.vllm.policy import connect

    client = connect(named.url, timeout=limits.get("timeout", 300.0), retries=5)
    try:
        listed = client.get("v1/models").get("data")
    finally:
        client.close()
    models = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    roots = {str(entry.get("id")): str(entry.get("root") or "") for entry in models}
    # An adapter's root is its own folder; the tokenizer is its parent's.
    parents = {str(entry.get("id")): str(entry["parent"]) for entry in models if entry.get("parent")}
    if named.model and named.model not in roots:
        raise ValueError(f"{named.url} serves no {named.model!r}, but {', '.join(roots) or 'nothing'}")
    wanted = named.model or next((model for model in roots if model not in parents), "")
    return _Folders(roots.get(parents.get(wanted, wanted), ""), roots.get(wanted, ""))


def _listed_ends(folder: Path) -> Any:
    """The end ids that a model's folder names, where transformers looks for them.

    Raises:
        ValueError: A file there is no JSON.
    """
    for path in (folder / "generation_config.json", folder / "config.json"):
        if path.is_file():
            try:
                return json.loads(path.read_text(encoding="utf-8")).get("eos_token_id")
            except (ValueError, AttributeError) as error:
                raise ValueError(f"{path} is no JSON object ({error})") from error
    return None


def _load_tokenizer(where: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(resolve(where) if where in NAMES else where)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise ValueError(f"the tokenizer {where!r} cannot be loaded: {reason}") from error
