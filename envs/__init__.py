"""The turn protocol: Gymnasium environments that a language agent talks to.

Importing this package registers the rows of `envs.registry` with Gymnasium: `ClawGym-v0`, `GSM8K-v0`, `MATH-v0`,
`IFEval-v0`, `Mixed-v0` and `ClawGym-v1`, each also under `TurnGym/`, and those of other packages.
`gymnasium.make("envs:GSM8K-v0")` imports it by itself.

Inside, imports point one way: serve -> openenv -> mixed -> user -> clawgym, questions, vector -> registry, sandboxed,
wrapping -> conversation, recovery -> answer_actions, answer_prompts, episode, workplace -> prompts -> actions,
headers, rewards, spaces -> fences.
"""

from sandboxes.guard import check_packages, leave_when_interrupted

leave_when_interrupted()
check_packages("envs", "tasks", "sandboxes")

from envs.clawgym import ClawGymEnv  # noqa: E402
from envs.conversation import ConversationEnv, StopReason  # noqa: E402
from envs.mixed import MixedEnv  # noqa: E402
from envs.questions import AnswerEnv, GSM8KEnv, IFEvalEnv, MATHEnv  # noqa: E402
from envs.registry import register_all, register_environment  # noqa: E402
from envs.user import ClawGymUserEnv  # noqa: E402

__all__ = [
    "AnswerEnv",
    "ClawGymEnv",
    "ClawGymUserEnv",
    "ConversationEnv",
    "GSM8KEnv",
    "IFEvalEnv",
    "MATHEnv",
    "MixedEnv",
    "StopReason",
    "register_environment",
]

register_all()
