"""Speaking to model servers: JSON over HTTP with retries, for policies at endpoints and for authors of tasks."""

from typing import Any


class PolicyError(RuntimeError):
    """The engine failed (not the model): an infrastructure failure, never an empty reply."""


PRICE: dict[str, Any] = {
    "type": float,
    "nargs": "+",
    "metavar": ("PROMPT COMPLETION [CACHED]", ""),
    "help": "of a million tokens each, cached ones of the prompt apart: also show what it cost",
}
"""The option `--price` of a command that asks an endpoint; `tasks.endpoints.chat.read_price` reads it."""
