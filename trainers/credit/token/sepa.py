"""SEPA: pools (or amplifies) the uncertainty of execution tokens, so that GTPO weighs planning tokens.

mu is the mean signal of the execution tokens of an episode; planning tokens keep their signal. Lambda 0 changes
nothing, which is plain GTPO and not weights of 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.credit.token.operator import Tokens, row_means
from trainers.credit.token.settings import SepaMode


def sepa(tokens: Tokens) -> NDArray[np.float64]:
    """`lam mu + (1 - lam) S` (pool), `(1 + lam) S - lam mu` (amp), or that and at least 0 (amp_clamped).

    Raises:
        ValueError: There is no planning mask.
    """
    if tokens.planning is None:
        raise ValueError("token operator sepa: it needs a planning mask")
    return sepa_signal(tokens.signal, tokens.mask & ~tokens.planning, tokens.state.lam, tokens.settings.sepa_mode)


def sepa_signal(
    signal: NDArray[np.float64], execution: NDArray[np.bool_], lam: float, mode: SepaMode = SepaMode.POOL
) -> NDArray[np.float64]:
    """The transformed signal; unchanged where `execution` is off and for `lam` 0 (which is cut to [0, 1])."""
    lam = min(1.0, max(0.0, lam))
    if lam == 0.0:
        return signal
    out = signal * execution
    mean = row_means(out, np.count_nonzero(execution, axis=1).astype(np.float64))
    # signal + lam (mean - signal), or - lam (...), where execution is on; one array, in place.
    np.subtract(mean, signal, out=out)
    out *= execution
    out *= lam if mode is SepaMode.POOL else -lam
    out += signal
    if mode is SepaMode.AMP_CLAMPED:
        np.maximum(out, 0.0, out=out, where=execution)
    return out
