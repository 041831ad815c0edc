"""Demonstrations of tasks that have an oracle: its commands, played in a sandbox, one a turn and without faults.

    python -m benchmarks.warm_start.solutions --tasks "generated:rooms?n=40&seed=500" > demonstrations.jsonl
    python -m trainers.sft --model_name_or_path FOLDER --data demonstrations.jsonl --output_dir runs/shown

A model whose base rate is 0 learns nothing from its own attempts; one that has seen some solutions may. Name tasks that
nothing is trained or measured on later: another seed, or other families.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from random import Random

from agents.policies.scripted import OraclePolicy
from agents.policy import Sampling
from agents.rollout import Job, RolloutEngine
from agents.trajectory import Trajectory
from envs import ClawGymEnv
from envs.prompts import STYLES
from tasks.sources import load_tasks

LONGEST = 4096
"""Bytes of a reply; the oracle's are shorter."""


def demonstrations(tasks: str, prompt_style: str = "standard", seed: int = 0) -> Iterator[list[dict[str, str]]]:
    """Yield conversations as chat messages, in a seeded order.

    Args:
        tasks: A source of tasks, as `--tasks` takes it.
        prompt_style: How the environment speaks.
        seed: Of the order: the first N are of all families alike, whatever the order of the source.

    Raises:
        TaskError: There is no such source.
        ValueError: An oracle does not pass.
    """
    found = load_tasks(tasks)
    Random(f"solutions:{seed}").shuffle(found)
    policy = OraclePolicy()
    with RolloutEngine(policy, lambda: ClawGymEnv(found, prompt_style=prompt_style), slots=4, workers=4) as engine:
        played = engine.run([Job(task, 0, seed=0) for task in found], Sampling(0.0, LONGEST)).trajectories
    for episode in played:
        if not episode.passed:
            raise ValueError(f"{episode.task_id}: its oracle does not pass ({episode.stop_reason})")
        yield _messages(policy, episode)


def _messages(policy: OraclePolicy, episode: Trajectory) -> list[dict[str, str]]:
    """What was said, by the control ids around each message: no text can hold those."""
    start = policy.tokenizer.encode("<|im_start|>")[0]
    messages: list[dict[str, str]] = []
    part: list[int] = []
    for token in [*episode.prompt_ids, *episode.flat().ids]:
        if token == start:
            part = []
        elif token in policy.eos_ids:
            role, _, content = policy.tokenizer.decode(part).partition("\n")
            messages.append({"role": role, "content": content})
        else:
            part.append(token)
    return messages


def main() -> None:
    """Print the demonstrations, a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", required=True, metavar="SPEC", help="where the tasks come from")
    parser.add_argument("--prompt_style", default="standard", choices=[*STYLES], help="(default: standard)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the order (default: 0)")
    given = parser.parse_args()
    for messages in demonstrations(given.tasks, given.prompt_style, given.seed):
        sys.stdout.write(json.dumps({"messages": messages}) + "\n")


if __name__ == "__main__":
    main()
