"""How far the memory estimate of `--dry-run` is from the measured peak, for six runs.

    python -m benchmarks.memory            # on a GPU: SmolLM2-135M's shape, three steps each
    python -m benchmarks.memory --tiny     # anywhere: a smoke test of the command, on the CPU

Each run is `python -m trainers.grpo` in a process of its own, with random weights: such a policy never ends a reply, so
episodes are as long as they may be: what the estimate is of. The peak is what torch counts on the GPU (tensors, and
reserved with cached blocks), on a CPU the largest resident size, which also holds Python and what no estimate can know;
there the ratio says little. Target on a GPU: estimate / reserved between 0.8 and 1.25.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from agents.models.loading import QUICKSTART

SHELL = ["--tasks", "generated:quickstart?n=200&seed=1", "--max_turn_tokens", "64", "--prompt_style", "compact"]
QUESTIONS = ["--env", "GSM8K-v0", "--tasks", "gsm8k:sample", "--tools", "false", "--max_turn_tokens", "256",
             "--prompt_style", "compact"]  # fmt: skip
SMALL = ["--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "4"]
LARGE = ["--per_device_train_batch_size", "8", "--gradient_accumulation_steps", "32"]
RUNS = {
    "shell, LoRA, 32 rows": [*SHELL, "--adapter", "lora", *SMALL],
    "shell, LoRA, 256 rows": [*SHELL, "--adapter", "lora", *LARGE],
    "shell, all weights, 32 rows": [*SHELL, "--adapter", "none", *SMALL],
    "questions, LoRA, 32 rows": [*QUESTIONS, "--adapter", "lora", *SMALL],
    "questions, LoRA, 256 rows": [*QUESTIONS, "--adapter", "lora", *LARGE],
    "questions, all weights, 256 rows": [*QUESTIONS, "--adapter", "none", *LARGE],
}
ALL = ["--num_generations", "8", "--held_out", "none", "--confirm", "0", "--save_strategy", "no", "--warmup_steps", "0",
       "--guards", "none", "--save_trajectories", "false", "--entropy_coef", "0.001"]  # fmt: skip
TINY = ["--use_cpu", "true", "--num_generations", "2", "--per_device_train_batch_size", "2", "--slots", "4",
        "--gradient_accumulation_steps", "1", "--max_turn_tokens", "8", "--max_turns", "2"]  # fmt: skip


def random_model(folder: Path, *, tiny: bool) -> None:
    """Random weights of SmolLM2-135M's shape (or hardly any), with the tokenizer that ships."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "vocab_size": 4096} if tiny else {
             "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
             "num_key_value_heads": 3, "vocab_size": 49152}  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(QUICKSTART)
    config = LlamaConfig(
        **sizes, max_position_embeddings=8192, rope_theta=100000.0, rms_norm_eps=1e-5, tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id, bos_token_id=None,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def measure(model: Path, folder: Path, args: list[str]) -> dict[str, object]:
    """`peak_memory` of a run."""
    command = [sys.executable, "-m", "trainers.grpo", "--model_name_or_path", str(model), "--output_dir", str(folder)]
    done = subprocess.run([*command, *args], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(args)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    found: dict[str, object] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))["peak_memory"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--only", default="", help="runs whose name has this text")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("more", nargs="*", help="settings for all runs, after --: -- --device_preset none")
    args = parser.parse_args()
    if not args.tiny and not torch.cuda.is_available():
        print("memory: no CUDA device here (--tiny runs anywhere), nothing measured")
        return
    print(f"{'run':34} {'estimate':>9} {'tensors':>9} {'reserved':>9}  estimate / peak (GiB)")
    with tempfile.TemporaryDirectory() as base:
        model = Path(base) / "model"
        random_model(model, tiny=args.tiny)
        for name, settings in RUNS.items():
            if args.only not in name:
                continue
            settings = [*settings, *ALL, "--max_steps", str(args.steps), *(TINY if args.tiny else []), *args.more]
            peak = measure(model, Path(base) / name.replace(" ", "_"), settings)
            estimated, used, reserved = (float(str(peak[key] or "nan")) for key in ("estimated", "used", "reserved"))
            ratio = estimated / (used if args.tiny else reserved)
            numbers = " ".join(f"{number / 2**30:9.2f}" for number in (estimated, used, reserved))
            print(f"{name:34} {numbers}  {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
