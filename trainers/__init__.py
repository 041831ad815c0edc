"""Learn and measure: the GRPO trainer with per-turn credit, evaluation, reports."""

from sandboxes.guard import check_packages, leave_when_interrupted

leave_when_interrupted()
check_packages("trainers", "agents", "envs", "tasks", "sandboxes")
