"""Episodes made by hand, and a folder of a run that holds them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents.policies.scripted import ByteTokenizer
from agents.policy import Candidate, FinishReason
from agents.trajectory import Trajectory, Turn, write_jsonl
from tasks.model import LONE_SURROGATES

BYTES = ByteTokenizer()


def turn(index: int, reply: str, **changes: Any) -> Turn:
    """A turn with the ids of its reply in bytes, an end-of-turn id, and entropies that rise."""
    ids = [*reply.encode("utf-8", "surrogatepass"), 257]
    size = len(ids)
    entropies = [3.0 * place / size for place in range(size)]
    values: dict[str, Any] = {"action": "command", "exit_code": 0, "signal": 0.0, "observation": "ok", **changes}
    made = Turn(
        index, [257] * 3 if index else [], ids, [-0.5] * size, entropies, [False] * size, FinishReason.STOP, reply
    )
    for name, value in values.items():
        setattr(made, name, value)
    return made


def command(index: int, text: str, **changes: Any) -> Turn:
    """A turn that runs a command in a fence."""
    return turn(index, f"First I look.\n```bash\n{text}\n```", command=text, **changes)


def episode(task: str = "merge", attempt: int = 0, turns: list[Turn] | None = None, **changes: Any) -> Trajectory:
    """A graded attempt at a task."""
    made = Trajectory(task, "ab" * 32, attempt, 2**62 + attempt, [1, 2, 3])
    made.turns = turns if turns is not None else [command(0, "ls"), turn(1, "TASK_COMPLETE", action="submit")]
    values = {"stop_reason": "submitted", "reward": 1.0, "passed": True, "rate": 1.0, "family": "files", **changes}
    for name, value in values.items():
        setattr(made, name, value)
    return made


def check(name: str, verdict: str = "pass", detail: str = "", kind: str = "file_equals") -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "verdict": verdict,
        "score": float(verdict == "pass"),
        "detail": detail,
        "weight": 1.0,
    }


def failed(task: str = "merge", attempt: int = 1, **changes: Any) -> Trajectory:
    """One that failed, with all that a page can mark."""
    turns = [
        command(0, "ls"),
        command(1, "cat a.txt", exit_code=1, signal=-0.5, timed_out=True, observation="cat: a.txt: no such file"),
        turn(2, "I am stuck.", action="malformed", finish=FinishReason.LENGTH, max_tokens=12, uncertainty=0.5),
    ]
    turns[1].candidates = [Candidate(tuple(b"rm -rf"), 0.25)]
    turns[1].notes = {"think_capped": 1.0, "thought_tokens": 7.0, "advantage": -0.75}
    turns[1].forced[:3] = [True] * 3
    checks = [
        check("file_equals:out.csv", "fail", "out.csv: has 4 lines instead of 5"),
        check("the rest", kind="all_of"),
    ]
    values = {"passed": False, "rate": 0.5, "reward": 0.25, "stop_reason": "max_turns", "assertions": checks}
    return episode(task, attempt, turns, **{**values, **changes})


def write(path: Path, episodes: list[Trajectory], mode: str = "w") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, mode, encoding="utf-8", errors=LONE_SURROGATES) as file:
        write_jsonl(episodes, file)
    return path


def run_folder(folder: Path) -> Path:
    """Two steps and a measurement, beside the other files of a run."""
    write(folder / "trajectories" / "step_000001.jsonl", [episode("merge", 0), failed("merge", 1), episode("sort", 0)])
    write(folder / "trajectories" / "step_000002.jsonl", [failed("merge", 0), episode("merge", 1)])
    write(
        folder / "held_out" / "step_000002_greedy.jsonl", [failed("held", 0, family="tables", passed=None, rate=None)]
    )
    (folder / "config.yaml").write_text("tasks: library\n")
    (folder / "environment.json").write_text("{}")
    intents = [{"id": "merge", "intent": "Merge the two lists."}, {"id": "nobody", "intent": "-"}]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(one) + "\n" for one in intents))
    (folder / "metrics.jsonl").write_text('{"step": 1}\n')
    return folder
