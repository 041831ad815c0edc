"""The episodes of a training step: who acts, which attempts are made, which of them are trained on.

`play.Rollouts` holds all of it; one rule per file beside it: `adaptive` (attempts until a task has shown both
outcomes), `flat` (groups that teach nothing, and what replaces them), `curriculum` (tasks in the order of their pass
rate), `staleness` (weights that sampled against weights that train), `samplers` (this process or a server). All are off
by default, and then one episode is played per row. See docs/rollouts.md.
"""
