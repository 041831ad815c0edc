"""The episodes of a training step: who acts, which attempts are made, which of them are trained on.

`play.Rollouts` holds all of it. Beside it: `rules` (attempts until a task has shown both outcomes, groups that teach
nothing and what replaces them), `curriculum` (tasks in the order of their pass rate), `samplers` (this process or a
server, and how stale its weights may be), `overlap` (a generation that is played while the one before is learned on),
`partial` (groups that straggle go to a later step).
All are off by default, and then one episode is played per row. See docs/rollouts.md.
"""
