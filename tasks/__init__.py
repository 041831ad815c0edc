"""What to do and how it is judged: tasks, assertions, sources, splits.

Inside, imports point one way: cli -> synthesis -> check, commands, grading -> comparable, sources -> families, harbor,
proof, show, splits, yaml -> turns -> task -> user -> oracle -> answers -> assertions -> mutants, place, plugins,
workspace -> judged_in -> endpoints, judges, model, settings.
"""

from sandboxes.guard import check_packages, leave_when_interrupted, moved

leave_when_interrupted()
check_packages("tasks", "sandboxes")
moved(
    {
        "tasks.assertions.math": "tasks.answers.math",
        "tasks.outcome": "tasks.assertions.base",
        "tasks.split_lock": "tasks.splits",
    }
)
