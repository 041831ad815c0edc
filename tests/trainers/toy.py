"""A model, a tokenizer and an environment small enough for a test, and real enough for TRL."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agents.trajectory import Trajectory
from envs.conversation import StopReason
from tasks.task import Task
from trainers.gigpo import GiGPOTrainer
from trainers.settings import GiGPOConfig

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<|im_end|>", pad_token="<pad>")
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_model(tokenizer: PreTrainedTokenizerFast, seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def make_task(number: int) -> Task:
    return Task.model_validate(
        {
            "id": f"toy-{number}",
            "intent": f"toy task {number}",
            "assertions": [{"kind": "file_exists", "path": "a.txt"}],
        }
    )


class ToyEnv:
    """Three turns; a turn earns the share of even bytes in its reply, and the anchor is the parity of their count."""

    system_prompt = ""
    raw_prompts = False
    max_turns = 3

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
        assert options is not None
        self.task = options["task"]
        self.turn, self.earned, self.parity = 0, 0.0, 0
        return self.task.intent, self._info(None, 0.0)

    def step(self, reply: str):
        raw = reply.encode()
        signal = sum(b % 2 == 0 for b in raw) / max(1, len(raw)) / 3
        self.turn += 1
        self.earned += signal
        self.parity = len(raw) % 2
        done = self.turn == self.max_turns
        info = self._info(signal, signal)
        if done:
            info |= self._end(StopReason.MAX_TURNS)
        return f"turn {self.turn}", self.earned if done else 0.0, False, done, info

    def finish(self, reason):
        return self.earned, self._info(None, 0.0) | self._end(StopReason(reason))

    def close(self):
        pass

    def _end(self, reason: StopReason) -> dict[str, Any]:
        passed = self.earned > 0.5
        record = {
            "name": "a",
            "kind": "file_exists",
            "verdict": "pass" if passed else "fail",
            "score": 1.0,
            "detail": "",
        }
        return {"stop_reason": reason.value, "assertions": [record], "passed": passed, "rate": min(1.0, self.earned)}

    def _info(self, signal: float | None, _: float) -> dict[str, Any]:
        return {
            "task_id": self.task.id,
            "task_hash": self.task.content_hash,
            "turn": self.turn,
            "action": "command",
            "command": "true",
            "exit_code": 0,
            "timed_out": False,
            "signal": signal,
            "anchor": f"{self.turn}:{self.parity}" if self.turn else "start",
            "stop_reason": None,
            "malformed": None,
        }


def make_config(tmp_path, **changes: Any) -> GiGPOConfig:
    settings: dict[str, Any] = {
        "output_dir": str(tmp_path / "run"),
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 1,
        "max_steps": 2,
        "learning_rate": 1e-3,
        "warmup_steps": 0,
        "adam_epsilon": 1e-8,
        "eval_strategy": "no",
        "eval_on_start": False,
        "save_strategy": "no",
        "use_cpu": True,
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "beta": 0.0,
        "save_total_limit": None,
    }
    return GiGPOConfig(**{**settings, **changes})


def make_trainer(
    tmp_path, *, tasks: int = 4, env=ToyEnv, held_out=None, model=None, seed: int = 0, t2po=None, **changes: Any
) -> GiGPOTrainer:
    """A trainer that notes every batch it computes a loss on in `.batches`."""
    tokenizer = make_tokenizer()
    trainer = NotingTrainer(
        model or make_model(tokenizer, seed),
        make_config(tmp_path, **changes),
        tokenizer,
        [make_task(i) for i in range(tasks)],
        env,
        held_out=held_out,
        t2po=t2po,
        slots=8,
        workers=2,
        max_turn_tokens=12,
    )
    return trainer


class NotingTrainer(GiGPOTrainer):
    """Keeps what a test wants to look at."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.batches: list[dict[str, Any]] = []
        self.played: list[list[Trajectory]] = []
        self.ratios: list[tuple[float, float]] = []
        self.logged: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def play(self, count: int):
        out = super().play(count)
        self.played.append(self._played.episodes)
        return out

    def _compute_loss(self, model, inputs):
        self.batches.append({k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in inputs.items()})
        return super()._compute_loss(model, inputs)

    def log(self, logs, start_time=None):
        super().log(logs, start_time)
        self.logged.append(dict(logs))
