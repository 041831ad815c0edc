"""The same conversations through verifiers' own multi-turn environment, in an interpreter of its own.

    PYTHON -m benchmarks.peers.verifiers_loop URL EPISODES TURNS

PYTHON has `verifiers<0.2` installed, and needs nothing of ours. Prints seconds and replies as JSON. What is timed is
`Environment.evaluate` alone, not imports.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any


def play(url: str, episodes: int, turns: int) -> tuple[float, int]:
    """Seconds and replies of all conversations at once."""
    import verifiers as vf
    from datasets import Dataset
    from verifiers.types import ClientConfig

    class Talk(vf.MultiTurnEnv):
        async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
            return [{"role": "user", "content": "ok"}]

    prompts = [[{"role": "user", "content": f"conversation {index}"}] for index in range(episodes)]
    data = Dataset.from_dict({"prompt": prompts, "answer": [""] * episodes})
    env = Talk(max_turns=turns, dataset=data, eval_dataset=data, rubric=vf.Rubric(funcs=[lambda **_: 0.0]))
    os.environ.setdefault("PLAYED_KEY", "none")
    client = ClientConfig(api_key_var="PLAYED_KEY", api_base_url=url)
    start = time.perf_counter()
    out = asyncio.run(
        env.evaluate(
            client, "m", {"temperature": 1.0, "max_tokens": 64}, num_examples=episodes, max_concurrent=episodes,
            state_columns=["trajectory"],
        )
    )  # fmt: skip
    seconds = time.perf_counter() - start
    return seconds, sum(len(one["trajectory"]) for one in out["outputs"])


if __name__ == "__main__":
    address, count, length = sys.argv[1:]
    spent, replies = play(address, int(count), int(length))
    print(json.dumps({"seconds": spent, "replies": replies}))
