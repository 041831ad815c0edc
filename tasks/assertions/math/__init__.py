"""Whether a mathematical answer is right: finding it in a reply, and comparing it in killable workers."""

from tasks.assertions.math.judging import Judgement, MathMode, Reason, judge, judge_many
from tasks.assertions.math.kinds import MathEquivalent, MathFormat
from tasks.assertions.math.pool import Pool, Reply, Status, default_pool

__all__ = [
    "Judgement",
    "MathEquivalent",
    "MathFormat",
    "MathMode",
    "Pool",
    "Reason",
    "Reply",
    "Status",
    "default_pool",
    "judge",
    "judge_many",
]
