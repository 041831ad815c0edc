"""Who acts: policies, T2PO, rollouts, and the trajectories they leave."""

from sandboxes.guard import check_packages, leave_when_interrupted

leave_when_interrupted()
check_packages("agents", "envs", "tasks", "sandboxes")
