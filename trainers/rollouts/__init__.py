"""The episodes of a training step: who acts, which attempts are made, which of them are trained on.

`play.Rollouts` holds all of it; one rule per file beside it: `adaptive` (attempts until a task has shown both
outcomes), `flat` (groups that teach nothing, and what replaces them), `curriculum` (tasks in the order of their pass
rate), `staleness` (weights that sampled against weights that train), `samplers` (this process or a server). All are off
by default, and then one episode is played per row. See docs/rollouts.md.
"""

from trainers.rollouts.completion import as_completion
from trainers.rollouts.curriculum import Curriculum, CurriculumOrder
from trainers.rollouts.errors import RulesError
from trainers.rollouts.flat import weightless
from trainers.rollouts.play import Rollouts
from trainers.rollouts.played import Draw, Played
from trainers.rollouts.samplers import Sampler, make_sampler
from trainers.rollouts.settings import Rules, curriculum_of, make_rules
from trainers.rollouts.staleness import drop_stale

__all__ = [
    "Curriculum",
    "CurriculumOrder",
    "Draw",
    "Played",
    "Rollouts",
    "Rules",
    "RulesError",
    "Sampler",
    "as_completion",
    "curriculum_of",
    "drop_stale",
    "make_rules",
    "make_sampler",
    "weightless",
]
