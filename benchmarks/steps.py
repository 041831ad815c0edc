"""Seconds of a training step on a GPU: this checkout beside an older one, and beside TRL's own GRPOTrainer.

    python -m benchmarks.steps --old ../turngym-0.6.0     # the same command line in both, one after the other
    python -m benchmarks.steps --stock                    # question sets: one reply of 256 ids, no tools
    python -m benchmarks.steps --wide                     # 256 rows: how busy the GPU is, also with overlap

Random weights of SmolLM2-135M's shape. In shell tasks every eleventh id ends a reply, so replies have the length of
those of SmolLM2 after its warm start, and each episode takes all its turns; an entropy term keeps rows in the loss
whose group has no signal (all of them: nothing is solved). In questions no reply ends before its cap. The first steps
compile and capture, and are not counted. Target: 3 x the steps of 0.6.0; 6 x the tokens of stock at twice its memory at
most; with 256 rows the GPU busy for 70 % of rollout and learning; a first step of 15 s at most.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from transformers import GenerationConfig

from benchmarks.memory import random_model

SHELL = ["--config", "smollm2", "--entropy_coef", "0.001"]
QUESTIONS = ["--env", "GSM8K-v0", "--tasks", "gsm8k:sample", "--tools", "false", "--max_turns", "1",
             "--max_turn_tokens", "256", "--adapter", "lora", "--per_device_train_batch_size", "8",
             "--gradient_accumulation_steps", "8", "--entropy_coef", "0.001", "--prompt_style", "compact"]  # fmt: skip
ALL = ["--num_generations", "8", "--held_out", "none", "--save_strategy", "no", "--warmup_steps", "0"]
PASSES = ("12288", "4096", "2048")
"""Tokens of a learning pass: wide ones, those of `auto` where passes are replayed, and fewer, for memory."""
ENDING = 11
"""Ids of a reply on average."""
ROOT = Path(__file__).resolve().parents[1]


def ends_often(model: Path) -> None:
    """Have every eleventh id end a reply."""
    config = GenerationConfig.from_pretrained(model)
    config.eos_token_id = [id for id in range(49152) if id % ENDING == 7]
    config.save_pretrained(model)


def ours(code: Path, model: Path, folder: Path, args: list[str], steps: int) -> dict[str, Any]:
    """A run of one checkout."""
    command = [sys.executable, "-m", "trainers.grpo", *args, *ALL, "--model_name_or_path", str(model)]
    command += ["--output_dir", str(folder), "--max_steps", str(steps)]
    command += ["--confirm", "0"] if code == ROOT else []  # 0.6.0 knew no confirmation
    path = os.pathsep.join([str(code), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        command, cwd=code, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(
            f"{' '.join(args)} in {code}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}"
        )
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    walls = [line["wall_seconds"] for line in lines if "loss" in line]
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    timing = summary["timing"]
    per_step = timing["sampled_tokens"] / timing["steps"]
    return {
        "seconds": [walls[0], *(b - a for a, b in zip(walls, walls[1:], strict=False))],
        "tokens": [per_step] * len(walls),
        "peak": (summary.get("peak_memory") or {}).get("reserved"),
        "timing": timing,
        "said": [line for line in done.stdout.splitlines() if "device preset" in line],
    }


def stock(model: Path, steps: int) -> dict[str, Any]:
    """A run of TRL's trainer."""
    command = [sys.executable, "-m", "benchmarks.peers.stock_grpo", str(model), str(steps), "64", "256"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"stock: exit code {done.returncode}\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def show(name: str, run: dict[str, Any], drop: int) -> float:
    """Print a run; returns its seconds per step."""
    late = run["seconds"][drop:] or run["seconds"]
    median, tokens = statistics.median(late), run["tokens"][0]
    peak = "peak unknown" if run["peak"] is None else f"peak {run['peak'] / 2**30:.1f} GiB"
    print(
        f"{name:28} {median:6.2f} s a step ({min(late):.2f} to {max(late):.2f}, {len(late)} steps; the first "
        f"{run['seconds'][0]:.1f} s from the start), {tokens / median:,.0f} tok/s, {peak}",
        flush=True,
    )
    for line in run.get("said", []):
        print(f"  {line.strip()}")
    if timing := run.get("timing"):
        parts = {key: round(value, 2) for key, value in timing["seconds_per_step"].items()}
        print(f"  seconds a step (all steps): {parts}; steady: {timing.get('steady')}", flush=True)
    return median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="another checkout, for the shell tasks")
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--drop", type=int, default=4, help="steps at the beginning that are not counted")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("steps: no CUDA device here, nothing measured")
        return
    with tempfile.TemporaryDirectory() as base:
        model, ending, at = Path(base) / "model", Path(base) / "ending", Path(base)
        random_model(model, tiny=False)
        random_model(ending, tiny=False)
        ends_often(ending)
        if args.old:
            new = show("shell, 32 rows", ours(ROOT, ending, at / "new", SHELL, args.steps), args.drop)
            old = ours(args.old.resolve(), ending, at / "old", SHELL, max(args.drop + 3, args.steps // 2))
            print(f"  steps per second against the older: {show('  the older checkout', old, args.drop) / new:.2f} x")
        if args.wide:
            wide = [*SHELL, "--gradient_accumulation_steps", "32", "--slots", "256"]
            alone = show("shell, 256 rows", ours(ROOT, ending, at / "wide", wide, args.steps), args.drop)
            ahead = ours(ROOT, ending, at / "overlap", [*wide, "--overlap", "1"], args.steps)
            print(f"  steps per second against that: {alone / show('  overlap 1', ahead, args.drop):.2f} x")
        if args.stock:
            peer = stock(model, 3)
            theirs = show("questions, 64 rows: stock TRL", peer, 1)
            for tokens in PASSES:
                more = [*QUESTIONS, "--micro_batch_tokens", tokens]
                run = ours(ROOT, model, at / f"questions-{tokens}", more, args.steps)
                mine = show(f"  ours, passes of {tokens}", run, args.drop)
                rate = (run["tokens"][0] / mine) / (peer["tokens"][0] / theirs)
                print(f"  tokens per second against stock: {rate:.2f} x, memory {run['peak'] / peer['peak']:.2f} x")


if __name__ == "__main__":
    main()
