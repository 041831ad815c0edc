from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
from safetensors.torch import load_file

from agents.policies.vllm import VllmPolicy
from agents.policies.vllm.adapters import Adapters
from agents.policy import PolicyError, Request, Sampling
from tests.agents.policies.vllm.fake import BASE, Fake, check, make, running, streamed
from tests.agents.toys import model

REQUEST = Request("c", [65, 66, 67], seed=1)
PLAIN = Sampling(1.0, 6)


@pytest.fixture
def policy(fake: Fake, tmp_path: Path) -> Iterator[VllmPolicy]:
    with make(fake, adapters=tmp_path) as made:
        yield made


def lora(name: str = "default", **changes: Any) -> Any:
    settings = {"r": 4, "target_modules": ["q_proj"], "task_type": "CAUSAL_LM", **changes}
    wrapped = peft.get_peft_model(model("gqa"), peft.LoraConfig(**settings), adapter_name=name)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter_name, parameter in wrapped.named_parameters():
            if "lora_B" in parameter_name:
                parameter.normal_()
    return wrapped


def test_the_next_request_uses_what_was_published(fake: Fake, policy: VllmPolicy) -> None:
    check(policy.complete([REQUEST], PLAIN)[0], REQUEST, 1.0, BASE)
    for _ in range(2):
        name = policy.publish(lora())
        assert policy.model == name
        check(policy.complete([REQUEST], PLAIN)[0], REQUEST, 1.0, name)


def test_names_and_folders_are_never_used_twice(fake: Fake, tmp_path: Path) -> None:
    with make(fake, adapters=tmp_path) as first, make(fake, adapters=tmp_path) as second:
        trained = lora()
        for _ in range(3):
            first.publish(trained)
            second.publish(trained)
        loads = [body for route, body in fake.loads if route == "load"]
        assert len({body["lora_name"] for body in loads}) == len({body["lora_path"] for body in loads}) == 6
        assert all("load_inplace" not in body for body in loads)


def test_two_versions_stay(fake: Fake, policy: VllmPolicy) -> None:
    names = [policy.publish(lora()) for _ in range(4)]
    assert list(fake.adapters) == names[2:]
    folders = [Path(body["lora_path"]) for route, body in fake.loads if route == "load"]
    assert [folder.exists() for folder in folders] == [False, False, True, True]
    assert [body["lora_name"] for route, body in fake.loads if route == "unload"] == names[:2]


def test_a_stream_samples_from_one_version_whatever_is_published(fake: Fake, policy: VllmPolicy) -> None:
    name = policy.publish(lora())
    requests = [Request(f"c{n}", [65, 66, n], seed=n) for n in range(4)]
    answers = streamed(policy, requests, between=lambda: [policy.publish(lora()) for _ in range(3)])
    for request in requests:
        check(answers[request.conversation], request, 1.0, name)
    policy.publish(lora())
    assert name not in fake.adapters, "the stream is over"


def test_closing_takes_everything_away(fake: Fake, tmp_path: Path) -> None:
    policy = make(fake, adapters=tmp_path)
    policy.publish(lora())
    policy.publish(lora())
    policy.close()
    policy.close()
    assert fake.adapters == {} and list(tmp_path.iterdir()) == []
    for late in (lambda: policy.complete([REQUEST], PLAIN), lambda: policy.publish(lora())):
        with pytest.raises(PolicyError, match="was closed"):
            late()


def test_closing_a_server_that_is_gone_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with running(Fake()) as fake:
        policy = make(fake, adapters=tmp_path)
        name = policy.publish(lora())
    with caplog.at_level(logging.WARNING):
        policy.close()
    assert f"adapter {name} may still be on the server" in caplog.text
    assert list(tmp_path.iterdir()) == []


def test_without_a_folder_a_temporary_one_is_used_and_removed(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with make(fake, adapters=None) as policy:
        policy.publish(lora())
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


def test_only_the_active_adapter_is_written(fake: Fake, policy: VllmPolicy) -> None:
    trained = lora("student")
    trained.add_adapter("reference", peft.LoraConfig(r=2, target_modules=["v_proj"], task_type="CAUSAL_LM"))
    policy.publish(trained)
    folder = Path(next(iter(fake.adapters.values())))
    assert {path.name for path in folder.iterdir()} - {"README.md"} == {
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    written = load_file(folder / "adapter_model.safetensors")
    own = peft.get_peft_model_state_dict(trained, adapter_name="student")
    assert written.keys() == own.keys() and all("q_proj" in key for key in written)
    assert all(torch.equal(written[key], own[key]) for key in own)


def test_a_saved_folder_is_copied(fake: Fake, policy: VllmPolicy, tmp_path: Path) -> None:
    lora().save_pretrained(tmp_path / "saved")
    policy.publish_folder(tmp_path / "saved")
    (loaded,) = fake.adapters.values()
    assert Path(loaded) != tmp_path / "saved"
    before = (Path(loaded) / "adapter_model.safetensors").read_bytes()
    (tmp_path / "saved/adapter_model.safetensors").write_bytes(b"changed")
    assert (Path(loaded) / "adapter_model.safetensors").read_bytes() == before
    with pytest.raises(PolicyError, match="holds no adapter"):
        policy.publish_folder(tmp_path)


def test_calls_under_way_keep_their_version(fake: Fake, policy: VllmPolicy) -> None:
    old = policy.publish(lora())
    fake.hold = threading.Event()
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.extend(policy.complete([REQUEST], PLAIN)))
    thread.start()
    assert fake.held.acquire(timeout=30)
    names = [policy.publish(lora()) for _ in range(3)]
    assert old in fake.adapters  # used, though two newer ones are there
    fake.hold.set()
    thread.join(30)
    check(done[0], REQUEST, 1.0, old)
    names.append(policy.publish(lora()))
    assert list(fake.adapters) == names[-2:]


def test_a_load_whose_answer_was_lost_is_no_failure(fake: Fake, tmp_path: Path) -> None:
    load = fake.load

    def lost(body: dict[str, Any]) -> tuple[int, Any]:
        known = body["lora_name"] in fake.adapters
        status, answer = load(body)
        return (status, answer) if known else (503, {})

    fake.load = lost  # type: ignore[method-assign]
    with make(fake, adapters=tmp_path) as policy:
        assert policy.publish(lora()) in fake.adapters
    assert [route for route, _ in fake.loads] == ["load", "load", "unload"]


REFUSED = {
    "no route": ({"lora": "no route"}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment and --enable-lora"),
    "no lora": ({"lora": "off"}, "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment and --enable-lora"),
    "rank": ({"max_rank": 2}, "LoRA rank 4 is greater than max_lora_rank 2.*start the server with --max-lora-rank"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_server_that_takes_no_adapter(fake: Fake, policy: VllmPolicy, name: str, tmp_path: Path) -> None:
    changes, said = REFUSED[name]
    for attribute, value in changes.items():
        setattr(fake, attribute, value)
    with pytest.raises(PolicyError, match=said):
        policy.publish(lora())
    assert policy.model == BASE
    assert [list(folder.iterdir()) for folder in tmp_path.iterdir()] == [[]]
    assert [route for route, _ in fake.loads] in ([], ["load", "unload"])  # asked once: it would not change its mind


def test_a_server_that_does_not_see_the_folder(fake: Fake, policy: VllmPolicy) -> None:
    load = fake.load
    fake.load = lambda body: load({**body, "lora_path": "/elsewhere"})  # type: ignore[method-assign]
    with pytest.raises(PolicyError, match=r"does not see the folder .*pass adapters= a folder that both see"):
        policy.publish(lora())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rank_pattern": {"q_proj": 2}}, "uses rank_pattern, which vLLM passes over"),
        ({"alpha_pattern": {"q_proj": 2}}, "uses alpha_pattern"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights='pissa' changed the base model"),
    ],
)
def test_what_vllm_would_compute_otherwise_is_refused(
    fake: Fake, policy: VllmPolicy, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(PolicyError, match=said):
        policy.publish(lora(**changes))
    assert fake.loads == []


def test_layers_that_compute_otherwise_than_their_files_say_are_refused(fake: Fake, policy: VllmPolicy) -> None:
    trained = lora()
    with trained.disable_adapter(), pytest.raises(PolicyError, match="'default' is disabled"):
        policy.publish(trained)
    policy.publish(trained)
    policy.publish(lora(use_rslora=True))
    for layer in trained.modules():
        if isinstance(getattr(layer, "scaling", None), dict):
            layer.set_scale("default", 0.5)
    with pytest.raises(PolicyError, match="is scaled by 1 at .*, and a server scales it by 2"):
        policy.publish(trained)


def test_an_adapter_that_stays_on_the_server_ends_nothing(
    fake: Fake, policy: VllmPolicy, caplog: pytest.LogCaptureFixture
) -> None:
    fake.unload = lambda body: (400, {"error": {"message": "no unload today"}})  # type: ignore[method-assign]
    names = [policy.publish(lora()) for _ in range(4)]
    assert policy.model == names[-1]
    assert [f"adapter {name} may still" in caplog.text for name in names] == [True, True, False, False]
    check(policy.complete([REQUEST], PLAIN)[0], REQUEST, 1.0, names[-1])


def test_a_load_that_failed_is_taken_back(fake: Fake, tmp_path: Path) -> None:
    load = fake.load

    def lost(body: dict[str, Any]) -> tuple[int, Any]:
        load(body)
        return 503, {}

    fake.load = lost  # type: ignore[method-assign]
    with make(fake, adapters=tmp_path, retries=1) as policy, pytest.raises(PolicyError, match="was not loaded.*503"):
        policy.publish(lora())
    assert fake.adapters == {}


def test_models_without_one_lora(fake: Fake, policy: VllmPolicy) -> None:
    with pytest.raises(PolicyError, match="LlamaForCausalLM has no adapter, and whole models cannot be sent"):
        policy.publish(model("gqa"))
    two = lora()
    two.add_adapter("more", peft.LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM"))
    two.base_model.set_adapter(["default", "more"])
    with pytest.raises(PolicyError, match="2 adapters are active"):
        policy.publish(two)
    other = peft.get_peft_model(model("gqa"), peft.IA3Config(task_type="CAUSAL_LM"))
    with pytest.raises(PolicyError, match="of type IA3"):
        policy.publish(other)


def test_half_an_adapter_is_never_seen(fake: Fake, tmp_path: Path) -> None:
    class Breaks:
        peft_config = lora().peft_config
        active_adapters = ("default",)

        def save_pretrained(self, folder: Path, **settings: Any) -> None:
            (folder / "adapter_config.json").write_text(json.dumps({"r": 4}))
            raise OSError("disk full")

    adapters = Adapters(make(fake, adapters=tmp_path)._servers, tmp_path)
    with pytest.raises(OSError, match="disk full"):
        adapters.publish(Breaks())
    assert adapters.current is None and fake.loads == []
    assert [list(folder.iterdir()) for folder in tmp_path.iterdir()] == [[]]
