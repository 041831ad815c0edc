"""What a set of episodes says about a policy, and the folder that an evaluation leaves."""
