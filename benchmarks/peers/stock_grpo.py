"""Steps of TRL's own GRPOTrainer with LoRA: a peer of `benchmarks.steps`, in a process of its own.

    python -m benchmarks.peers.stock_grpo MODEL STEPS ROWS CAP

Prints one line of JSON: seconds of each step, tokens that were sampled, bytes at the peak.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, TrainerControl, TrainerState
from transformers import TrainingArguments as Arguments
from trl import GRPOConfig, GRPOTrainer

from tasks.sources import load_tasks


class Watch(TrainerCallback):
    """Seconds of each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._begin = 0.0

    def on_step_begin(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        torch.cuda.synchronize()
        self._begin = time.perf_counter()

    def on_step_end(self, args: Arguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._begin)


def main() -> None:
    name, steps, rows, cap = sys.argv[1], *map(int, sys.argv[2:5])
    sampled: list[int] = []

    def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
        sampled.append(sum(map(len, completion_ids)))
        return [float(ids[0] % 2) for ids in completion_ids]  # groups differ, as those of a policy that learns

    tokenizer = AutoTokenizer.from_pretrained(name)
    prompts = [{"prompt": task.intent} for task in load_tasks("gsm8k:sample")]
    with tempfile.TemporaryDirectory() as folder:
        args = GRPOConfig(
            output_dir=folder, max_steps=steps, num_generations=8, per_device_train_batch_size=8,
            gradient_accumulation_steps=rows // 8, max_completion_length=cap, learning_rate=1e-4, save_strategy="no",
            report_to=[], logging_steps=1, bf16=False, temperature=1.0, beta=0.0, disable_tqdm=True,
        )  # fmt: skip
        watch = Watch()
        trainer = GRPOTrainer(
            model=AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32),
            reward_funcs=[reward],
            args=args,
            train_dataset=Dataset.from_list(prompts * (1 + rows * steps // len(prompts))),
            processing_class=tokenizer,
            peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"),
            callbacks=[watch],
        )
        trainer.train()
    tokens = [sum(sampled) / steps] * steps
    print(json.dumps({"seconds": watch.seconds, "tokens": tokens, "peak": torch.cuda.max_memory_reserved()}))


if __name__ == "__main__":
    main()
