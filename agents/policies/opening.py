"""A policy from its name: a script, a person, a model in this process, or an endpoint.

| name | who acts |
|---|---|
| `oracle`, `noop` | the task's own solution; nobody |
| `human` | a person at this terminal |
| `openai:MODEL@URL` | a chat endpoint, at text level; the key is in `OPENAI_API_KEY` |
| `vllm:URL`, `vllm:URL#NAME` | a vLLM server, token for token; the key is in `VLLM_API_KEY` |
| `vllm:URL,URL`, `vllm:URL,URL#NAME` | several with the same model, which share the conversations |
| `NAME`, `NAME:REST` | what was registered in `POLICIES`, or what an installed package offers (`turngym.policies`) |
| `quickstart`, `smollm2`, a folder, a hub id | a model in this process (see `agents.models.loading`) |

A word that is a policy's wins over a folder of that name (`./NAME` reaches it); a folder wins over `NAME:REST`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from agents.models.card import ModelCard, ModelError, read_card
from agents.models.loading import (
    NAMES,
    ModelKind,
    ModelSource,
    check_files,
    listed_ends,
    load_model,
    resolve_model,
    torch_dtype,
)
from agents.policies.openai import OpenAIPolicy
from agents.policies.scripted import NoOpPolicy, OraclePolicy
from agents.policy import Policy
from tasks.endpoints.http import checked_url, plain_text
from tasks.plugins import Registry

EXAMPLES = {"openai": "openai:gpt-4o-mini@https://api.openai.com/v1", "vllm": "vllm:http://127.0.0.1:8000"}
"""Names that need more than a word, as they look."""

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
    OWN = "own"
    """A factory of the user's, or of an installed package."""


@dataclass(frozen=True, slots=True)
class PolicyName:
    """A policy's name, taken apart.

    Attributes:
        text: As given.
        kind: How it is reached.
        model: Its name at the endpoint; empty for the only one that a vLLM server has. Elsewhere as `text`.
        url: The endpoint, or several with commas between.
    """

    text: str
    kind: PolicyKind
    model: str
    url: str = ""

    @property
    def way(self) -> PolicyWay:
        """How it is opened."""
        return WEIGHTS if self.kind is PolicyKind.WEIGHTS else POLICIES.find(self.text.partition(":")[0])

    @property
    def short(self) -> str:
        """For the name of a folder."""
        name = self.model or re.sub(r"^\w+://", "", self.url)
        name = Path(name).name if self.kind is PolicyKind.WEIGHTS else name
        return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:_LONGEST] or "model"


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


@dataclass(frozen=True, slots=True)
class Opening:
    """What `open_policy` may be given beside a name.

    Attributes:
        dtype: Of the weights of a model in this process.
        device: Where they go; `auto`: a GPU if there is one.
        sample_dtype: Sample from a merged copy of these weights in this type, or in the machine's fastest (`auto`).
        tokenizer: Folder, name or hub id, for a vLLM server whose model is in no folder of this machine.
        eos_ids: Ids that end a turn at a vLLM server; default: those that its folder names, or the tokenizer's.
        concurrency: Requests under way at an endpoint; default: 8, for vLLM 64.
        timeout: Seconds to wait for it; default: 300, for vLLM 600.
        retries: Attempts after the first; default: 10, which outlast four minutes.
        extra: Further keys of a chat endpoint's requests; `None` leaves a key out.
    """

    dtype: str = "float32"
    device: str = "auto"
    sample_dtype: str | None = None
    tokenizer: str | None = None
    eos_ids: Iterable[int] | None = None
    concurrency: int | None = None
    timeout: float | None = None
    retries: int | None = None
    extra: Mapping[str, Any] | None = None

    @property
    def limits(self) -> dict[str, Any]:
        """Those of an endpoint that were given."""
        given = {"concurrency": self.concurrency, "timeout": self.timeout, "retries": self.retries}
        return {key: value for key, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class PolicyWay:
    """How policies whose names begin alike are read and opened: a row of `POLICIES`.

    Attributes:
        kind: What they are.
        open: Opens one; a `ValueError` says why it cannot.
        reads: Names of `Opening` that it looks at.
        take_apart: Model and address from what follows the colon; `None` where nothing may follow.
    """

    kind: PolicyKind
    open: Callable[[PolicyName, Opening], Actor]
    reads: frozenset[str] = frozenset()
    take_apart: Callable[[str], tuple[str, str]] | None = None


def read_name(text: str) -> PolicyName:
    """Take a policy's name apart; opens nothing.

    Raises:
        ModelError: It is none; the message says what was probably meant, and shows no address (it may hold a password).
        PluginError: What another package offers under this name cannot be used.
    """
    prefix, colon, rest = text.partition(":")
    if not colon and text not in EXAMPLES and POLICIES.known(text):
        return PolicyName(text, POLICIES.find(text).kind, text)
    if text in NAMES or _is_there(text):
        return PolicyName(text, PolicyKind.WEIGHTS, text)
    if not colon:
        near = [] if "/" in text else difflib.get_close_matches(text, [*POLICIES.names(), *NAMES], n=1)
        if near:
            raise ModelError(f"no model {text!r}: did you mean {EXAMPLES.get(near[0], near[0])!r}?")
        return PolicyName(text, PolicyKind.WEIGHTS, text)
    way = POLICIES.find(prefix) if POLICIES.known(prefix) else None
    if way is None or way.take_apart is None:
        raise ModelError(f"no name of a model begins with {prefix + ':'!r}; {_meant(prefix)}")
    if way.kind is PolicyKind.OWN:
        return PolicyName(text, way.kind, text)
    model, url = way.take_apart(rest)
    if not re.match(r"https?://", url) or (prefix == "openai" and not model):
        raise ModelError(f"{prefix}: names a model and the address of its server, as in {EXAMPLES[prefix]}")
    try:
        urls = url.split(",") if way.kind is PolicyKind.VLLM else [url]
        return PolicyName(text, way.kind, model, ",".join(map(checked_url, urls)))
    except ValueError as error:
        raise ModelError(f"{prefix}: {error}") from error


def _meant(prefix: str) -> str:
    """What a beginning that is none was probably meant to be."""
    own = [name for name in POLICIES.names() if not POLICIES.ships(name)]
    near = difflib.get_close_matches(prefix, [*EXAMPLES, *own], n=1)
    shown = [*EXAMPLES.values(), *(f"{name}:..." for name in own)]
    return f"did you mean {near[0] + ':'!r}?" if near else f"such names are {' and '.join(shown)}"


def _is_there(text: str) -> bool:
    """Whether a file or a folder has this name.

    Raises:
        ModelError: It can be no path, and means nothing else.
    """
    try:
        return Path(text).expanduser().exists()
    except (OSError, RuntimeError, ValueError) as error:  # too long, another user's home that is none, a null byte
        if text.partition(":")[0] in POLICIES.names():
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


def open_policy(name: str | PolicyName, **settings: Any) -> Actor:
    """Open the policy that a name means.

    Args:
        name: See the module.
        **settings: As `Opening` explains them.

    Raises:
        ModelError: It cannot be opened; the message says what to do.
        PolicyError: A server does not answer.
    """
    named = read_name(name) if isinstance(name, str) else name
    given = Opening(**settings)
    way = named.way
    if way.kind is PolicyKind.WEIGHTS:  # its errors name the model themselves
        return way.open(named, given)
    try:
        return way.open(named, given)
    except ValueError as error:
        raise ModelError(f"{named.text.partition(':')[0]}: {error}") from error


def _open_weights(named: PolicyName, given: Opening) -> Actor:
    import torch
    import transformers

    from agents.policies.transformers import TransformersPolicy

    transformers.logging.disable_progress_bar()
    device, wanted = given.device, given.sample_dtype
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    source = resolve_model(named.text)
    weights, tokenizer = load_model(named.text, dtype=given.dtype, device=device)
    sampled = wanted if wanted in (None, "auto") else torch_dtype(wanted)
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


def _open_vllm(named: PolicyName, given: Opening) -> Actor:
    """A vLLM server, with the tokenizer, the end ids and the card of the folder that it serves, if that is here.

    Raises:
        ValueError: No tokenizer is known, or what is in the folder cannot be read.
    """
    from agents.policies.transformers import end_ids
    from agents.policies.vllm import VllmPolicy

    loaded = None if given.tokenizer is None else _load_tokenizer(given.tokenizer)
    served, eos_ids = _served(named, given.limits), given.eos_ids
    here = served.model != "" and Path(served.model).is_dir()
    if loaded is None:
        if not here:
            raise ValueError(
                f"{named.url} serves {served.model or 'no model'}, which is no folder of this machine: name its "
                "tokenizer with --tokenizer FOLDER or hub id"
            )
        loaded = _load_tokenizer(served.model)
    if eos_ids is None and here:
        eos_ids = end_ids(listed_ends(ModelSource(served.model, ModelKind.FOLDER, served.model)), loaded)
    card = read_card(served.own) if served.own else ModelCard()
    if eos_ids is None and card.end_ids:
        eos_ids = card.end_ids
    policy = VllmPolicy(
        named.url, loaded, model=named.model or None, eos_ids=eos_ids, extra=given.extra, **given.limits
    )
    return Actor(policy, card=card)


def _served(named: PolicyName, limits: Mapping[str, Any]) -> _Folders:
    """The folder of a server's model, where the server runs on this machine and says which it is.

    Raises:
        ValueError: It does not serve what was named, or replicas serve different models.
    """
    from agents.policies.vllm.replicas import addresses

    found = {url: _served_at(url, named.model, limits) for url in addresses(named.url)}
    first, *others = found
    for url in others:
        if found[url] != found[first]:
            raise ValueError(f"{url} serves {found[url].own}, and {first} serves {found[first].own}: name one of them")
    return found[first]


def _served_at(url: str, model: str, limits: Mapping[str, Any]) -> _Folders:
    from agents.policies.vllm.replicas import connect

    client = connect(url, timeout=limits.get("timeout", 300.0), retries=min(limits.get("retries", 5), 5))
    try:
        listed = client.get("v1/models").get("data")
    finally:
        client.close()
    models = [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    roots = {str(entry.get("id")): str(entry.get("root") or "") for entry in models}
    # An adapter's root is its own folder; the tokenizer is its parent's.
    parents = {str(entry.get("id")): str(entry["parent"]) for entry in models if entry.get("parent")}
    if model and model not in roots:
        raise ValueError(f"{url} serves no {model!r}, but {', '.join(roots) or 'nothing'}")
    wanted = model or next((model for model in roots if model not in parents), "")
    return _Folders(roots.get(parents.get(wanted, wanted), ""), roots.get(wanted, ""))


def _load_tokenizer(where: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(resolve_model(where).location if where in NAMES else where)
    except (OSError, ValueError) as error:
        reason = str(error).strip().split("\n", 1)[0]
        raise ValueError(f"the tokenizer {where!r} cannot be loaded: {reason}") from error


def _open_human(named: PolicyName, given: Opening) -> Actor:
    from agents.policies.human import HumanPolicy

    return Actor(HumanPolicy())


def _open_openai(named: PolicyName, given: Opening) -> Actor:
    return Actor(OpenAIPolicy(named.model, base_url=named.url, extra=given.extra, **given.limits))


def _model_at_url(rest: str) -> tuple[str, str]:
    """`MODEL@URL`; a model's name may hold an `@`."""
    model, at, url = rest.rpartition("@http")
    return model, f"http{url}" if at else ""


def _url_and_name(rest: str) -> tuple[str, str]:
    """`URL#NAME`, where the name may be missing; commas between several addresses."""
    url, _, model = rest.partition("#")
    return model, url


def _own_way(name: str, factory: Any) -> PolicyWay:
    """The way to the policies of a factory of the user's, which takes what follows the colon."""
    if not callable(factory):
        raise ValueError("is no factory: a function (or a class) that takes what follows the colon, returns a policy")

    def open_own(named: PolicyName, given: Opening) -> Actor:
        policy = factory(named.text.partition(":")[2])
        lacks = [part for part in ("tokenizer", "eos_ids", "complete", "forget") if not hasattr(policy, part)]
        if lacks:
            raise ValueError(f"the factory returned a {type(policy).__name__}, and no policy: no {', '.join(lacks)}")
        return Actor(policy)

    return PolicyWay(PolicyKind.OWN, open_own, take_apart=lambda rest: (rest, ""))


WEIGHTS = PolicyWay(PolicyKind.WEIGHTS, _open_weights, frozenset({"dtype", "device", "sample_dtype"}))
"""The way to whatever is no other name: a named model, a folder, a hub id."""

POLICIES: Registry[PolicyWay] = Registry(
    "policy",
    "turngym.policies",
    {
        "oracle": PolicyWay(PolicyKind.SCRIPTED, lambda named, given: Actor(OraclePolicy())),
        "noop": PolicyWay(PolicyKind.SCRIPTED, lambda named, given: Actor(NoOpPolicy())),
        "human": PolicyWay(PolicyKind.HUMAN, _open_human),
        "openai": PolicyWay(
            PolicyKind.OPENAI, _open_openai, frozenset({"concurrency", "timeout", "retries", "extra"}), _model_at_url
        ),
        "vllm": PolicyWay(
            PolicyKind.VLLM,
            _open_vllm,
            frozenset({"concurrency", "timeout", "retries", "extra", "tokenizer", "eos_ids"}),
            _url_and_name,
        ),
    },
    take=_own_way,
    reserved=NAMES,
)
"""What a policy's name may begin with. Others register a factory: it takes what follows the colon, returns a policy."""
