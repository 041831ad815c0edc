"""The rules of a run's rollouts, and what they need of the pool and of the processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.trajectory import Trajectory
from tasks.task import Task
from trainers.rollouts.adaptive import Adaptive
from trainers.rollouts.curriculum import Curriculum, load_curriculum
from trainers.rollouts.errors import RulesError
from trainers.rollouts.flat import weightless

if TYPE_CHECKING:
    from trainers.config import GiGPOConfig


@dataclass(frozen=True, slots=True)
class Rules:
    """Which attempts are made. The default plays one episode per row, of the row's task.

    Attributes:
        adaptive: More attempts than K where the first K did not show both outcomes.
        refill_rounds: How often flat groups are replaced by groups of other tasks.
        weightless: Whether credit gives every token of these K episodes the weight 0.
        curriculum: Names the tasks; the rows' own do not count then.
        groups_per_draw: Groups of one generation, over all processes.
    """

    adaptive: Adaptive | None = None
    refill_rounds: int = 0
    weightless: Callable[[Sequence[Trajectory]], bool] | None = None
    curriculum: Curriculum | None = None
    groups_per_draw: int = 0

    @property
    def choose(self) -> bool:
        """Whether more may be played than is trained on."""
        return self.adaptive is not None or self.refill_rounds > 0


def curriculum_of(config: GiGPOConfig, pool: Sequence[Task]) -> Curriculum | None:
    """The curriculum of a run, fitted to its pool; `None` where there is none.

    Raises:
        RulesError: Its file cannot be used.
    """
    if not config.curriculum:
        return None
    allowed = config.curriculum_allow_missing
    return load_curriculum(
        config.curriculum, pool, order=config.curriculum_order, allow_missing=allowed, seed=config.seed
    )


def make_rules(config: GiGPOConfig, pool: Sequence[Task], processes: int) -> Rules:
    """The rules of a run.

    Raises:
        RulesError: One line per thing that they need and do not have.
    """
    credit, signal = config, config.turn_signal
    cut = bool(config.mask_truncated_completions)
    rules = Rules(
        adaptive=config.adaptive_rule(),
        refill_rounds=config.refill_rounds,
        weightless=lambda episodes: weightless(episodes, credit, signal, mask_truncated=cut),
        curriculum=curriculum_of(config, pool),
        groups_per_draw=config.generation_batch_size // config.num_generations,
    )
    drawn = len(rules.curriculum.order if rules.curriculum else pool)
    rows = config.generation_batch_size // processes
    problems = rule_problems(rules, pool=drawn, processes=processes, rows=rows, group_size=config.num_generations)
    if found := list(problems):
        raise RulesError("\n".join(found))
    return rules


def rule_problems(rules: Rules, *, pool: int, processes: int, rows: int, group_size: int) -> Iterator[str]:
    """What the rules need and do not have, one line each.

    Args:
        rules: Of the run.
        pool: Tasks that are drawn from.
        processes: Processes that train.
        rows: Rows of one generation on each of them.
        group_size: K.
    """
    if rules.choose and rows % group_size:
        yield (
            f"adaptive sampling and refill need whole groups on a process: {rows} episodes on each of {processes} "
            f"processes are no multiple of {group_size} attempts. Choose per_device_train_batch_size x "
            "steps_per_generation so that they are, or switch both off."
        )
    groups = processes * rows // group_size
    if rules.refill_rounds and pool <= groups:
        yield (
            f"refill_rounds={rules.refill_rounds}: a generation already draws all {pool} tasks of the pool "
            f"({groups} groups), so no other task is left. Give more tasks, or leave it at 0."
        )
