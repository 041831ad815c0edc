"""HICRA: planning tokens gain in good episodes and are spared in bad ones (Wang et al. 2025)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from trainers.credit.token.operator import Tokens


def hicra(tokens: Tokens) -> NDArray[np.float64]:
    """`1 + alpha sign(A) m`: the reference's `A + alpha |A| m` as a weight.

    Raises:
        ValueError: There is no planning mask, or alpha is outside [0, 1] (above 1 it would turn negative advantages
            round).
    """
    alpha = tokens.settings.hicra_alpha
    if tokens.planning is None:
        raise ValueError("token operator hicra: it needs a planning mask")
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"token operator hicra: alpha {alpha} outside [0, 1] would change the sign of advantages")
    out = tokens.planning * (alpha * np.sign(tokens.advantages))[:, None]
    out += 1.0
    return np.asarray(out, dtype=np.float64)
