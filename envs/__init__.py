"""The turn protocol: Gymnasium environments that a language agent talks to.

Importing this package registers `ClawGym-v0`, `GSM8K-v0`, `MATH-v0`, `IFEval-v0` and `Mixed-v0`, each also under
`TurnGym/`; `gymnasium.make("envs:GSM8K-v0")` imports it by itself.
"""

from sandboxes.guard import check_packages

check_packages("envs", "tasks", "sandboxes")

from gymnasium.envs.registration import register, registry  # noqa: E402

from envs.answers import AnswerEnv  # noqa: E402
from envs.clawgym import ClawGymEnv  # noqa: E402
from envs.conversation import ConversationEnv, StopReason  # noqa: E402
from envs.gsm8k import GSM8KEnv  # noqa: E402
from envs.ifeval import IFEvalEnv  # noqa: E402
from envs.math import MATHEnv  # noqa: E402
from envs.mixed import MixedEnv  # noqa: E402

__all__ = [
    "AnswerEnv",
    "ClawGymEnv",
    "ConversationEnv",
    "GSM8KEnv",
    "IFEvalEnv",
    "MATHEnv",
    "MixedEnv",
    "StopReason",
]

for _name, _env in (
    ("ClawGym-v0", ClawGymEnv),
    ("GSM8K-v0", GSM8KEnv),
    ("MATH-v0", MATHEnv),
    ("IFEval-v0", IFEvalEnv),
    ("Mixed-v0", MixedEnv),
):
    for _id in (_name, f"TurnGym/{_name}"):
        if _id not in registry:  # a second import of this package must not warn
            register(
                _id,
                entry_point=f"{_env.__module__}:{_env.__name__}",
                vector_entry_point=f"envs.vector:{_name.partition('-')[0].lower()}",
            )
