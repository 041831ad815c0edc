"""Held-out episodes choose the weights that are kept, and when a run ends; the pool never does.

`HeldOut` measures and decides, `best` keeps the weights, `stock` puts transformers' own options in these terms,
`selection` is the part of the trainer that joins them, and `confirm` measures what was chosen once more at the end, on
tasks that nothing chose on.
"""

from trainers.checkpoint import Best
from trainers.heldout.held_out import Evaluation, HeldOut, Player, PoolRate

__all__ = ["Best", "Evaluation", "HeldOut", "Player", "PoolRate"]
