"""The one error of this folder."""

from __future__ import annotations


class ModelError(ValueError):
    """A model cannot be found or loaded; the message says why and what to do."""
