"""Episodes of a file as one log of Inspect AI (version 2, JSON), as `inspect view` opens and `read_eval_log` reads it.

Written from the format's documentation, so that nobody needs the package: https://inspect.aisi.org.uk/eval-logs.html
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from agents.exports.texts import Message, Texts, facts, is_error, messages, outcome, plain, was_cut
from agents.trajectory import Trajectory

VERSION = 2
CREATED = "1970-01-01T00:00:00+00:00"
"""Records of episodes have no date, and the format needs one: the same for all, so that equal episodes give equal
bytes."""
SCORES = {"passed": "accuracy", "rate": "mean", "reward": "mean"}
"""What an episode is scored by, and the name of its mean."""
_PASSED = {True: "C", False: "I"}
"""How the format writes a verdict."""


def logs(episodes: Iterable[Trajectory], texts: Texts) -> Iterator[dict[str, Any]]:
    """One log. Samples with an error have no scores; nor has an episode without a grade."""
    attempts: Counter[str] = Counter()
    samples = []
    for episode in episodes:
        attempts[episode.task_id] += 1
        samples.append(_sample(episode, attempts[episode.task_id], texts))
    digest = hashlib.sha256(json.dumps([texts.name, texts.model, samples]).encode()).hexdigest()[:22]
    broken = sum("error" in sample for sample in samples)
    # The viewer takes samples times epochs for what there should be. Of tasks with unequal attempts that is no product.
    even = len(set(attempts.values())) == 1
    yield {
        "version": VERSION,
        "status": "success",
        "eval": {
            "eval_id": digest,
            "run_id": digest,
            "created": CREATED,
            "task": plain(texts.name),
            "task_id": digest,  # logs of one task id would count as tries at the same
            "dataset": {
                "name": plain(texts.name),
                "samples": len(attempts) if even else len(samples),
                "sample_ids": [plain(task) for task in attempts],
                "shuffled": False,
            },
            "model": plain(texts.model),
            "config": {"epochs": max(attempts.values()) if even else 1, "fail_on_error": False},
            "scorers": [{"name": name, "metrics": [{"name": metric}]} for name, metric in SCORES.items()],
        },
        "plan": {"name": "plan", "steps": [], "config": {}},
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples) - broken,
            "scores": [_result(name, metric, samples) for name, metric in SCORES.items()],
        },
        "stats": {"started_at": CREATED, "completed_at": CREATED, "model_usage": _sum_of_usage(samples)},
        "samples": samples,
    }


def file_name(place: int, log: dict[str, Any]) -> str:
    """As `inspect view` looks for logs: a date, the task, an id."""
    task = re.sub(r"[^A-Za-z0-9-]+", "-", log["eval"]["task"]).strip("-") or "episodes"
    return f"{CREATED.replace(':', '-')}_{task}_{log['eval']['task_id']}.json"


def _sample(episode: Trajectory, epoch: int, texts: Texts) -> dict[str, Any]:
    said = [_message(place, message) for place, message in enumerate(messages(episode, texts.prompt(episode)))]
    replies = [one for one in said if one["role"] == "assistant"]
    known = outcome(episode)
    sample: dict[str, Any] = {
        "id": known["task_id"],
        "epoch": epoch,  # counted here: a file can hold one attempt at a task twice
        "input": plain(texts.intent(episode)) or said[0]["content"],
        "target": "",
        "messages": said,
        "output": {"model": plain(texts.model), "choices": [], "completion": ""},
        "scores": _scores(episode, known),
        "metadata": {key: value for key, value in known.items() if value not in (None, "", [], {})},
        "model_usage": _usage(episode, plain(texts.model)),
        "turn_count": len(episode.turns),
    }
    if replies:
        stop = "max_tokens" if was_cut(episode.turns[-1]) else "stop"
        sample["output"] |= {
            "choices": [{"message": replies[-1], "stop_reason": stop}],
            "completion": replies[-1]["content"],
        }
    seconds = sum(turn.model_seconds + turn.sandbox_seconds for turn in episode.turns)
    if seconds:
        sample |= {"total_time": seconds, "working_time": seconds}
    if is_error(episode):
        message = known["error"] or "the episode was broken by the machinery, and its record does not say how"
        sample["error"] = {"message": message, "traceback": "", "traceback_ansi": ""}
    return sample


def _message(place: int, message: Message) -> dict[str, Any]:
    written: dict[str, Any] = {"id": f"m{place}", "role": message.role, "content": message.content}
    if message.turn is None:
        return {**written, "source": "input"} if place == 0 else written
    return {**written, "source": "generate", "metadata": facts(message.turn)}


def _scores(episode: Trajectory, known: dict[str, Any]) -> dict[str, Any]:
    if is_error(episode):
        return {}
    found: dict[str, Any] = {}
    for name in SCORES:
        value = known[name]
        if value is not None:
            found[name] = {"value": _PASSED[value] if name == "passed" else value}
    if "passed" in found:
        lines = [f"{one.get('verdict')}  {one.get('name')}  {one.get('detail') or ''}" for one in known["assertions"]]
        found["passed"] |= {"explanation": "\n".join(line.rstrip() for line in lines)}
    return found


def _result(name: str, metric: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    values = [sample["scores"][name]["value"] for sample in samples if name in sample["scores"]]
    numbers = [float(value == _PASSED[True]) if name == "passed" else value for value in values]
    mean = {metric: {"name": metric, "value": sum(numbers) / len(numbers)}} if numbers else {}
    return {
        "name": name,
        "scorer": name,
        "scored_samples": len(values),
        "unscored_samples": len(samples) - len(values),
        "metrics": mean,
    }


def _usage(episode: Trajectory, model: str) -> dict[str, dict[str, int]]:
    """Tokens that the model read and wrote; nothing where the record holds no ids."""
    if episode.text_only or not episode.prompt_ids or not episode.turns:
        return {}
    read, wrote = sum(map(len, episode.prompts())), sum(len(turn.ids) for turn in episode.turns)
    return {model: {"input_tokens": read, "output_tokens": wrote, "total_tokens": read + wrote}}


def _sum_of_usage(samples: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
    total: dict[str, Counter[str]] = {}
    for sample in samples:
        for model, usage in sample["model_usage"].items():
            total.setdefault(model, Counter()).update(usage)
    return {model: dict(usage) for model, usage in total.items()}
