"""Seeds derived by hashing: equal parts, equal seed, on every machine and in every process."""

from __future__ import annotations

import hashlib


def derive_seed(*parts: int | str) -> int:
    """A seed in `[0, 2**63)` from any parts (run seed, task id, attempt, turn ...); order matters, 0 is a part."""
    text = "\x1f".join(f"{type(part).__name__}:{part}" for part in parts)
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
