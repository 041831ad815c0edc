"""An environment whose episodes end as a test says, and rollouts and trainers on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envs.conversation import StopReason
from sandboxes.sandbox import SandboxError
from tests.trainers.toy import NotingTrainer, ToyEnv, make_config, make_model, make_task, make_tokenizer
from trainers.gigpo import GiGPOTrainer
from trainers.rollouts.play import Rollouts
from trainers.rollouts.rules import Rules
from trainers.rollouts.samplers import make_sampler

Plan = Callable[[str, int], float | None]
"""Task id and seed of an attempt to its reward (passed: above 0); `None` breaks the machinery."""


def planted(plan: Plan, *, signals: bool = False, turns: int = 1) -> type[ToyEnv]:
    """An environment class that follows `plan`; with `signals` its turns earn something by themselves."""

    class Planted(ToyEnv):
        max_turns = turns

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None):
            assert options is not None and seed is not None
            self.reward = plan(options["task"].id, seed)
            if self.reward is None:
                raise SandboxError("planted")
            return super().reset(seed=seed, options=options)

        def step(self, reply: str):
            observation, _, truncated, done, info = super().step(reply)
            if not signals:
                info["signal"] = None
            return observation, self.reward if done else 0.0, truncated, done, info

        def _end(self, reason: StopReason) -> dict[str, Any]:
            return super()._end(reason) | {"passed": self.reward > 0, "rate": float(self.reward > 0)}

    return Planted


def make_rollouts(plan: Plan, *, tasks: int = 6, k: int = 4, rules: Rules | None = None, **env: Any) -> Rollouts:
    """Rollouts of a tiny model, replies of one id."""
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    pool = [make_task(i) for i in range(tasks)]
    return Rollouts(
        lambda: make_sampler(model, tokenizer, [tokenizer.eos_token_id], sampler="in_process", sample_dtype="same"),
        planted(plan, **env),
        {task.id: task for task in pool},
        group_size=k,
        temperature=1.0,
        seed=0,
        slots=8,
        workers=1,
        ahead=0,
        max_turn_tokens=2,
        rules=rules,
    )


def make_trainer(tmp_path, plan: Plan, *, tasks: int = 6, model=None, env=None, **changes: Any) -> GiGPOTrainer:
    """A trainer on the planted environment."""
    tokenizer = make_tokenizer()
    return NotingTrainer(
        model or make_model(tokenizer),
        make_config(tmp_path, **changes),
        tokenizer,
        [make_task(i) for i in range(tasks)],
        planted(plan, **(env or {})),
        slots=8,
        workers=1,
        max_turn_tokens=2,
    )
