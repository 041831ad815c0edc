"""Learn and measure: the GRPO trainer with per-turn credit, evaluation, reports, campaigns over seeds.

Inside, imports point one way: campaign, grpo -> campaigns -> evaluate, report -> evaluation -> reporting, sft, verdicts
-> run -> gigpo -> gradients -> passes -> figures -> construction, resume -> heldout, warmstart -> settings -> guards ->
checkpoint, rollouts -> answers, credit, emergence -> curves, measure, jsonl, paired -> loss, graphed, metric_names,
pieces, processes, stats, errors.
"""

from sandboxes.guard import check_packages, leave_when_interrupted, moved

leave_when_interrupted()
check_packages("trainers", "agents", "envs", "tasks", "sandboxes")
moved(
    {
        "trainers.adapters": "trainers.stock_trl",
        "trainers.adapters.trl_environment": "trainers.stock_trl",
        "trainers.config": "trainers.settings",
        "trainers.guards.window": "trainers.guards.guard",
        "trainers.run.guarding": "trainers.run.callback",
    }
)
