"""The turn protocol: Gymnasium environments that a language agent talks to.

Importing this package registers `ClawGym-v0` and `TurnGym/ClawGym-v0`; `gymnasium.make("envs:ClawGym-v0")` imports it
by itself.
"""

from sandboxes.guard import check_packages

check_packages("envs", "tasks", "sandboxes")

from gymnasium.envs.registration import register, registry  # noqa: E402

from envs.clawgym import ClawGymEnv  # noqa: E402
from envs.conversation import ConversationEnv, StopReason  # noqa: E402

__all__ = ["ClawGymEnv", "ConversationEnv", "StopReason"]

for _id in ("ClawGym-v0", "TurnGym/ClawGym-v0"):
    if _id not in registry:  # a second import of this package must not warn
        register(_id, entry_point="envs.clawgym:ClawGymEnv", vector_entry_point="envs.vector:clawgym")
