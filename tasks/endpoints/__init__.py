"""Speaking to model servers: JSON over HTTP with retries, for policies at endpoints and for authors of tasks."""


class PolicyError(RuntimeError):
    """The engine failed (not the model): an infrastructure failure, never an empty reply."""
