"""Twenty short runs that are well: the guards must find nothing in any of them.

    python -m benchmarks.healthy                   # 20 runs, some 15 minutes on two cores
    python -m benchmarks.healthy --runs 3          # one of each kind
    python -m benchmarks.healthy --policy FOLDER   # keep the policy of the questions there, and use it again

Three kinds, each with seeds of its own: the quickstart; questions in one turn (a policy that a minute or two of
supervised training have taught to answer them, three times in four with the right number); and the quickstart with the
T2PO wrapper; with an adapter, a KL term or other settings now and then. Every run is one of `python -m trainers.grpo`
with all guards on; a finding of any severity counts, notes too. Exit code 1 where there is one.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from envs.questions import GSM8KEnv
from tasks.sources import load_tasks
from trainers import grpo, sft
from trainers.grpo import EXIT_CODES
from trainers.guards import GUARDS
from trainers.run.summary import Stopped

COMMON = ["--use_cpu", "true", "--eval_steps", "6", "--save_steps", "12", "--held_out_greedy", "false",
          "--per_device_train_batch_size", "16", "--slots", "32"]  # fmt: skip
QUICKSTART = ["--max_steps", "12", "--held_out", "generated:quickstart?n=32&seed=2"]
T2PO = [
    *QUICKSTART, "--turn_resample", "true", "--turn_resample_warmup", "64", "--turn_resample_rate", "0.15",
]  # fmt: skip
QUESTIONS = [
    "--env", "GSM8K-v0", "--tools", "false", "--prompt_style", "compact", "--reward", "binary", "--beta_turn", "0",
    "--turn_grouping", "none", "--max_turn_tokens", "40", "--max_steps", "12",
]  # fmt: skip
VARIANTS: dict[str, tuple[list[str], ...]] = {
    "quickstart": ([], [], ["--beta", "0.01"], ["--reward", "delta"], [], ["--num_iterations", "2"], []),
    "questions": ([], [], ["--beta", "0.01"], [], ["--scale_rewards", "group"], []),
    "t2po": ([], [], ["--beta", "0.01"], ["--adapter", "lora", "--learning_rate", "1e-3"], [], [], []),
}
"""Flags of each run beside those of its kind; their number is that of its runs."""
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gus", "Hal", "Ines", "Jan")
LEGS = {"bird": 2, "duck": 2, "cat": 4, "dog": 4, "horse": 4, "cow": 4, "ant": 6, "bee": 6, "spider": 8, "crab": 10}


def questions(seed: int) -> Iterator[tuple[str, int]]:
    """Question and answer; easy enough to be learned in a minute by a model of a million parameters."""
    draw = random.Random(seed)
    while True:
        one, two, animal = draw.choice(NAMES), draw.choice(NAMES), draw.choice(tuple(LEGS))
        yield f"{one} asks {two}: how many legs does a {animal} have?", LEGS[animal]


def write_questions(path: Path, asked: Iterable[tuple[str, int]]) -> None:
    """Questions in GSM8K's public layout."""
    rows = ({"question": text, "answer": f"{right}\n#### {right}"} for text, right in asked)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def warm_start(folder: Path, out: Path, steps: int) -> None:
    """The quickstart policy after supervised training on such questions; a share of the answers is wrong."""
    tasks = folder / "shown.jsonl"
    asked = list(islice(questions(1), 32 * steps))
    write_questions(tasks, asked)
    env = GSM8KEnv(load_tasks(f"gsm8k:{tasks}"), tools=False, prompt_style="compact")
    draw = random.Random(0)
    with (folder / "messages.jsonl").open("w", encoding="utf-8") as file:
        for task, (_, right) in zip(env.tasks, asked, strict=True):
            shown, _ = env.reset(seed=0, options={"task": task})
            said = [{"role": "system", "content": env.system_prompt}] * bool(env.system_prompt)
            said.append({"role": "user", "content": shown})
            answer = right if draw.random() < 0.75 else draw.choice(list(LEGS.values()))
            said.append({"role": "assistant", "content": f"#### {answer}"})
            file.write(json.dumps({"messages": said}) + "\n")
    run(sft.main, [
        "--model_name_or_path", "quickstart", "--data", str(folder / "messages.jsonl"), "--output_dir", str(out),
        "--epochs", "1", "--batch_tokens", "3000", "--learning_rate", "1e-3", "--warmup_steps", "10",
        "--context_weight", "0", "--save_dtype", "float32",
    ])  # fmt: skip


def run(main: Callable[[list[str]], int], flags: list[str]) -> None:
    """Call an entry point; what it printed is shown where it fails."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = main(flags)
    if code not in (0, EXIT_CODES[Stopped.GUARD]):
        raise SystemExit(f"{said.getvalue()[-3000:]}\nended with {code}: {' '.join(flags)}")


def read_findings(path: Path) -> list[dict[str, Any]]:
    """What guards found in a run; one without the file has none."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def plan(runs: int) -> list[tuple[str, int, list[str]]]:
    """Kind, seed and further flags of each run, the kinds in turn."""
    width = max(len(variants) for variants in VARIANTS.values())
    rows = [(kind, i, flags[i]) for i in range(width) for kind, flags in VARIANTS.items() if i < len(flags)]
    return rows[:runs]


def main(argv: list[str] | None = None) -> int:
    """Play all runs, print the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="how many of the list")
    parser.add_argument("--kind", choices=VARIANTS, help="only the runs of this kind")
    parser.add_argument("--steps", type=int, default=60, help="of the supervised training on questions")
    parser.add_argument("--policy", type=Path, help="folder of the policy of the questions; made where it is missing")
    args = parser.parse_args(argv)
    total = played = 0
    print(f"{len(GUARDS)} guards on in each run\n")
    print(f"{'run':>3} {'kind':<11} {'seed':>4} {'steps':>5} {'episodes':>8} {'pass start':>10} {'end':>5} "
          f"{'seconds':>7} {'findings':>8}  flags")  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        warnings.simplefilter("ignore")
        policy = args.policy or folder / "policy"
        if not policy.exists():
            warm_start(folder, policy, args.steps)
        asked = list(dict(islice(questions(2), 800)).items())  # each text once, so that no side knows the other's
        write_questions(folder / "held_out.jsonl", asked[:32])
        write_questions(folder / "pool.jsonl", asked[32:])
        kinds = {
            "quickstart": QUICKSTART,
            "questions": [
                *QUESTIONS, "--model_name_or_path", str(policy), "--tasks", f"gsm8k:{folder / 'pool.jsonl'}",
                "--held_out", f"gsm8k:{folder / 'held_out.jsonl'}",
            ],
            "t2po": T2PO,
        }  # fmt: skip
        for number, (kind, seed, flags) in enumerate(plan(args.runs), 1):
            if args.kind not in (None, kind):
                continue
            played += 1
            out, clock = folder / f"run-{number}", time.perf_counter()
            run(grpo.main, [*COMMON, *kinds[kind], *flags, "--seed", str(seed), "--output_dir", str(out)])
            steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
            steps = [step for step in steps if "reward" in step]
            findings = read_findings(out / "guards.jsonl")
            total += len(findings)
            print(f"{number:>3} {kind:<11} {seed:>4} {len(steps):>5} {sum(s['env/episodes'] for s in steps):>8.0f} "
                  f"{steps[0]['env/pass_rate']:>10.0%} {steps[-1]['env/pass_rate']:>5.0%} "
                  f"{time.perf_counter() - clock:>7.0f} {len(findings):>8}  {' '.join(flags)}", flush=True)  # fmt: skip
            for finding in findings:
                print(f"      {finding['severity']} {finding['guard']} (step {finding['step']}): {finding['message']}")
    print(f"\n{total} findings in {played} runs")
    return int(total > 0)


if __name__ == "__main__":
    sys.exit(main())
