"""The episodes of a training step: who acts, what is played, and its form for TRL.

The trainer holds the weights; `Rollouts` holds the policy around them, the engine with its environments, and the rule
that turns the rows of a generation batch into played episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from agents.policy import Policy, Sampling
from agents.rollout import Job, RolloutEngine, RolloutResult, RolloutState
from agents.seeds import derive_seed
from agents.t2po import T2PO
from agents.trajectory import Flat, Trajectory
from envs.conversation import ConversationEnv
from tasks.task import Task
from trainers.credit import NO_TURN


@dataclass(frozen=True, slots=True)
class Draw:
    """The rows of this process of one generation batch.

    Attributes:
        task_ids: One per row; the K rows of a task are side by side, and may continue on the next process.
        offset: Place of the first row among the rows of all processes.
        micro_step: Micro-steps taken before, the same on every process: part of every seed.
    """

    task_ids: Sequence[str]
    offset: int
    micro_step: int


@dataclass(frozen=True, slots=True)
class Played:
    """The episodes of one draw, in the order of its rows.

    Attributes:
        episodes: One per row.
        flats: The same as completions; one that does not count has an empty mask.
        result: All that was played, for metrics and records.
        metrics: Figures of the rule that chose, by name.
    """

    episodes: list[Trajectory]
    flats: list[Flat]
    result: RolloutResult
    metrics: dict[str, float]


class Rollouts:
    """Plays episodes with the weights as they are.

    Args:
        policy: Makes the policy at first use, T2PO wrapper included.
        make_env: Opens one environment; called once per slot.
        pool: Tasks by id.
        group_size: K.
        temperature: Of the samples that are trained on.
        seed: Of the run.
        slots: Episodes in flight at a time.
        workers: Threads that step environments.
        ahead: Tasks laid out while the policy decodes.
        max_turn_tokens: Cap on one reply.
        on_round: Called after each round of a rollout with its name (`rollout` or `held-out`) and how far it is.
    """

    def __init__(
        self,
        policy: Callable[[], Policy],
        make_env: Callable[[], ConversationEnv],
        pool: dict[str, Task],
        *,
        group_size: int,
        temperature: float,
        seed: int,
        slots: int,
        workers: int,
        ahead: int,
        max_turn_tokens: int,
        on_round: Callable[[str, RolloutState], None] | None = None,
    ) -> None:
        self._make_policy, self._make_env, self._pool = policy, make_env, pool
        self._group_size, self._seed = group_size, seed
        self._sampling = Sampling(temperature=temperature, max_tokens=max_turn_tokens)
        self._slots, self._workers, self._ahead = slots, workers, ahead
        self._on_round = on_round
        self._policy: Policy | None = None
        self._engine: RolloutEngine | None = None

    @property
    def policy(self) -> Policy:
        """Who acts."""
        if self._policy is None:
            self._policy = self._make_policy()
        return self._policy

    @property
    def engine(self) -> RolloutEngine:
        """Plays episodes; made at first use, closed by `close`."""
        if self._engine is None:
            self._engine = RolloutEngine(
                self.policy, self._make_env, slots=self._slots, workers=self._workers, ahead=self._ahead
            )
        return self._engine

    @property
    def exact(self) -> bool:
        """True when log-probabilities are those of the weights being trained, so that the first ratio is 1."""
        return True

    def run(self, jobs: Sequence[Job], sampling: Sampling, *, training: bool) -> RolloutResult:
        """Play `jobs`; in a measurement T2PO keeps its turn cap only, unless asked."""
        watch = partial(self._on_round, "rollout" if training else "held-out") if self._on_round else None
        if isinstance(self.policy, T2PO) and not training:
            with self.policy.evaluation():
                return self.engine.run(jobs, sampling, on_round=watch)
        return self.engine.run(jobs, sampling, on_round=watch)

    def play(self, draw: Draw, *, end_id: int) -> Played:
        """One episode per row. `end_id` stands in where an episode sampled nothing (TRL needs one token)."""
        jobs = []
        for i, task_id in enumerate(draw.task_ids):
            group, attempt = divmod(draw.offset + i, self._group_size)
            seed = derive_seed(self._seed, "train", draw.micro_step, group, attempt)
            jobs.append(Job(self._pool[task_id], attempt, seed))
        result = self.run(jobs, self._sampling, training=True)
        episodes = result.trajectories
        return Played(episodes, [as_completion(e, end_id) for e in episodes], result, {})

    def state_dict(self) -> dict[str, Any]:
        """State of the rule that chooses, JSON-able: part of every checkpoint."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from the state of a checkpoint."""

    def close(self) -> None:
        """End the environments and their sandboxes. Idempotent."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None


def as_completion(episode: Trajectory, end_id: int) -> Flat:
    """The episode as a completion; one that does not count keeps one token at least, and no token is trained."""
    flat = episode.flat()
    if not flat.ids:
        flat.ids, flat.logprobs, flat.mask, flat.turn_ids, flat.entropies = [end_id], [0.0], [0], [NO_TURN], [0.0]
    if episode.reward is None:
        flat.mask = [0] * len(flat.mask)
        flat.turn_ids = [NO_TURN] * len(flat.turn_ids)
    return flat
