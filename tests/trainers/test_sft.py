from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from agents.models.card import read_card
from agents.models.loading import load_model
from agents.policy import FinishReason
from agents.trajectory import Trajectory, Turn, write_jsonl
from benchmarks.warm_start.corpus import generated_corpus
from tests.trainers.toy import make_model, make_tokenizer
from trainers import sft
from trainers.warmstart.corpus import ConversationEncoder, Corpus, CorpusError, read_corpus, spoken_in, train_tokenizer
from trainers.warmstart.model import (
    WARM_START,
    Batch,
    SFTConfigError,
    SFTSettings,
    load_settings,
    schedule,
    train,
    weighted_loss,
)

TINY = {
    "model": {"hidden": 32, "layers": 1, "heads": 2, "feed_forward": 48, "context": 256, "init_std": 0.08},
    "n_demonstrations": 60,
    "min_piece_count": 5,
    "batch_tokens": 600,
    "learning_rate": 5e-3,
    "warmup_steps": 3,
    "logging_steps": 4,
    "max_steps": 12,
    "processes": 1,
    "device": "cpu",
    "context_weight": 0.05,
    "save_dtype": "float16",
}


def silent(text: str) -> None:
    pass


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("sft") / "model"
    sft.run(SFTSettings(output_dir=str(folder), **TINY), say=silent)
    return folder


def test_the_loss_falls_and_is_recorded(made):
    losses = [json.loads(line)["loss"] for line in (made / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == 3
    assert losses[-1] < losses[0] - 0.5


def test_the_folder_is_a_model_with_its_recipe(made):
    model, tokenizer = load_model(made)
    assert model.dtype == torch.float32
    assert model.config.vocab_size == len(tokenizer)
    assert read_card(made).prompt_style == "compact"
    recipe = json.loads((made / "recipe.json").read_text())
    assert recipe["weights_sha256"] == hashlib.sha256((made / "model.safetensors").read_bytes()).hexdigest()
    assert recipe["seed"] == 0 and recipe["settings"]["max_steps"] == 12
    assert recipe["data"]["conversations"] == 60
    assert recipe["faults"] == SFTSettings().faults().to_json()
    assert "output_dir" not in recipe["settings"]


def test_equal_seeds_give_equal_bytes(made, tmp_path):
    sft.run(SFTSettings(output_dir=str(tmp_path / "again"), **TINY), say=silent)
    sft.run(SFTSettings(output_dir=str(tmp_path / "other"), **{**TINY, "seed": 1}), say=silent)
    for name in ("model.safetensors", "tokenizer.json"):
        assert (tmp_path / "again" / name).read_bytes() == (made / name).read_bytes()
    assert (tmp_path / "other" / "model.safetensors").read_bytes() != (made / "model.safetensors").read_bytes()


def test_the_number_of_processes_changes_nothing():
    tokenizer = train_tokenizer(["notes.txt"])
    recipe = SFTSettings().faults()
    one = generated_corpus(tokenizer, 1100, 3, recipe, processes=1)
    two = generated_corpus(tokenizer, 1100, 3, recipe, processes=2)
    assert one.sha256() == two.sha256()
    assert len(one) == 1100


def messages_file(path: Path, rows: int = 6) -> Path:
    chat = [
        {"role": "user", "content": "copy notes.txt to readme.md"},
        {"role": "assistant", "content": "```bash\ncp notes.txt readme.md\n```"},
    ]
    path.write_text("".join(json.dumps({"messages": chat}) + "\n" for _ in range(rows)))
    return path


def test_an_existing_model_goes_on_from_messages(made, tmp_path):
    data = messages_file(tmp_path / "chat.jsonl")
    out = tmp_path / "tuned"
    arguments = ["--model_name_or_path", str(made), "--data", str(data), "--output_dir", str(out), "--max_steps", "60"]
    assert sft.main([*arguments, "--learning_rate", "3e-3", "--device", "cpu"]) == 0
    last = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["token_accuracy"] > 0.9
    assert read_card(out).prompt_style == "compact"
    assert json.loads((out / "recipe.json").read_text())["faults"] is None


def test_lora_changes_the_merged_model(made, tmp_path):
    pytest.importorskip("peft")
    data = messages_file(tmp_path / "chat.jsonl")
    settings = SFTSettings(
        model_name_or_path=str(made), data=str(data), output_dir=str(tmp_path / "out"), max_steps=5, lora_r=4,
        learning_rate=1e-2, device="cpu",
    )  # fmt: skip
    sft.run(settings, say=silent)
    before, after = load_model(made)[0].state_dict(), load_model(tmp_path / "out")[0].state_dict()
    assert before.keys() == after.keys()
    name = "model.layers.0.self_attn.q_proj.weight"
    assert not torch.equal(before[name], after[name])
    assert torch.equal(before["model.embed_tokens.weight"], after["model.embed_tokens.weight"])


@pytest.mark.parametrize("lora_r", [0, 4])
def test_any_chat_model_learns_the_generated_demonstrations(tmp_path, lora_r):
    """A model that is not ours, with a template of its own: the loss counts the assistant's tokens alone."""
    tokenizer = make_tokenizer()
    make_model(tokenizer).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    settings = SFTSettings(
        model_name_or_path=str(tmp_path / "model"), output_dir=str(tmp_path / "out"), n_demonstrations=12, max_steps=8,
        batch_tokens=2000, lora_r=lora_r, learning_rate=1e-2, warmup_steps=1, logging_steps=1, processes=1,
        device="cpu",
    )  # fmt: skip
    sft.run(settings, say=silent)
    losses = [json.loads(line)["loss"] for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < losses[0] - 0.3
    recipe = json.loads((tmp_path / "out" / "recipe.json").read_text())
    assert 0 < recipe["data"]["trained_tokens"] < recipe["data"]["tokens"] / 2
    assert read_card(tmp_path / "out").prompt_style == "compact"
    assert load_model(tmp_path / "out")[1].chat_template == tokenizer.chat_template


def trajectory(tokenizer, *, passed: bool = True, forced: bool = False) -> Trajectory:
    prompt = tokenizer.encode("<|im_start|>user\ncopy<|im_end|>\n<|im_start|>assistant\n")
    ids = [*tokenizer.encode("TASK_COMPLETE"), tokenizer.eos_token_id]
    n = len(ids)
    turn = Turn(0, [], ids, [0.0] * n, [0.0] * n, [forced] + [False] * (n - 1), FinishReason.STOP, "TASK_COMPLETE")
    return Trajectory("t", "h", 0, 0, prompt, [turn], passed=passed)


def write(path: Path, *trajectories: Trajectory) -> Path:
    with open(path, "w") as file:
        write_jsonl(trajectories, file)
    return path


def test_trajectories_keep_sampled_ids_and_leave_forced_ones_untrained(tmp_path):
    tokenizer = train_tokenizer(["notes.txt"])
    good, cut = trajectory(tokenizer), trajectory(tokenizer, forced=True)
    path = write(tmp_path / "t.jsonl", good, trajectory(tokenizer, passed=False), cut)
    corpus = read_corpus(path, tokenizer)
    assert len(corpus) == 2
    n, prompt = len(good.turns[0].ids), len(good.prompt_ids)
    assert corpus.ids.tolist() == 2 * [*good.prompt_ids, *good.turns[0].ids]
    assert corpus.trained.tolist() == [False] * prompt + [True] * n + [False] * prompt + [False] + [True] * (n - 1)
    assert len(read_corpus(path, tokenizer, passed_only=False)) == 3


def test_a_trajectory_with_older_observations_as_lines_is_a_sequence_for_each_turn(tmp_path):
    tokenizer = train_tokenizer(["notes.txt"])
    long = trajectory(tokenizer)
    long.environment = {"prompt_style": "compact", "keep_observations": 1}
    first, prompt = long.turns[0], long.prompt_ids
    seen, line = tokenizer.encode("<|im_end|>ok notes.txt"), tokenizer.encode("<|im_end|>ok")
    for number in (1, 2):
        forced = [number == 2] + [False] * (len(first.ids) - 1)
        long.turns.append(replace(first, index=number, context_ids=seen, short_ids=line, forced=forced))
    corpus = read_corpus(write(tmp_path / "t.jsonl", long), tokenizer)
    reply = first.ids
    prompts = [prompt, prompt + reply + seen, prompt + reply + line + reply + seen]
    assert corpus.ids.tolist() == [token for p in prompts for token in [*p, *reply]]
    assert corpus.lengths.tolist() == [len(p) + len(reply) for p in prompts]
    wanted = [[False] * len(p) + [True] * len(reply) for p in prompts]
    wanted[2][len(prompts[2])] = False
    assert corpus.trained.tolist() == sum(wanted, [])
    (card,) = spoken_in(tmp_path / "t.jsonl")
    assert card.keep_observations == 1


def test_bad_data_is_named_by_file_and_line(tmp_path):
    tokenizer = train_tokenizer(["notes.txt"])
    other = train_tokenizer(["notes.txt", "readme.md", "red", "blue", "green"])
    cases = {
        "{": "is no JSON",
        '{"text": "x"}': "neither a trajectory",
        '{"messages": [{"role": "user"}]}': "needs `role` and `content`",
        '{"messages": [{"role": "user", "content": "x"}]}': "no assistant message",
        json.dumps(trajectory(other).to_json()): "another tokenizer",
        json.dumps({"turns": []}): "",
    }
    for text, reason in cases.items():
        path = tmp_path / "bad.jsonl"
        path.write_text("\n" + text + "\n")
        with pytest.raises(CorpusError, match=rf"bad\.jsonl:2: .*{reason}"):
            read_corpus(path, tokenizer)
    with pytest.raises(CorpusError, match="none of its 1 trajectories passed"):
        read_corpus(write(tmp_path / "f.jsonl", trajectory(tokenizer, passed=False)), tokenizer)
    with pytest.raises(CorpusError, match="cannot be read"):
        read_corpus(tmp_path / "absent.jsonl", tokenizer)


class Fixed(torch.nn.Module):
    """Logits that do not depend on the input: token 2 is likely."""

    def forward(self, input_ids, use_cache):
        logits = torch.zeros(*input_ids.shape, 4)
        logits[..., 2] = 1.0
        return type("Out", (), {"logits": logits})


def test_the_loss_is_the_weighted_mean_by_hand():
    ids = torch.tensor([[0, 2, 1, 0], [0, 2, 0, 0]])
    trained = torch.tensor([[False, True, True, False], [False, True, False, False]])
    real = torch.tensor([[True, True, True, True], [True, True, False, False]])
    log_sum = float(torch.logsumexp(torch.tensor([0.0, 0.0, 1.0, 0.0]), 0))
    hit, miss = log_sum - 1.0, log_sum
    loss, counts = weighted_loss(Fixed(), Batch(ids, trained, real), 0.0)
    assert float(loss) == pytest.approx((hit + miss + hit) / 3, abs=1e-6)
    assert counts.tolist() == pytest.approx([2 * hit + miss, 2.0, 3.0], abs=1e-6)
    loss, counts = weighted_loss(Fixed(), Batch(ids, trained, real), 0.1)
    assert float(loss) == pytest.approx((hit + miss + hit + 0.1 * miss) / 3.1, abs=1e-6)
    assert counts.tolist() == pytest.approx([2 * hit + miss, 2.0, 3.0], abs=1e-6)


def test_schedule_warms_up_and_ends_at_zero():
    rates = [schedule(step, 50, 10) for step in range(1, 51)]
    assert rates[0] == pytest.approx(0.1) and rates[9] == 1.0
    assert all(a > b for a, b in zip(rates[9:], rates[10:], strict=False))
    assert rates[-1] == pytest.approx(0.0, abs=1e-12)
    assert max(schedule(step, 4, 100) for step in range(1, 5)) == 1.0


def test_a_loss_that_is_no_number_stops_the_run(made):
    model, tokenizer = load_model(made)
    ids, trained = ConversationEncoder(tokenizer)(
        [{"role": "user", "content": "a"}, {"role": "assistant", "content": "TASK_COMPLETE"}]
    )
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    settings = SFTSettings(device="cpu", max_steps=2, logging_steps=1)
    with pytest.raises(FloatingPointError, match="step 1: the loss is nan"):
        train(model, Corpus.of([(ids, trained)]), settings, pad_id=0, device=torch.device("cpu"))


def test_without_the_repository_a_new_policy_is_refused_in_one_line(tmp_path, capsys, monkeypatch):
    """What generates demonstrations is not in the wheel."""
    monkeypatch.setitem(sys.modules, "benchmarks.warm_start.corpus", None)
    assert sft.main(["--output_dir", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "checkout of the repository" in line and "--data" in line and not (tmp_path / "out").exists()
    assert SFTSettings(data="x.jsonl", model_name_or_path="quickstart").recipe == {}


def test_an_occupied_folder_is_refused(made, tmp_path, capsys):
    assert sft.main(["--output_dir", str(made), "--n_demonstrations", "10"]) == 2
    assert "is occupied" in capsys.readouterr().err
    (tmp_path / "thesis.txt").write_text("years of work")
    assert sft.main(["--output_dir", str(tmp_path), "--overwrite"]) == 2
    assert "was not made by this program" in capsys.readouterr().err
    assert (tmp_path / "thesis.txt").exists()


def test_a_dry_run_says_the_plan_and_writes_nothing(tmp_path, capsys):
    out = tmp_path / "none"
    arguments = [
        "--dry-run",
        "--config",
        "warm_start",
        "--output_dir",
        str(out),
        "--n_demonstrations",
        "600",
        "--processes",
        "1",
    ]
    assert sft.main([*arguments, "--device", "cpu"]) == 0
    assert "dry run: about" in capsys.readouterr().out
    assert not out.exists()


def test_the_shipped_recipe_is_strict_and_takes_flags_on_top(tmp_path):
    settings = load_settings(WARM_START, {"seed": 7})
    assert settings.seed == 7 and settings.model_name_or_path is None and settings.save_dtype == "float16"
    path = tmp_path / "c.yaml"
    for content, message in [
        ({"lerning_rate": 1}, "did you mean `learning_rate`"),
        ({"model": {"width": 3}}, "model.width: no such setting"),
        ({"recipe": {"misnames": 0.1}}, "did you mean `misname`"),
        ({"recipe": {"misname": 2.0}}, "probability"),
        ({"seed": "x"}, "seed='x': a whole number is needed"),
        ({"seed": True}, "a whole number is needed"),
        ({"learning_rate": "fast"}, "a number is needed"),
        ({"data": "x.jsonl"}, "data without model_name_or_path"),
        (["seed"], "must hold `key: value` lines"),
    ]:
        path.write_text(yaml.safe_dump(content))
        with pytest.raises(SFTConfigError, match=message):
            load_settings(path, {})
    path.write_text("seed: 1\nlearning_rate: 0.1\nseed: 2\n")
    with pytest.raises(SFTConfigError, match="c.yaml:3: seed: the key 'seed' stands here twice"):
        load_settings(path, {})
    path.write_text("learning_rate: 3e-3\n")
    assert load_settings(path, {}).learning_rate == 0.003
    with pytest.raises(SFTConfigError, match="cannot be read"):
        load_settings(tmp_path / "absent.yaml", {})
