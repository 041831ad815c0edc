"""Learn and measure: the GRPO trainer with per-turn credit, evaluation, reports."""

from sandboxes.guard import check_packages

check_packages("trainers", "agents", "envs", "tasks", "sandboxes")
