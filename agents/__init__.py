"""Who acts: policies, T2PO, rollouts, and the trajectories they leave.

Inside, imports point one way: exports -> view -> commands, escalate -> monitor, replay -> rollout, t2po, users ->
policies -> records -> fieldnotes, seeds, credited -> chat, trajectory, uncertainty -> models, policy.
"""

from sandboxes.guard import check_packages, leave_when_interrupted

leave_when_interrupted()
check_packages("agents", "envs", "tasks", "sandboxes")
