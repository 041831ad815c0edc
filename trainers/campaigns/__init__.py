"""Campaigns: conditions x seeds as a folder of ordinary runs.

`plan` reads the file, `run` works (here, or on a `cluster`), `results` reports: `figures` is what it shows beside
verdicts, `page` its page.
"""
