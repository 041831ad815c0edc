"""A training run: its settings, its folder, its console. `trainers.grpo` puts them together."""
