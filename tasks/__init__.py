"""What to do and how it is judged: tasks, assertions, sources, splits."""

from sandboxes.guard import check_packages, leave_when_interrupted

leave_when_interrupted()
check_packages("tasks", "sandboxes")
