"""Supervised training before reinforcement learning: corpus, tokenizer, model, loop. `trainers.sft` runs it."""
