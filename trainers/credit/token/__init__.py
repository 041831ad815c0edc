"""Token operators: how the episode term is shared out over the tokens of an episode.

All are null results at 4B parameters in the study they come from; they are off by default and there to be tried.
"""

from trainers.credit.settings import DelightMode, DelightNorm, MaskScope, SepaMode, SepaSchedule, TokenSettings
from trainers.credit.token.operators import OPERATORS, operator_names, token_weights
from trainers.credit.token.signals import TokenSignal, token_signal
from trainers.credit.token.tokens import Stage, TokenOperator, Tokens, TokenState, make_tokens

__all__ = [
    "OPERATORS",
    "DelightMode",
    "DelightNorm",
    "MaskScope",
    "SepaMode",
    "SepaSchedule",
    "Stage",
    "TokenOperator",
    "TokenSettings",
    "TokenSignal",
    "TokenState",
    "Tokens",
    "make_tokens",
    "operator_names",
    "token_signal",
    "token_weights",
]
