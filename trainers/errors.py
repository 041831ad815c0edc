"""Errors of the trainers that are meant for people: what is wrong, where, and what to do."""

from __future__ import annotations


class ConfigError(ValueError):
    """A setting that cannot work; the message names it and the remedy."""


class RewardError(ConfigError):
    """An environment paid a reward that is not a number; the message names episode and task."""


class RunFolderError(ValueError):
    """A run folder cannot be used as asked; the message is one line for a person."""


class BestLostError(RuntimeError):
    """The weights that a checkpoint calls its best are not in the run folder any more."""


class DamagedError(RuntimeError):
    """A file that a run would go on from is not what was written; the message says what to do."""


class OutOfMemoryError(RuntimeError):
    """Learning does not fit into memory, whatever was tried; the message is one line with the settings that help."""


def first_line(error: Exception) -> str:
    """What a library's error says, for a message of one line."""
    return str(error).strip().partition("\n")[0]
