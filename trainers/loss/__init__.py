"""What the loss rests on: sampled against trained probabilities, the reference of the KL, dropout."""
