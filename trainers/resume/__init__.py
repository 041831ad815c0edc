"""Exact resume: a run that was killed goes on as if it had not been."""
