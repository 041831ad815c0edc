"""Who acts: policies, T2PO, rollouts, and the trajectories they leave."""

from sandboxes.guard import check_packages

check_packages("agents", "envs", "tasks", "sandboxes")
