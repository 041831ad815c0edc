"""Measuring a policy on tasks: arguments, checks, play, the folder it leaves, and two of them compared."""
