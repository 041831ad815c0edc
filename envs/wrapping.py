"""Wrappers of Gymnasium around a conversation: which compose, and how a rollout plays through them.

`reset` and `step` go through the outermost wrapper, so that what a wrapper does to a reward or an observation is what
is trained and shown. Everything else (system prompt, budgets, `abort`) is asked of the environment inside. A budget
that only the caller knows ends an episode through the wrappers, too: `finish` steps with an `Ending`, whose reward is
that of the grade. An episode that a wrapper cuts by itself is ended in the same way, and graded.

What must hold, or is refused: one reply is one turn, the reply that was sampled is the one that acts, the task is the
one that was asked for, observation and action are text, and no episode's reward depends on another episode.
"""

from __future__ import annotations

import hashlib
from typing import Any, cast

from gymnasium import ActionWrapper, Env, ObservationWrapper, RewardWrapper, Wrapper
from gymnasium.spaces import Text
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import (
    Autoreset,
    DelayObservation,
    NormalizeReward,
    OrderEnforcing,
    PassiveEnvChecker,
    RecordEpisodeStatistics,
    RenderCollection,
    RepeatAction,
    TimeLimit,
)

from envs.conversation import ConversationEnv
from envs.episode import Ending, StopReason
from envs.protocol import Protocol
from tasks.task import Task

_REFUSED: dict[type, str] = {
    ActionWrapper: "it changes replies, and what was sampled would not be what acts; read replies in another way in a "
    "subclass of the environment (docs/envs.md, Your own environment)",
    RepeatAction: "it takes one reply for several turns; leave it out",
    Autoreset: "it resets behind the engine's back; leave it out, each episode is reset by itself",
    DelayObservation: "the agent would be shown what an earlier turn did; leave it out",
    NormalizeReward: "an episode's reward would depend on those played before it; leave it out, advantages are scaled "
    "within each group (scale_rewards)",
}
"""Wrappers that break what must hold, and what to do without them."""

_PLAIN = (Wrapper, OrderEnforcing, PassiveEnvChecker, TimeLimit, RecordEpisodeStatistics, RenderCollection)
"""Classes whose `reset` and `step` hand on words and rewards as they are."""
_KEEP_REWARD = {kind.step for kind in (*_PLAIN, ObservationWrapper)}
_KEEP_WORDS = {kind.step for kind in (*_PLAIN, RewardWrapper)} | {kind.reset for kind in _PLAIN}
_OF_THE_TURN = ("action", "command", "exit_code", "timed_out", "signal")
"""Keys of `info` that tell what a reply did."""


class WrappedConversation(Wrapper[str, str, str, str], RecordConstructorArgs):
    """What `gymnasium.make` returns, with the rest of the conversation's interface around it.

    Attributes:
        acting: Names of the wrappers that may change a reward or an observation, the outermost first.
        pays_otherwise: One of them may change rewards.
    """

    def __init__(self, env: Env[str, str]) -> None:
        """Look at the wrappers around an environment; nothing is opened.

        Raises:
            ValueError: One of them breaks what must hold, or there is no conversation inside.
        """
        chain: list[Wrapper[Any, Any, Any, Any]] = []
        inner: Env[Any, Any] = env
        while isinstance(inner, Wrapper):
            chain.append(inner)
            inner = inner.env
        if not isinstance(inner, ConversationEnv):
            raise ValueError(
                f"{env}: {type(inner).__name__} is no ConversationEnv, and wrappers compose around those only; make it "
                "a subclass (docs/envs.md, Your own environment)"
            )
        for wrapper in reversed(chain):
            name = type(wrapper).__name__
            for kind, why in _REFUSED.items():
                if isinstance(wrapper, kind):
                    raise ValueError(f"{name} cannot be around {type(inner).__name__}: {why}")
            for what in ("observation", "action"):
                if not isinstance(space := getattr(wrapper, f"{what}_space"), Text):
                    raise ValueError(
                        f"{name} cannot be around {type(inner).__name__}: its {what}s are {space}, and a conversation "
                        "has text; leave it out"
                    )
        RecordConstructorArgs.__init__(self)
        Wrapper.__init__(self, env)
        self.pays_otherwise = any(type(wrapper).step not in _KEEP_REWARD for wrapper in chain)
        self._words = [w for w in chain if not {type(w).step, type(w).reset} <= _KEEP_WORDS]
        self.acting = [
            type(wrapper).__name__
            for wrapper in chain
            if wrapper in self._words or type(wrapper).step not in _KEEP_REWARD
        ]
        self._limit = min((w._max_episode_steps for w in chain if isinstance(w, TimeLimit)), default=0)
        self._said = 0

    # -- of the conversation ----------------------------------------------------------------------------------------

    @property
    def conversation(self) -> ConversationEnv:
        """The environment inside."""
        return cast(ConversationEnv, self.unwrapped)

    @property
    def system_prompt(self) -> str:
        """See `ConversationEnv.system_prompt`."""
        return self.conversation.system_prompt

    @property
    def protocol(self) -> Protocol:
        """See `ConversationEnv.protocol`."""
        return self.conversation.protocol

    @property
    def raw_prompts(self) -> bool:
        """See `ConversationEnv.raw_prompts`."""
        return self.conversation.raw_prompts

    @property
    def prompt_hash(self) -> str:
        """See `ConversationEnv.prompt_hash`; another one where a wrapper may change words."""
        return self.hash_of(self.conversation.prompt_hash)

    def hash_of(self, prompt_hash: str) -> str:
        """A hash of what the environment says, as it is behind the wrappers: of them only the names are known."""
        if not self._words:
            return prompt_hash
        names = [f"{type(wrapper).__module__}:{type(wrapper).__qualname__}" for wrapper in self._words]
        return hashlib.sha256(" ".join([prompt_hash, *names]).encode()).hexdigest()[:16]

    @property
    def keep_observations(self) -> int | None:
        """See `ConversationEnv`."""
        return self.conversation.keep_observations

    def summary(self, observation: str) -> str:
        """See `ConversationEnv.summary`, of what the wrappers made of an observation."""
        return self.conversation.summary(observation)

    @property
    def stops(self) -> tuple[str, ...]:
        """Stop sequences of the environment inside, where it has some."""
        return tuple(getattr(self.conversation, "stops", ()))

    @property
    def losses(self) -> list[dict[str, Any]]:
        """See `ConversationEnv.losses`."""
        return self.conversation.losses

    @property
    def own_max_turns(self) -> int:
        """See `ConversationEnv.own_max_turns`: a time limit asks for a budget, too."""
        return min(filter(None, (self.conversation.own_max_turns, self._limit)), default=0)

    def start_clock(self) -> None:
        """See `ConversationEnv.start_clock`."""
        self.conversation.start_clock()

    def abort(self) -> None:
        """See `ConversationEnv.abort`."""
        self.conversation.abort()

    # -- an episode -------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """See `ConversationEnv.reset`.

        Raises:
            ValueError: A wrapper has another task laid out, or makes something else than text of the observation.
        """
        observation, info = self.env.reset(seed=seed, options=options)
        wanted = (options or {}).get("task")
        laid = self.conversation.task
        if isinstance(wanted, Task) and (laid.id, laid.content_hash) != (wanted.id, wanted.content_hash):
            raise ValueError(
                f"{self._names()}: another task was laid out ('{laid.id}') than was asked for "
                f"('{wanted.id}'); hand `options` on to the reset of the environment inside"
            )
        self._said = len(self._transcript())
        self._check(observation, info)
        return observation, info

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """See `ConversationEnv.step`; an episode that a wrapper ends is graded as it stands, as `max_turns`.

        Raises:
            ValueError: A wrapper does not hand this one reply on as one turn, or hides the end of the episode.
        """
        observation, paid, terminated, truncated, info = self.env.step(action)
        reward = float(paid)
        self._check(observation, info)
        said = self._transcript()
        if not isinstance(action, Ending) and (len(said) != self._said + 2 or said[-2] != action):
            raise ValueError(
                f"{self._names()}: the reply that was sampled did not act as it is, as one turn; hand it on to the "
                "step of the environment inside, once and unchanged"
            )
        self._said = len(said)
        over = info["stop_reason"] is not None
        if (terminated or truncated) and not over:
            last, more = self._end(StopReason.MAX_TURNS)
            info = {**last, **{key: info[key] for key in _OF_THE_TURN if key in info}}
            return observation, reward + more, False, True, info
        if over and not (terminated or truncated):
            raise ValueError(f"{self._names()}: the episode is over, and the wrappers say that it goes on; hand "
                             "`terminated` and `truncated` on")  # fmt: skip
        return observation, reward, terminated, truncated, info

    def finish(self, reason: StopReason | str) -> tuple[float | None, dict[str, Any]]:
        """See `ConversationEnv.finish`; the reward goes through the wrappers as that of a step does."""
        if reason == StopReason.INFRASTRUCTURE:
            return self.conversation.finish(reason)
        info, reward = self._end(StopReason(reason))
        return reward, info

    # -- inside -----------------------------------------------------------------------------------------------------

    def _end(self, reason: StopReason) -> tuple[dict[str, Any], float]:
        _, reward, _, _, info = self.env.step(Ending(reason))
        if info.get("stop_reason") is None:
            raise ValueError(
                f"{self._names()}: an `Ending` did not reach the environment inside; hand it on like a reply"
            )
        return info, float(reward)

    def _transcript(self) -> list[str]:
        inside = self.conversation
        return cast(ConversationEnv, getattr(inside, "_member", inside))._transcript

    def _check(self, observation: object, info: dict[str, Any]) -> None:
        if not isinstance(observation, str):
            raise ValueError(f"{self._names()}: an observation is text, not {type(observation).__name__}")
        if "stop_reason" not in info:
            raise ValueError(f"{self._names()}: `info` lacks what the environment inside wrote; add to it only")

    def _names(self) -> str:
        return "wrapper " + ", ".join(self.acting or [type(self.env).__name__])


def as_conversation(env: Any) -> Any:
    """An environment as a rollout plays it: with its wrappers, if it has some, behind a conversation's interface.

    Args:
        env: A `ConversationEnv`, what `gymnasium.make` returns, or another object with a conversation's interface,
            which is returned as it is.

    Raises:
        ValueError: It is none, or a wrapper breaks what must hold; one line says which, and what to do.
    """
    if isinstance(env, VectorEnv):
        raise ValueError(
            f"{type(env).__name__} holds several environments, and one is needed for each slot; give what makes one, "
            'such as `lambda: gymnasium.make("ClawGym-v0")`'
        )
    if isinstance(env, Wrapper):
        return env if isinstance(env, WrappedConversation) else WrappedConversation(env)
    if not callable(getattr(env, "finish", None)):
        raise ValueError(
            f"{type(env).__name__} is no conversation (it has no `finish`); make it a subclass of ConversationEnv "
            "(docs/envs.md, Your own environment)"
        )
    return env
