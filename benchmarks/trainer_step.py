"""A step of GiGPOTrainer against one of TRL's GRPOTrainer: same trajectories (replayed), same model, pair by pair.

    python -m benchmarks.trainer_step                  # the shapes of the quickstart
    python -m benchmarks.trainer_step --size toy       # a policy of 0.1 M parameters: our part weighs most
    python -m benchmarks.trainer_step --pairs 40

A step is what `train` does between two rollouts: padding, rewards, credit, loss, gradient, clipping, update, log. No
episode is played. The steps of a pair follow each other, the order alternates, and what is compared is CPU time of one
thread, so a busy machine adds noise to both. Our trainer has all its credit and metrics and all guards on. Target:
median <= 1.03.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOTrainer

from agents.rollout import RolloutResult, Timing
from agents.trajectory import Trajectory, Turn
from tasks.task import Task
from trainers.construction import pool_dataset
from trainers.gigpo import GiGPOTrainer, episode_reward
from trainers.guards import Watch
from trainers.rollouts.rules import Played, as_completion
from trainers.run.callback import GuardCallback
from trainers.settings import GiGPOConfig


@dataclass(frozen=True)
class Size:
    """Shapes of a model and of a step.

    Attributes:
        turn_ids: Sampled ids of a turn; `context_ids` those of the environment before it.
    """

    width: int
    layers: int
    vocabulary: int
    episodes: int
    turns: int
    prompt_ids: int
    turn_ids: int
    context_ids: int


SIZES = {
    "quickstart": Size(128, 4, 1300, 32, 4, 22, 6, 10),
    "toy": Size(64, 2, 260, 8, 3, 40, 12, 16),
}


def make_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    words = {f"w{i}": i for i in range(vocabulary - 2)} | {"<end>": vocabulary - 2, "<pad>": vocabulary - 1}
    core = Tokenizer(models.WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<end>", pad_token="<pad>")


def make_model(size: Size) -> LlamaForCausalLM:
    torch.manual_seed(0)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=size.vocabulary,
            hidden_size=size.width,
            intermediate_size=3 * size.width,
            num_hidden_layers=size.layers,
            num_attention_heads=4,
            num_key_value_heads=4,
            max_position_embeddings=2048,
            eos_token_id=size.vocabulary - 2,
            pad_token_id=size.vocabulary - 1,
        )
    )


def make_episodes(size: Size, seed: int = 0) -> list[Trajectory]:
    """Episodes of uneven length with signals, states and a grade, as a rollout returns them."""
    draw = np.random.default_rng(seed)
    ids = lambda n: draw.integers(3, size.vocabulary - 2, n).tolist()  # noqa: E731
    out = []
    for i in range(size.episodes):
        turns = []
        for t in range(size.turns - int(draw.integers(2))):
            n = size.turn_ids + int(draw.integers(-2, 3))
            turn = Turn(
                index=t,
                context_ids=ids(size.context_ids) if t else [],
                ids=ids(n),
                logprobs=(-draw.random(n)).tolist(),
                entropies=draw.random(n).tolist(),
                forced=[False] * n,
                finish=None,
                reply="",
                action="command",
                exit_code=0,
                signal=float(draw.integers(3)) / 3,
                anchor=str(draw.integers(3)),
            )
            turns.append(turn)
        reward = float(draw.random())
        grade = [{"name": "a", "kind": "file_exists", "verdict": "pass", "score": 1.0, "detail": ""}] * 3
        record = Trajectory(f"task-{i // 4}", "", i % 4, i, ids(size.prompt_ids), turns, "submitted", reward)
        record.passed, record.rate, record.assertions = reward > 0.5, reward, grade
        out.append(record)
    return out


def make_trainers(size: Size, folder: str) -> dict[str, Any]:
    """Both trainers, whose rollouts are the same record each time."""
    episodes = make_episodes(size)
    end = size.vocabulary - 2
    result = RolloutResult(episodes, Timing())
    played = Played(episodes, [as_completion(e, end) for e in episodes], result, {}, result)
    columns = {
        "prompt_ids": [e.prompt_ids for e in episodes],
        "completion_ids": [flat.ids for flat in played.flats],
        "logprobs": [flat.logprobs for flat in played.flats],
        "env_mask": [flat.mask for flat in played.flats],
        "episode_reward": [e.reward for e in episodes],
    }
    config = GiGPOConfig(
        output_dir=folder,
        num_generations=4,
        per_device_train_batch_size=size.episodes,
        max_steps=1000,
        eval_strategy="no",
        eval_on_start=False,
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    task = {"intent": "a task", "assertions": [{"kind": "file_exists", "path": "a.txt"}]}
    tasks = [Task.model_validate({**task, "id": f"task-{i}"}) for i in range(size.episodes // 4)]
    tokenizer = make_tokenizer(size.vocabulary)

    def no_environment() -> Any:
        raise RuntimeError("nothing is played here")

    guards = GuardCallback(Watch())
    ours = GiGPOTrainer(make_model(size), config, tokenizer, tasks, no_environment, callbacks=[guards])
    ours.rollouts.play = lambda draw, *, end_id: played  # type: ignore[method-assign]
    stock = GRPOTrainer(
        model=make_model(size),
        args=config,
        processing_class=tokenizer,
        reward_funcs=[episode_reward],
        rollout_func=lambda prompts, trainer: dict(columns),
        train_dataset=pool_dataset(tasks, config),
    )
    return {"stock": stock, "ours": ours}


class Stepper:
    """One trainer, a step at a time."""

    def __init__(self, trainer: Any) -> None:
        self.trainer = trainer
        self.rows = next(iter(trainer.get_train_dataloader()))
        trainer.create_optimizer()
        trainer.callback_handler.optimizer = trainer.optimizer
        trainer.current_gradient_accumulation_steps = 1
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.model.train()

    def step(self) -> float:
        """CPU seconds of one step."""
        trainer, rows = self.trainer, [dict(row) for row in self.rows]
        start = time.process_time()
        tell, state, control = trainer.callback_handler, trainer.state, trainer.control
        tell.on_step_begin(trainer.args, state, control)
        loss = trainer.training_step(trainer.model, rows, None)
        norm = torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), trainer.args.max_grad_norm)
        tell.on_pre_optimizer_step(trainer.args, state, control)
        trainer.optimizer.step()
        trainer.model.zero_grad()
        trainer.state.global_step += 1
        tell.on_step_end(trainer.args, state, control)
        trainer.log({"loss": loss.item(), "grad_norm": norm.item()})
        return time.process_time() - start


def interval(values: list[float], seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval of the median."""
    draw = np.random.default_rng(seed)
    medians = np.median(draw.choice(values, (2000, len(values))), axis=1)
    return float(np.quantile(medians, 0.025)), float(np.quantile(medians, 0.975))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="quickstart")
    parser.add_argument("--pairs", type=int, default=24)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        steppers = {name: Stepper(trainer) for name, trainer in make_trainers(SIZES[args.size], folder).items()}
        for stepper in steppers.values():
            for _ in range(3):
                stepper.step()
        ratios = []
        print(f"{args.size}: {SIZES[args.size]}\npair    stock ms    ours ms   ratio")
        for pair in range(args.pairs):
            order = ["stock", "ours"] if pair % 2 else ["ours", "stock"]
            seconds = {name: steppers[name].step() for name in order}
            ratios.append(seconds["ours"] / seconds["stock"])
            print(f"{pair:4} {1e3 * seconds['stock']:11.2f} {1e3 * seconds['ours']:10.2f} {ratios[-1]:7.3f}")
        low, high = interval(ratios)
        print(
            f"median ratio {statistics.median(ratios):.3f} (95 % interval {low:.3f} to {high:.3f}, {len(ratios)} pairs)"
        )


if __name__ == "__main__":
    main()
