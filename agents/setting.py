"""What must be the same in two environments so that they show an agent the same: written with every trajectory."""

from __future__ import annotations

from typing import Any

from envs.answers import AnswerEnv
from envs.conversation import ConversationEnv
from envs.mixed import MixedEnv, kind_of_env
from envs.registry import BUILT_IN, environment, id_of
from envs.rewards import RewardRule
from envs.sandboxed import Place
from envs.wrapping import WrappedConversation
from tasks.model import unknown_key
from tasks.task import Task

OWN_REWARD = "own_reward"
"""The key that says that the reward is not the one `reward` names: a subclass, a rule or a wrapper of the
user's pays another."""
_SHIPPED: list[type[ConversationEnv]] = [AnswerEnv, *map(environment, BUILT_IN)]
_BY_CLASS = {kind.__name__: kind for kind in _SHIPPED if kind is not MixedEnv}
"""Those that ship stand in records under the names of their classes."""
_KEYS = ("env", "prompt_hash", "prompt_style", "max_turns", "reward", "turn_penalty", "subtract_baseline",
         "agent_errors", "allow_exposed_judges", "tools", "revise", "stops")  # fmt: skip
WRAPPERS = "wrappers"
"""The key that names wrappers of Gymnasium that may have changed rewards or observations, the outermost first."""
_SHOWN = ("env", "prompt_hash", OWN_REWARD, WRAPPERS)
"""Keys that tell of an environment and that none is made with."""
_PAYS = ("step", "finish", "_end", "_progress", "_step_to")
"""Methods of an environment that a reward comes out of."""


def setting_of(env: ConversationEnv | WrappedConversation) -> dict[str, Any]:
    """The settings of an environment whose task is laid out, JSON-able; empty for one that is none of ours."""
    wrapped = env if isinstance(env, WrappedConversation) else None
    if wrapped is not None:
        env = wrapped.conversation
    if not isinstance(env, ConversationEnv):
        return {}
    own = pays_otherwise(env) or (wrapped is not None and wrapped.pays_otherwise)
    if isinstance(env, MixedEnv):
        env = env._member  # who carries the task out
    setting: dict[str, Any] = {
        "env": _name(type(env)),
        "prompt_hash": env.prompt_hash if wrapped is None else wrapped.hash_of(env.prompt_hash),
        "prompt_style": env.style.name,
        "max_turns": env.max_turns,
        "reward": str(env.rule.kind),
        "turn_penalty": env.rule.turn_penalty,
        "subtract_baseline": env.rule.subtract_baseline,
        "agent_errors": env.agent_errors.value,
        **({"allow_exposed_judges": True} if env.allow_exposed_judges else {}),
        **({OWN_REWARD: True} if own else {}),
        **({WRAPPERS: wrapped.acting} if wrapped is not None and wrapped.acting else {}),
    }
    if isinstance(env, AnswerEnv):
        setting |= {"tools": env.tools, "revise": env.revisions, "stops": list(env.stops)}
    return setting


def _name(kind: type[ConversationEnv]) -> str:
    """What stands for a class in a record: its own name or its nearest base's that ships, or its registered id."""
    for base in kind.__mro__:
        if base in _BY_CLASS.values():
            return base.__name__
        if issubclass(base, ConversationEnv) and (name := id_of(base)) is not None:
            return name
    return kind.__name__


def pays_otherwise(env: ConversationEnv) -> bool:
    """Whether a subclass or a rule of somebody else's stands between grade and reward, so that no one here knows it."""
    ours = next((kind for kind in type(env).__mro__ if kind in _BY_CLASS.values() or kind is MixedEnv), None)
    same = ours is not None and all(getattr(type(env), name) is getattr(ours, name) for name in _PAYS)
    return not same or type(env.rule) is not RewardRule


def env_for(task: Task, setting: dict[str, Any], sandbox: Place = "auto") -> ConversationEnv:
    """An environment of a task as `setting_of` described it; what the setting does not say has its default.

    Raises:
        ValueError: A setting is unknown, or the environment takes no such value.
    """
    for key in setting:
        if key not in (*_KEYS, *_SHOWN):
            raise ValueError(unknown_key(key, _KEYS, "setting of an environment"))
    settings = {key: value for key, value in setting.items() if key not in _SHOWN}
    name = setting.get("env")
    kind = kind_of_env(task) if name is None else _BY_CLASS.get(name) or environment(name)
    made: Any = kind
    return made([task], task=task.id, sandbox=sandbox, **settings)
