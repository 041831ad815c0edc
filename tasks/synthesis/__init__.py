"""Tasks written by a model: a persona and a skill become a prompt, its reply a draft, and a draft a task if proven."""
