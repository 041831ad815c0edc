"""What to do and how it is judged: tasks, assertions, sources, splits."""

from sandboxes.guard import check_packages

check_packages("tasks", "sandboxes")
