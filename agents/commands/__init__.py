"""The commands of `python -m agents`, one per module.

`chosen` finds the episodes that a command is asked about, `recorded_tasks` their tasks; `pages` is what is printed.
"""
