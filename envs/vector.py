"""Vector environments: `gymnasium.make_vec("ClawGym-v0", num_envs=8)`.

Each slot is an environment of its own on a thread of its own: a step waits for sandboxes, not for Python, so threads
run side by side and no observation crosses a process. A slot whose machinery fails is masked, and the others go on:

* its reward is NaN, never 0, so that no mean can take it in unseen;
* `truncated` is true, `terminated` false, the observation empty;
* `info["masked"]` is true there, with the cause in `info["error"]` and stop reason `infrastructure`;
* the next step (or reset) starts a new episode in a new sandbox.

A backend that cannot work on this machine at all is an error, not a mask.

Gymnasium's own modes work too (`vectorization_mode="sync"` and `"async"`); there a failing slot raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from envs.conversation import ConversationEnv, StopReason
from envs.registry import environment
from sandboxes import SandboxPool
from sandboxes.sandbox import SandboxError, SandboxUnavailable
from tasks.assertions.grade import GradeError


@dataclass(slots=True)
class Slot:
    """What one slot did in one call."""

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: dict[str, Any] = field(default_factory=dict)
    final: dict[str, Any] | None = None
    """`final_obs` and `final_info` of an episode that ended in this very step (autoreset mode `SAME_STEP`)."""

    @property
    def done(self) -> bool:
        """The episode is over."""
        return self.terminated or self.truncated


class ConversationVectorEnv(SyncVectorEnv):
    """Conversation environments side by side; see the module's text for failing slots.

    Attributes:
        envs: The environments, one a slot.
    """

    envs: list[gymnasium.Env[str, str]]

    def __init__(
        self,
        env_fns: Sequence[Callable[[], gymnasium.Env[str, str]]],
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
    ) -> None:
        """Build the environments; nothing is opened before the first `reset`.

        Args:
            env_fns: Makes each environment, with wrappers of Gymnasium around it or without.
            autoreset_mode: As in Gymnasium: `NextStep`, `SameStep` or `Disabled`.
        """
        super().__init__(env_fns, copy=False, autoreset_mode=autoreset_mode)
        self._pool = ThreadPoolExecutor(max_workers=self.num_envs, thread_name_prefix="env")
        self._pending = np.zeros(self.num_envs, dtype=np.bool_)
        self._shown = [""] * self.num_envs

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        """Start an episode in every slot.

        Args:
            seed: One seed (slot `i` gets `seed + i`), or one for each slot.
            options: As in `ConversationEnv.reset`; `task` may be a list, one for each slot. `reset_mask`, a boolean
                array, limits the reset to some slots, as in Gymnasium.
        """
        options = dict(options or {})
        mask = np.asarray(options.pop("reset_mask", np.ones(self.num_envs, dtype=np.bool_)))
        if mask.shape != (self.num_envs,) or mask.dtype != np.bool_ or not mask.any():
            raise ValueError(f"options['reset_mask'] must hold {self.num_envs} booleans, at least one of them true")
        seeds = self._spread(seed, "seed", lambda i: None if seed is None else seed + i)  # type: ignore[operator]
        task = options.get("task")
        tasks = self._spread(task, "options['task']", lambda i: task)
        chosen = [i for i in range(self.num_envs) if mask[i]]
        slots = self._all(chosen, lambda i: self._fresh(i, seeds[i], {**options, "task": tasks[i]}))
        for i, slot in zip(chosen, slots, strict=True):
            self._shown[i] = slot.observation
            self._terminations[i] = self._truncations[i] = False
            self._autoreset_envs[i] = False
            self._pending[i] = slot.done
        return self._texts(), self._infos(chosen, slots)

    def step(
        self, actions: Iterable[str]
    ) -> tuple[tuple[str, ...], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Take one reply in every slot."""
        replies = list(actions)
        if len(replies) != self.num_envs:
            raise ValueError(f"there are {self.num_envs} slots and {len(replies)} replies")
        if self.autoreset_mode is AutoresetMode.DISABLED and self._autoreset_envs.any():
            over = np.flatnonzero(self._autoreset_envs).tolist()
            raise ValueError(f"the episodes of slots {over} are over: reset them with options={{'reset_mask': ...}}")
        slots = self._all(range(self.num_envs), lambda i: self._turn(i, replies[i]))
        for i, slot in enumerate(slots):
            self._shown[i] = slot.observation
            self._rewards[i] = slot.reward
            self._terminations[i] = slot.terminated
            self._truncations[i] = slot.truncated
        self._autoreset_envs = np.logical_or(self._terminations, self._truncations)
        infos = self._infos(range(self.num_envs), slots)
        return self._texts(), self._rewards.copy(), self._terminations.copy(), self._truncations.copy(), infos

    def close_extras(self, **kwargs: Any) -> None:
        """Close every environment, then the threads: a sandbox must not outlive the thread that opened it."""
        pool = getattr(self, "_pool", None)
        if pool is not None:
            list(pool.map(lambda env: env.close(), self.envs))
            pool.shutdown()

    # -- inside -----------------------------------------------------------------------------------------------------

    def _turn(self, i: int, reply: str) -> Slot:
        if self._pending[i] or (self.autoreset_mode is AutoresetMode.NEXT_STEP and self._autoreset_envs[i]):
            slot = self._fresh(i, None, None)
            self._pending[i] = slot.done
            return slot
        try:
            observation, reward, terminated, truncated, info = self.envs[i].step(reply)
            slot = Slot(observation, float(reward), terminated, truncated, info)
        except SandboxUnavailable:
            raise
        except (SandboxError, GradeError) as error:
            slot = self._masked(i, error)
        if slot.done and self.autoreset_mode is AutoresetMode.SAME_STEP:
            after = self._fresh(i, None, None)
            self._pending[i] = after.done
            final = {"final_obs": slot.observation, "final_info": {"masked": False, **slot.info}}
            return Slot(after.observation, slot.reward, slot.terminated, slot.truncated, after.info, final)
        return slot

    def _fresh(self, i: int, seed: int | None, options: dict[str, Any] | None) -> Slot:
        """A new episode in a slot; masked if it cannot be laid out."""
        try:
            observation, info = self.envs[i].reset(seed=seed, options=options)
        except SandboxUnavailable:
            raise
        except (SandboxError, GradeError) as error:
            return self._masked(i, error)
        return Slot(observation, info=info)

    def _masked(self, i: int, error: Exception) -> Slot:
        conversation = cast(ConversationEnv, self.envs[i].unwrapped)
        info = {**conversation.finish(StopReason.INFRASTRUCTURE)[1], "masked": True, "error": str(error)}
        return Slot("", float("nan"), truncated=True, info=info)

    def _all(self, indices: Iterable[int], work: Callable[[int], Slot]) -> list[Slot]:
        return list(self._pool.map(work, indices))

    def _spread(self, value: Any, what: str, one: Callable[[int], Any]) -> list[Any]:
        if not isinstance(value, list | tuple | np.ndarray):
            return [one(i) for i in range(self.num_envs)]
        if len(value) != self.num_envs:
            raise ValueError(f"{what} has {len(value)} entries for {self.num_envs} slots")
        return list(value)

    def _texts(self) -> tuple[str, ...]:
        return tuple(self._shown)

    def _infos(self, indices: Iterable[int], slots: Sequence[Slot]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for i, slot in zip(indices, slots, strict=True):
            if slot.final is not None:
                infos = self._add_info(infos, slot.final, i)
            infos = self._add_info(infos, {"masked": False, **slot.info}, i)
        return infos


def vectorized(
    make: Callable[..., ConversationEnv],
    num_envs: int = 1,
    *,
    autoreset_mode: str | AutoresetMode = "NextStep",
    max_episode_steps: int | None = None,
    **kwargs: Any,
) -> ConversationVectorEnv:
    """Environments of one class side by side: what stands behind the vector entry points.

    Args:
        make: The class.
        num_envs: Slots.
        autoreset_mode: As in Gymnasium.
        max_episode_steps: Most turns of an episode, which is graded when they are spent; as in `gymnasium.make`, -1 is
            no limit.
        **kwargs: As for the class; the tasks are loaded once, and a pool grows to the number of slots.
    """
    limit = None if max_episode_steps == -1 else max_episode_steps
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(f"max_episode_steps is {limit!r}: an episode needs at least one turn (-1 is no limit)")
    sandbox = kwargs.get("sandbox", "auto")
    if isinstance(sandbox, SandboxPool):
        sandbox.grow(num_envs)
    elif not isinstance(sandbox, str) and num_envs > 1:
        raise ValueError(
            "one open sandbox cannot serve several slots: name a backend, for example sandbox='auto', or give a pool"
        )
    first = make(**kwargs)
    kwargs["tasks"] = list(first.tasks)
    made = [first]  # slot 0: it has loaded the tasks

    def one() -> ConversationEnv:
        env = made.pop() if made else make(**kwargs)
        env.step_limit = limit
        return env

    return ConversationVectorEnv([one] * num_envs, autoreset_mode=autoreset_mode)


def __getattr__(name: str) -> Callable[..., ConversationVectorEnv]:
    """The vector entry point of an environment has its id as name: `envs.vector:ClawGym-v0`."""
    if name.startswith("_"):
        raise AttributeError(name)
    try:
        return partial(vectorized, environment(name))
    except ValueError as error:
        raise AttributeError(str(error)) from error
