"""Campaigns: conditions x seeds as a folder of ordinary runs. `plan` reads the file, `run` works, `results` reports."""
