"""A policy that is trained with tool calls says so, and is spoken to so from then on."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agents.models.card import ModelCard, find_card, read_card, write_card, write_manifest
from tests.agents.policies.fake_endpoint import endpoint, said
from tests.agents.tool_templates import tool_tokenizer
from tests.trainers.test_one_prompt import SANDBOX, SHELL, SMALL, card_of, episodes, measured
from trainers import evaluate, grpo
from trainers.rollouts.manner import manner_of
from trainers.run.machine import environment_settings
from trainers.settings.parsing import parse
from trainers.warmstart.model import SFTConfigError, SFTSettings

pytestmark = [
    pytest.mark.skipif(SANDBOX is None, reason="no sandbox backend works on this machine"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(600),
]
TASKS = ["--tasks", SHELL[3]]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model whose template has tools."""
    tokens, folder = tool_tokenizer("hermes"), tmp_path_factory.mktemp("policy")
    torch.manual_seed(0)
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    ids = {"bos_token_id": None, "eos_token_id": tokens.eos_token_id, "pad_token_id": tokens.eos_token_id}
    config = LlamaConfig(vocab_size=len(tokens), max_position_embeddings=4096, **shape, **ids)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokens.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def run(policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("protocol") / "run"
    argv = [*SMALL, *SHELL, "--model_name_or_path", str(policy), "--adapter", "none", "--prompt_style", "compact",
            "--protocol", "tools", "--max_turns", "2", "--confirm", "0", "--output_dir", str(folder)]  # fmt: skip
    assert grpo.main(argv) == 0
    return folder


def test_the_run_is_played_and_recorded_with_tools(run: Path) -> None:
    cards = {name: read_card(run / name) for name in ("checkpoint-1", "checkpoint-2", "best")}
    assert {card.protocol for card in cards.values()} == {"tools"}
    assert json.loads((run / "environment.json").read_text())["protocol"] == "tools"
    (run / "checkpoint-1" / "turngym.json").unlink()
    assert replace(cards["best"], stops=None, end_ids=()) == find_card(run / "checkpoint-1")
    records = [json.loads(line) for file in run.glob("trajectories/*") for line in file.read_text().splitlines()]
    tokens = tool_tokenizer("hermes")
    for record in records:
        assert record["environment"]["protocol"] == "tools"
        text = tokens.decode(record["prompt_ids"])
        assert "<tools>" in text and '"name": "submit"' in text
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    # What is trained is what was sampled: learning computes the probabilities that sampling had.
    assert all(line["sampling/logp_difference_max"] < 1e-4 for line in metrics if "reward" in line)


def test_a_checkpoint_is_spoken_to_as_it_was_trained(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = measured(run / "checkpoint-2", TASKS, tmp_path / "as trained")
    then = episodes(run / "held_out" / "step_000002_greedy.jsonl")
    assert {name: now[name] for name in then} == then
    assert ", protocol tools" in capsys.readouterr().out
    assert json.loads((tmp_path / "as trained" / "environment.json").read_text())["protocol"] == "tools"
    asked = measured(run / "checkpoint-2", TASKS, tmp_path / "as text", "--protocol", "text")
    assert "warning: as asked, protocol text (in training tools)" in capsys.readouterr().out
    assert all(asked[name][0] != then[name][0] for name in then)
    goes_on = [*SMALL, *SHELL, "--model_name_or_path", str(run), "--output_dir", str(tmp_path / "b"), "--dry-run"]
    assert grpo.main(goes_on) == 0
    assert "prompt style compact, protocol tools" in capsys.readouterr().out


def test_other_tools_that_nobody_asked_for_are_refused(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a release that words a tool otherwise would find it."""
    model = tmp_path / "model"
    shutil.copytree(run / "best", model)
    write_card(model, replace(read_card(model), prompt_hash="0123456789abcdef"))
    write_manifest(model)
    argv = ["--model", str(model), "--tasks", "generated:quickstart?n=1&seed=6", "--max_turns", "1"]
    assert evaluate.main([*argv, "--output_dir", str(tmp_path / "a")]) == 2
    said = capsys.readouterr().err
    assert "0123456789abcdef" in said and "protocol" in said and "name the style" in said
    assert evaluate.main([*argv, "--protocol", "tools", "--output_dir", str(tmp_path / "b")]) == 0
    assert "warning: as asked, the policy was trained with other prompts" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("dry", [["--dry-run"], []])
def test_a_policy_whose_template_has_no_tools_is_refused_in_one_line(
    dry: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--protocol", "tools", "--output_dir", str(tmp_path / "a")]
    assert grpo.main([*SMALL, *SHELL, *asked, *dry]) == 2
    said = capsys.readouterr().err.strip()
    assert "quickstart: the chat template carries no tool calls" in said and "--protocol text" in said
    assert "\n" not in said and not (tmp_path / "a").exists()
    if not dry:
        assert evaluate.main(["--model", "quickstart", *TASKS, *asked]) == 2
        assert "the chat template carries no tool calls" in capsys.readouterr().err
        assert not (tmp_path / "a").exists()


def test_the_oracle_passes_by_calls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["--model", "oracle", *TASKS, "--greedy", "--protocol", "tools", "--output_dir", str(tmp_path / "a")]
    assert evaluate.main(argv) == 0
    records = [json.loads(line) for line in (tmp_path / "a" / "episodes_greedy.jsonl").read_text().splitlines()]
    assert all(record["passed"] and "<tool_call>" in record["turns"][0]["reply"] for record in records)


def test_an_endpoint_is_measured_with_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    call = {"id": "a", "type": "function", "function": {"name": "submit", "arguments": "{}"}}
    with endpoint(lambda body: said(None, "tool_calls", tool_calls=[call])) as server:
        argv = ["--model", f"openai:tiny@{server.url}", "--tasks", "library", "--limit", "3", "--protocol", "tools"]
        assert evaluate.main([*argv, "--sandbox", str(SANDBOX), "--output_dir", str(tmp_path / "a")]) == 0
        assert len(server.asked) == 3
        assert all([tool["function"]["name"] for tool in body["tools"]] == ["bash", "submit"] for body in server.asked)
    records = [json.loads(line) for line in (tmp_path / "a" / "episodes_sampled.jsonl").read_text().splitlines()]
    assert {record["stop_reason"] for record in records} == {"submitted"}


def test_what_is_asked_for_wins_over_the_card() -> None:
    card = ModelCard("compact", "ClawGym-v0", "12", protocol="tools")
    assert manner_of(card).protocol == manner_of(card, env="ClawGym-v1").protocol == "tools"
    assert manner_of(card, env="GSM8K-v0").protocol == "text"  # questions are answered, whatever the shell's protocol
    asked = manner_of(card, protocol="text")
    assert asked.protocol == "text" and asked.asked == ("protocol text (in training tools)",)
    assert manner_of(ModelCard(), protocol="tools").asked == ()
    assert ModelCard().told() == {"prompt_style": "standard"} and card.told()["protocol"] == "tools"


def test_where_it_has_no_effect_it_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert environment_settings("ClawGym-v1", tools=True, revise=0, protocol="tools") == {"protocol": "tools"}
    with pytest.raises(ValueError, match="protocol=tools: GSM8K-v0 has one way to act; ClawGym-v0 and ClawGym-v1"):
        environment_settings("GSM8K-v0", tools=True, revise=0, protocol="tools")
    argv = ["--model", "oracle", "--env", "GSM8K-v0", "--protocol", "tools", "--output_dir", str(tmp_path / "a")]
    assert evaluate.main(argv) == 2
    assert "GSM8K-v0 has one way to act" in capsys.readouterr().err


def test_settings_from_before_have_the_hash_that_they_had() -> None:
    plain = parse([])
    assert "protocol" not in plain.resolved()
    assert parse(["--protocol", "tools"]).resolved() == {**plain.resolved(), "protocol": "tools"}
    assert parse(["--protocol", "text"]).sha256() != plain.sha256() == parse(["--protocol", "auto"]).sha256()


def trajectories(path: Path, *protocols: str) -> Path:
    said: list[dict[str, Any]] = [
        {"env": "ClawGymEnv", "prompt_style": "compact", "prompt_hash": one} for one in protocols
    ]
    said = [{**one, "protocol": "tools"} if one["prompt_hash"] == "tools" else one for one in said]
    path.write_text("".join(json.dumps({"turns": [], "passed": True, "environment": one}) + "\n" for one in said))
    return path


def test_sft_speaks_the_protocol_of_its_data(run: Path, tmp_path: Path) -> None:
    data = trajectories(tmp_path / "tools.jsonl", "tools")
    with pytest.raises(SFTConfigError, match="speaks tools, .*quickstart was made for text.*say so: --protocol tools"):
        card_of(tmp_path, data)
    assert card_of(tmp_path, data, protocol="tools").protocol == "tools"
    with pytest.raises(SFTConfigError, match="protocol=text: the trajectories in .* speak tools"):
        card_of(tmp_path, data, protocol="text")
    with pytest.raises(SFTConfigError, match="speaks text and tools, and a policy is made for one protocol"):
        card_of(tmp_path, trajectories(tmp_path / "both.jsonl", "tools", "text"))
    shutil.copy(run / "trajectories" / "step_000001.jsonl", tmp_path / "own.jsonl")
    own = card_of(tmp_path, tmp_path / "own.jsonl", model_name_or_path=str(run), passed_only=False)
    assert own == read_card(run / "best")
    (tmp_path / "messages.jsonl").write_text('{"messages": []}\n')
    assert card_of(tmp_path, tmp_path / "messages.jsonl", protocol="tools") == ModelCard("compact", protocol="tools")
    with pytest.raises(SFTConfigError, match="protocol=tools: generated demonstrations speak text"):
        SFTSettings(protocol="tools")
