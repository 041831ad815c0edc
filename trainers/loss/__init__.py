"""What the loss rests on: sampled against trained probabilities, the KL's reference, truncated episodes, dropout."""
