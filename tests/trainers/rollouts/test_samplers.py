"""Samplers beside the trained model itself: copies in another number format, and adapters sent to a server."""

from __future__ import annotations

import pytest
import torch
from peft import LoraConfig, get_peft_model

from agents.policy import Request, Sampling
from tests.agents.policies.vllm.fake import Fake, running
from tests.trainers.toy import ToyEnv, make_config, make_model, make_task, make_tokenizer, make_trainer
from trainers.errors import ConfigError
from trainers.gigpo import GiGPOTrainer
from trainers.grpo import main
from trainers.rollouts.samplers import Publisher, make_sampler, sampled_dtype
from trainers.run.callback import trainer_facts
from trainers.settings.checks import check_config, config_notes
from trainers.settings.parsing import parse

LORA = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules="all-linear", init_lora_weights=False)


def sampler_of(model, tokenizer, dtype):
    return make_sampler(model, tokenizer, [tokenizer.eos_token_id], sampler="in_process", sample_dtype=dtype)


@pytest.mark.parametrize(
    ("dtype", "adapted", "exact"),
    [
        ("same", False, True),
        ("same", True, True),
        ("float32", False, True),
        ("float32", True, False),
        ("bfloat16", False, False),
    ],
)
def test_exact_is_claimed_only_where_the_model_itself_samples(dtype, adapted, exact):
    tokenizer = make_tokenizer()
    model = get_peft_model(make_model(tokenizer), LORA) if adapted else make_model(tokenizer)
    made, own = sampler_of(model, tokenizer, dtype), sampler_of(model, tokenizer, "same")
    assert made.exact is exact
    prompt, sampling = tokenizer.encode("list the files"), Sampling(1.0, 8)
    (reply,), (expected,) = (s.policy.complete([Request("a", prompt, seed=1)], sampling) for s in (made, own))
    if exact:
        assert reply.ids == expected.ids and reply.logprobs == expected.logprobs
    elif dtype == "float32":
        assert reply.logprobs == pytest.approx(expected.logprobs, abs=1e-4)


@pytest.mark.parametrize("adapted", [False, True])
def test_weights_of_few_digits_are_no_exact_sampler(tmp_path, adapted):
    """Decoding and training round differently in bfloat16, so tokens are weighted; the settings know it, too."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer).to(torch.bfloat16)
    model = get_peft_model(model, LORA) if adapted else model
    assert not sampler_of(model, tokenizer, "same").exact
    trainer = make_trainer(tmp_path, model=model)
    trainer.close()
    facts = trainer_facts(trainer)
    assert not trainer.rollouts.exact and (facts.exact, facts.dtype, facts.training_dtype) == (
        False, "bfloat16", "bfloat16",
    )  # fmt: skip
    capped = [parse(["--importance_cap", "3", "--dtype", dtype]).config for dtype in ("bfloat16", "float32")]
    said = [[note for note in config_notes(config) if "importance_cap" in note] for config in capped]
    assert not said[0] and "this sampler is exact" in said[1][0]


@pytest.mark.parametrize(
    ("sampler", "sample_dtype", "dtype"),
    [("in_process", "same", "float32"), ("in_process", "bfloat16", "bfloat16"), ("vllm:http://x", "same", "")],
)
def test_the_format_of_the_sampler_is_that_of_who_samples(sampler, sample_dtype, dtype):
    assert sampled_dtype(make_model(make_tokenizer()), sampler, sample_dtype) == dtype


def test_a_copy_follows_the_weights(tmp_path):
    """What a bfloat16 copy says it sampled with lies near the weights of its step, and the step moved them."""
    trainer = make_trainer(tmp_path, sample_dtype="bfloat16", max_steps=2, learning_rate=1e-2)
    gaps = []
    played = trainer.play

    def check(count):
        out = played(count)
        for prompt, ids, sampled, mask in zip(
            out["prompt_ids"], out["completion_ids"], out["logprobs"], out["env_mask"], strict=True
        ):
            with torch.no_grad():
                logits = trainer.model(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].float()
            own = logits.log_softmax(-1).gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1)
            gaps.append(((own - torch.tensor(sampled)).abs() * torch.tensor(mask)).max().item())
        return out

    trainer.play = check
    before = torch.cat([p.detach().flatten().clone() for p in trainer.model.parameters()])
    trainer.train()
    trainer.close()
    assert not trainer.rollouts.exact
    assert 0 < max(gaps) < 0.1
    assert (torch.cat([p.detach().flatten() for p in trainer.model.parameters()]) - before).abs().max() > 5e-3


class Server:
    """Takes note of what a policy of a server is told."""

    def __init__(self):
        self.published = []
        self.waited = 0

    def wait_ready(self, timeout):
        self.waited += 1

    def publish(self, model):
        self.published.append(float(next(p for p in model.parameters() if p.requires_grad).sum()))
        return f"v{len(self.published)}"


def test_an_adapter_is_published_when_the_weights_changed_and_only_then():
    model, server = get_peft_model(make_model(make_tokenizer()), LORA), Server()
    publisher = Publisher(server, model)
    publisher.update(0)
    publisher.update(0)
    assert (len(server.published), server.waited) == (1, 1)
    trained = [p for p in model.parameters() if p.requires_grad]
    sum(p.sum() for p in trained).backward()
    torch.optim.AdamW(trained, lr=0.1, fused=True).step()  # which torch's counters do not show
    publisher.update(1)
    publisher.update(1)
    with torch.no_grad():
        trained[0].add_(1.0)  # as a checkpoint that is loaded
    publisher.update(1)
    assert len(set(server.published)) == len(server.published) == 3 and publisher.names == ["v1", "v2", "v3"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"sampler": "sglang"}, "in_process, or vllm:URL"),
        ({"sampler": "vllm:http://x", "sample_dtype": "bfloat16"}, "has its own --dtype"),
        ({"sample_dtype": "int8"}, "one of same, bfloat16, float32, auto"),
        ({"sampler_adapters": "/a"}, "does nothing without sampler=vllm:URL"),
        ({"sampler_retries": 3}, "does nothing without sampler=vllm:URL"),
        ({"sampler": "vllm:http://x", "sampler_retries": -1}, "0 or more"),
        ({"sampler": "vllm:http://x,y"}, "no address of a server"),
        ({"adaptive_successes": 1}, "both above 0"),
        ({"adaptive_successes": 3, "adaptive_failures": 2}, "do not fit into the num_generations=4"),
        ({"adaptive_successes": 1, "adaptive_failures": 1, "adaptive_attempts": 4}, "must be above num_generations=4"),
        ({"adaptive_chunk": 2}, "does nothing without adaptive_successes"),
        ({"refill_rounds": -1}, "0 or more"),
        ({"curriculum": "/nowhere/x"}, "no such file or folder"),
        ({"curriculum_order": "band"}, "does nothing without curriculum"),
        ({"curriculum_order": "hard"}, "one of easy_first, band"),
    ],
)
def test_what_cannot_work_is_refused_with_a_line(tmp_path, changes, line):
    with pytest.raises(ConfigError, match=line):
        check_config(make_config(tmp_path, **changes))


def test_several_servers_and_their_retries_reach_the_policy():
    made = make_sampler(
        None, make_tokenizer(), [2], sampler="vllm:http://a:1,http://b:2", sample_dtype="same", retries=3
    ).policy
    assert [(client.base_url, client.retries) for client in made._servers.clients] == [
        ("http://a:1", 3),
        ("http://b:2", 3),
    ]


def make_served(tmp_path, url, model, tokenizer, peft=None, **changes):
    config = make_config(tmp_path, sampler=f"vllm:{url}", sampler_adapters=str(tmp_path / "adapters"), **changes)
    tasks = [make_task(i) for i in range(4)]
    return GiGPOTrainer(
        model, config, tokenizer, tasks, ToyEnv, slots=8, workers=2, max_turn_tokens=12, peft_config=peft
    )


def test_a_model_without_an_adapter_is_refused_when_the_trainer_is_made(tmp_path):
    tokenizer = make_tokenizer()
    with running(Fake(tokenizer=tokenizer)) as server, pytest.raises(ConfigError, match="has no adapter"):
        make_served(tmp_path, server.url, make_model(tokenizer), tokenizer)


def test_a_server_that_is_not_there_is_said_when_the_trainer_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr("trainers.rollouts.samplers.READY_SECONDS", 0.2)
    with pytest.raises(ConfigError, match=r"sampler=vllm:http://127.0.0.1:9: no vLLM server was ready"):
        make_served(tmp_path, "http://127.0.0.1:9", make_model(make_tokenizer()), make_tokenizer(), LORA)


def test_a_server_with_other_log_probabilities_is_refused_when_the_trainer_is_made(tmp_path):
    tokenizer = make_tokenizer()
    refused = pytest.raises(ConfigError, match="--logprobs-mode processed_logprobs")
    with running(Fake(mode="raw_logprobs", tokenizer=tokenizer)) as server, refused:
        make_served(tmp_path, server.url, make_model(tokenizer), tokenizer, LORA, temperature=0.7)
    assert not server.adapters


def test_every_rollout_samples_from_the_adapter_of_its_step(tmp_path):
    """Against a played server: one version a step, under names that are never used again; ids go as they came."""
    tokenizer = make_tokenizer()
    with running(Fake(tokenizer=tokenizer)) as server:
        trainer = make_served(tmp_path, server.url, make_model(tokenizer), tokenizer, LORA, max_steps=3)
        asked, played, episodes = [], trainer.play, []

        def noted(count):
            before = len(server.sampled)
            out = played(count)
            asked.append({body["model"] for body in server.sampled[before:]})
            episodes.extend(trainer._played.episodes)
            return out

        trainer.play = noted
        trainer.train()
        loaded = [body["lora_name"] for kind, body in server.loads if kind == "load"]
        assert not trainer.rollouts.exact
        trainer.close()
        trainer.close()
        assert not server.adapters
    assert len(loaded) == len(set(loaded)) == 3 and asked == [{name} for name in loaded]
    prompts = {tuple(body["prompt"]) for body in server.sampled}
    for episode in episodes:
        ids = list(episode.prompt_ids)
        for turn in episode.turns:
            ids += turn.context_ids
            assert tuple(ids) in prompts
            ids += turn.ids


def test_a_dry_run_finds_that_a_server_takes_no_whole_models(tmp_path, capsys):
    settings = ["--dry-run", "--output_dir", str(tmp_path / "run"), "--sampler", "vllm:http://127.0.0.1:9"]
    assert main(settings) == 2
    assert "takes LoRA adapters and no whole models" in capsys.readouterr().err
