"""Instructions of IFEval and what reads English text."""
