"""The same played episodes for our trainer and for TRL's own, so that only what comes after them can differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from trl import GRPOTrainer

from agents.rollout import RolloutResult, Timing
from tests.trainers.toy import NotingTrainer, ToyEnv, make_config, make_model, make_task, make_tokenizer, make_trainer
from trainers.construction import pool_dataset
from trainers.gigpo import GiGPOTrainer, episode_reward
from trainers.rollouts.rules import Draw, Played, as_completion


def record(tmp_path, batches: int, rows: int = 8) -> list[Played]:
    """Episodes of the toy, `rows` of them per batch, K = 4 of a task."""
    trainer = make_trainer(tmp_path)
    tasks = [f"toy-{row // 4 % 4}" for row in range(rows)]
    end = make_tokenizer().eos_token_id
    out = [trainer.rollouts.play(Draw(tasks, 0, step), end_id=end) for step in range(batches)]
    trainer.close()
    for played in out:
        for row, episode in enumerate(played.episodes):  # of different lengths, as real ones are
            episode.turns = episode.turns[: 1 + row % 3]
            played.flats[row] = as_completion(episode, end)
    return out


def columns(played: Played) -> dict[str, list[Any]]:
    """Played episodes in TRL's form."""
    return {
        "prompt_ids": [episode.prompt_ids for episode in played.episodes],
        "completion_ids": [flat.ids for flat in played.flats],
        "logprobs": [flat.logprobs for flat in played.flats],
        "env_mask": [flat.mask for flat in played.flats],
        "episode_reward": [episode.reward for episode in played.episodes],
    }


def replay(trainer: GiGPOTrainer, batches: Sequence[Played]) -> GiGPOTrainer:
    """The trainer, which now plays `batches` one after the other."""
    left: Iterator[Played] = iter(batches)
    trainer.rollouts.play = lambda draw, *, end_id: next(left)  # type: ignore[method-assign]
    return trainer


class StockTrainer(GRPOTrainer):
    """TRL's trainer; keeps what it logged."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.logged: list[dict[str, Any]] = []
        super().__init__(*args, **kwargs)

    def log(self, logs, start_time=None):
        super().log(logs, start_time)
        self.logged.append(dict(logs))

    def create_model_card(self, *args, **kwargs):
        pass


def make_stock(tmp_path, batches: Sequence[Played], *, model=None, **changes: Any) -> StockTrainer:
    """TRL's own trainer on the toy policy, fed with `batches`."""
    tokenizer = make_tokenizer()
    config = make_config(tmp_path, **changes)
    left = iter(batches)
    return StockTrainer(
        model=model or make_model(tokenizer),
        args=config,
        processing_class=tokenizer,
        reward_funcs=[episode_reward],
        rollout_func=lambda prompts, trainer: columns(next(left)),
        train_dataset=pool_dataset([make_task(i) for i in range(4)], config),
    )


def make_scripted(tmp_path, episodes: list, *, peft_config=None, model=None, **changes: Any) -> NotingTrainer:
    """Our trainer, whose every batch is `episodes`."""
    tokenizer = make_tokenizer()
    trainer = NotingTrainer(
        model or make_model(tokenizer),
        make_config(tmp_path, per_device_train_batch_size=len(episodes), **changes),
        tokenizer,
        [make_task(i) for i in range(4)],
        ToyEnv,
        peft_config=peft_config,
    )

    def play(draw: Draw, *, end_id: int) -> Played:
        flats = [as_completion(episode, end_id) for episode in episodes]
        result = RolloutResult(episodes, Timing())
        return Played(episodes, flats, result, {}, result)

    trainer.rollouts.play = play  # type: ignore[method-assign]
    return trainer
