from __future__ import annotations

import copy
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from agents.models.card import ModelCard, ModelError, read_card, write_card
from agents.models.loading import QUICKSTART, resolve_model
from agents.policies import opening
from agents.policies.openai import OpenAIPolicy
from agents.policies.opening import PolicyKind, open_policy, read_name
from agents.policies.scripted import NoOpPolicy, OraclePolicy, ScriptedPolicy
from agents.policies.transformers import TransformersPolicy
from agents.policies.vllm import VllmPolicy
from agents.policy import PolicyError, Request, Sampling
from tasks.endpoints import http
from tasks.plugins import PluginError
from tasks.task import Task
from tests.agents.policies.fake_endpoint import endpoint
from tests.agents.policies.vllm.fake import BASE, Fake, running


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(http, "FIRST_WAIT", 0.001)
    for name in ("OPENAI_API_KEY", "VLLM_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("text", "kind", "model", "url", "short"),
    [
        ("oracle", PolicyKind.SCRIPTED, "oracle", "", "oracle"),
        ("human", PolicyKind.HUMAN, "human", "", "human"),
        ("quickstart", PolicyKind.WEIGHTS, "quickstart", "", "quickstart"),
        ("runs/quickstart", PolicyKind.WEIGHTS, "runs/quickstart", "", "quickstart"),
        ("Qwen/Qwen3-4B", PolicyKind.WEIGHTS, "Qwen/Qwen3-4B", "", "Qwen3-4B"),
        ("openai:gpt-4o-mini@https://h/v1/", PolicyKind.OPENAI, "gpt-4o-mini", "https://h/v1", "gpt-4o-mini"),
        ("openai:a/b@2:free@http://h:1/v1", PolicyKind.OPENAI, "a/b@2:free", "http://h:1/v1", "a-b-2-free"),
        ("vllm:http://h:8000", PolicyKind.VLLM, "", "http://h:8000", "h-8000"),
        ("vllm:http://h:8000/v1#lora-3", PolicyKind.VLLM, "lora-3", "http://h:8000/v1", "lora-3"),
    ],
)
def test_names(text: str, kind: PolicyKind, model: str, url: str, short: str) -> None:
    named = read_name(text)
    assert (named.text, named.kind, named.model, named.url, named.short) == (text, kind, model, url, short)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orakle", "did you mean 'oracle'"),
        ("quikstart", "did you mean 'quickstart'"),
        ("openai", "did you mean 'openai:gpt-4o-mini@https://api.openai.com/v1'"),
        ("vlm", "did you mean 'vllm:http://127.0.0.1:8000'"),
        ("opnai:gpt@http://h", "did you mean 'openai:'"),
        ("http://h/v1", "begins with 'http:'; such names are openai:gpt-4o-mini@"),
        ("openai:gpt-4o", "names a model and the address of its server, as in openai:"),
        ("openai:@http://h/v1", "names a model and the address"),
        ("vllm:h:8000", "names a model and the address of its server, as in vllm:http"),
        ("vllm:http://", "no http:// or https:// URL"),
    ],
)
def test_a_wrong_name_gets_a_suggestion(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message.replace("?", r"\?")):
        read_name(text)


@pytest.mark.parametrize("text", ["openai:m@https://me:hunter2@h/v1", "vllm:http://me:hunter2@h", "htp://me:hunter2@h"])
def test_a_password_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ModelError) as caught:
        read_name(text)
    assert "hunter2" not in str(caught.value)


def test_a_folder_wins_over_what_its_name_looks_like(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vllm:old").mkdir()
    assert read_name("vllm:old").kind is PolicyKind.WEIGHTS


def test_scripts_and_weights_open() -> None:
    assert isinstance(open_policy("oracle").policy, OraclePolicy)
    assert isinstance(open_policy("noop").policy, NoOpPolicy)
    actor = open_policy("quickstart", device="cpu")
    assert isinstance(actor.policy, TransformersPolicy) and actor.weights is not None
    assert actor.source is not None and actor.source.location == str(QUICKSTART)
    assert actor.card.prompt_style == "compact"
    actor.close()


def test_weights_are_sampled_from_a_copy_where_asked() -> None:
    assert open_policy("quickstart", device="cpu").policy._copy is None  # type: ignore[attr-defined]
    copied = open_policy("quickstart", device="cpu", sample_dtype="bfloat16").policy
    assert copied._decoder.dtype is torch.bfloat16  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match="unknown dtype 'half8'"):
        open_policy("quickstart", device="cpu", sample_dtype="half8")


def test_an_endpoint_opens_with_its_settings() -> None:
    actor = open_policy("openai:m@http://h/v1", concurrency=3, extra={"top_p": 0.5})
    assert isinstance(actor.policy, OpenAIPolicy)
    assert (actor.policy.model, actor.policy.concurrency, actor.policy.extra) == ("m", 3, {"top_p": 0.5})
    assert actor.source is None and actor.weights is None and actor.card.prompt_style == "standard"
    actor.close()
    with pytest.raises(ModelError, match="extra holds seed"):
        open_policy("openai:m@http://h/v1", extra={"seed": 1})


def test_a_person_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("agents.policies.human")
    module.HumanPolicy = type("HumanPolicy", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    assert isinstance(open_policy("human").policy, module.HumanPolicy)


@pytest.fixture
def fake() -> Iterator[Fake]:
    with running(Fake()) as made:
        made.models = [{**BASE_MODEL, "root": str(QUICKSTART)}, LORA]
        yield made


BASE_MODEL = {"id": BASE, "root": "", "parent": None, "max_model_len": 1000}
LORA = {"id": "lora-3", "root": "/adapters/3", "parent": BASE, "max_model_len": None}


def opened(name: str, **settings: Any) -> VllmPolicy:
    policy = open_policy(name, **settings).policy
    assert isinstance(policy, VllmPolicy)
    return policy


@pytest.mark.parametrize(("suffix", "model"), [("", None), (f"#{BASE}", BASE), ("#lora-3", "lora-3"), ("/v1", None)])
def test_a_vllm_server_on_this_machine_says_which_tokenizer(fake: Fake, suffix: str, model: str | None) -> None:
    policy = opened(f"vllm:{fake.url}{suffix}")
    assert (policy._servers.url, policy._model) == (fake.url, model)
    assert policy.tokenizer.eos_token_id in policy.eos_ids


def test_a_vllm_servers_folder_brings_its_card(fake: Fake, tmp_path: Path) -> None:
    assert open_policy(f"vllm:{fake.url}").card == read_card(QUICKSTART) != ModelCard()
    assert open_policy(f"vllm:{fake.url}", tokenizer="quickstart").card == read_card(QUICKSTART)
    assert open_policy(f"vllm:{fake.url}#lora-3").card == ModelCard()
    own = ModelCard("base", "GSM8K-v0", "123")
    write_card(tmp_path, own)
    fake.models[1] = {**LORA, "root": str(tmp_path)}
    assert open_policy(f"vllm:{fake.url}#lora-3").card == own


def test_a_vllm_servers_folder_brings_its_end_ids(fake: Fake, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(QUICKSTART, folder)
    fake.models = [{**BASE_MODEL, "root": str(folder)}]
    own = opened(f"vllm:{fake.url}").tokenizer.eos_token_id
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [own, 99]}))
    assert opened(f"vllm:{fake.url}").eos_ids == {own, 99}
    in_process: Any = open_policy(str(folder), device="cpu").policy
    assert in_process.eos_ids == {own, 99}
    assert opened(f"vllm:{fake.url}", eos_ids=[7, 8]).eos_ids == {7, 8}
    (folder / "generation_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"generation_config.json is no JSON object"):
        open_policy(f"vllm:{fake.url}")


def test_a_vllm_server_gets_its_settings(fake: Fake) -> None:
    policy = opened(f"vllm:{fake.url}", concurrency=2, timeout=7.0, retries=3, extra={"seed": None})
    (client,) = policy._servers.clients
    assert (policy._concurrency, client.timeout, client.retries) == (2, 7.0, 3)
    assert policy.label(Sampling(1.0, 5)) == 'T=1, max_tokens=5, {"seed": null}'
    policy = opened(f"vllm:{fake.url}")
    (client,) = policy._servers.clients
    assert (policy._concurrency, client.timeout, client.retries) == (64, 600.0, 10)
    for extra in ({"top_k": 3}, {"seed": 1}, {"temperature": None}):
        with pytest.raises(
            ModelError, match=f"extra holds {next(iter(extra))}: every key .* may only be sent without a"
        ):
            open_policy(f"vllm:{fake.url}", extra=extra)


def test_several_vllm_servers_are_one_policy(fake: Fake) -> None:
    with running(Fake()) as other:
        other.models = fake.models
        policy = opened(f"vllm:{fake.url}/v1,{other.url}#{BASE}")
        assert (policy._servers.url, policy._model) == (f"{fake.url},{other.url}", BASE)
        with pytest.raises(ModelError, match="stands there twice"):
            open_policy(f"vllm:{fake.url},{fake.url}")
        with pytest.raises(ModelError, match="the address is no http"):
            read_name(f"vllm:{fake.url},127.0.0.1:8001")
        other.models = [{**BASE_MODEL, "id": "else", "root": "/models/else"}]
        with pytest.raises(ModelError, match=f"{other.url} serves /models/else, and {fake.url} serves {QUICKSTART}"):
            open_policy(f"vllm:{fake.url},{other.url}")


def test_a_vllm_servers_key_is_sent_with_every_call(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "k1")
    monkeypatch.setenv("OPENAI_API_KEY", "other")
    assert opened(f"vllm:{fake.url}")._servers.clients[0].get("v1/models")
    assert [sent.get("Authorization") for sent in fake.headers] == ["Bearer k1"] * 2
    fake.get = lambda path: (401, {"error": "Unauthorized"})  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match="is VLLM_API_KEY set"):
        open_policy(f"vllm:{fake.url}")


def test_a_vllm_server_is_asked_past_proxies(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    assert opened(f"vllm:{fake.url}")


def test_a_vllm_server_far_away_needs_a_tokenizer(fake: Fake) -> None:
    fake.models = [{**BASE_MODEL, "root": "Qwen/Qwen3-4B"}]
    with pytest.raises(ModelError, match="serves Qwen/Qwen3-4B, which is no folder.*--tokenizer"):
        open_policy(f"vllm:{fake.url}")
    with pytest.raises(ModelError, match=r"serves no 'lora', but base"):
        open_policy(f"vllm:{fake.url}#lora")
    actor = open_policy(f"vllm:{fake.url}", tokenizer="quickstart")
    assert actor.policy.tokenizer.eos_token_id is not None and actor.card == ModelCard()
    with pytest.raises(ModelError, match="tokenizer '/nowhere' cannot be loaded"):
        open_policy("vllm:http://h", tokenizer="/nowhere")


def test_a_vllm_server_that_serves_nothing() -> None:
    with endpoint(lambda body: {"data": []}) as server, pytest.raises(ModelError, match="serves no model"):
        open_policy(f"vllm:{server.url}")
    with endpoint(lambda body: {}) as server:
        url = server.url
    with pytest.raises(PolicyError, match="no answer"):
        open_policy(f"vllm:{url}")


@pytest.mark.parametrize("text", ["a" * 300, "~nobody-of-this-name/x"])
def test_what_can_be_no_path_is_one_line(text: str) -> None:
    with pytest.raises(ModelError, match="no model '"):
        read_name(text)
    assert read_name(f"openai:{'m' * 300}@http://h/v1").short == "m" * 80


@pytest.mark.parametrize("name", ["openai:m@http://h/v1", "vllm:http://h"])
def test_a_trainer_refuses_an_endpoint(name: str) -> None:
    with pytest.raises(ModelError, match="an endpoint can be measured .*not here to train"):
        resolve_model(name)


class Says(ScriptedPolicy):
    """Says what stands behind the colon of its name."""

    def __init__(self, words: str) -> None:
        super().__init__()
        if not words:
            raise ValueError("say what, as in says:hello")
        self.words = words

    def text(self, task: Task, turn: int, request: Request) -> str:
        return self.words


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "POLICIES", copy.deepcopy(opening.POLICIES))
    opening.POLICIES.register("says", Says)
    opening.POLICIES.register("broken", lambda rest: rest)


def test_a_policy_of_ones_own(own: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = read_name("says:/a/b c")
    assert (named.kind, named.short, named.way.reads) == (PolicyKind.OWN, "says-a-b-c", frozenset())
    actor = open_policy("says:/a/b c")
    assert isinstance(actor.policy, Says) and actor.policy.words == "/a/b c" and actor.card == ModelCard()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "says").mkdir()
    (tmp_path / "says:x").mkdir()
    assert read_name("says").kind is PolicyKind.OWN and read_name("./says").kind is PolicyKind.WEIGHTS
    assert read_name("says:x").kind is PolicyKind.WEIGHTS and read_name("says:y").kind is PolicyKind.OWN
    assert read_name(f"says:{'x' * 300}").kind is PolicyKind.OWN


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("says", "says: say what"),
        ("broken:x", "broken: the factory returned a str, and no policy: no tokenizer, eos_ids, complete, forget"),
        ("sais:x", "no name of a model begins with 'sais:'; did you mean 'says:'"),
        ("sais", "no model 'sais': did you mean 'says'"),
        ("zzz:x", "such names are openai:.* and vllm:.* and says:... and broken:..."),
        ("human:x", "no name of a model begins with 'human:'"),
    ],
)
def test_what_is_wrong_with_a_policy_of_ones_own(own: None, name: str, message: str) -> None:
    with pytest.raises(ModelError, match=message.replace("?", r"\?")):
        open_policy(name)


def test_names_of_ours_are_not_to_be_had() -> None:
    for name in ("oracle", "quickstart"):
        with pytest.raises(PluginError, match=f"the policy '{name}' .* has the name of one of ours"):
            opening.POLICIES.register(name, Says)
    with pytest.raises(PluginError, match="the policy 'mine' .* is no factory"):
        opening.POLICIES.register("mine", 3)
