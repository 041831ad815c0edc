"""How good is a policy on the generated tasks? Played in the emulator, without a sandbox, in seconds on a GPU.

    python -m benchmarks.warm_start.probe runs/warm_start --n 340 --seed 7

For tuning the warm start. Figures that are reported come from `python -m trainers.evaluate`, in a real sandbox.
A command that the emulator does not know counts as one that failed; the last column says how often that happened.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from agents.chat import ChatTemplate, Conversation
from agents.models.loading import load_model
from agents.policy import FinishReason
from benchmarks.warm_start.emulator import State, UnsupportedCommandError, run, snapshot
from envs.actions import Command, Malformed, parse
from envs.prompts import Compact
from sandboxes.sandbox import CommandResult
from tasks.assertions.base import Outcome
from tasks.assertions.grade import grade
from tasks.families import MAX_TURNS, MIX, generate
from tasks.task import Task
from trainers.run.pipes import start

STYLE = Compact()


@dataclass(slots=True)
class Episode:
    """One attempt.

    Attributes:
        task: What is attempted.
        conversation: All ids so far.
        files: The workspace.
        turns: Replies so far; `unknown` of them held a command that the emulator does not know.
        final: The submitting reply.
    """

    task: Task
    conversation: Conversation
    files: State
    turns: int = 0
    unknown: int = 0
    final: str | None = None

    @property
    def over(self) -> bool:
        """It submitted, or its turns are spent."""
        return self.final is not None or self.turns >= MAX_TURNS

    def passed(self) -> bool:
        """Whether every assertion holds."""
        return grade(self.task, Outcome(snapshot(self.files), self.task.files(), self.final)).require().passed

    def take(self, ids: Sequence[int], finish: FinishReason) -> None:
        """Act on a reply."""
        reply = self.conversation.reply(ids, finish)
        self.turns += 1
        action = parse(reply)
        if isinstance(action, Malformed):
            self.conversation.observe(STYLE.feedback(action.reason))
        elif isinstance(action, Command):
            observation = self._run(action.text)
            if action.then_submit:
                self.final = action.message
            self.conversation.observe(observation)
        else:
            self.final = action.text

    def _run(self, command: str) -> str:
        try:
            effect = run(self.files, command)
        except UnsupportedCommandError:
            self.unknown += 1
            return STYLE.observation(CommandResult(1, b"", b""))
        self.files = effect.files
        return STYLE.observation(CommandResult(effect.exit_code, effect.stdout.encode(), effect.stderr.encode()))


@dataclass(slots=True)
class Tally:
    """Counts over episodes: `n` of them, `passed`, `submitted`, their `turns`, and turns with `unknown` commands."""

    n: int = 0
    passed: int = 0
    submitted: int = 0
    turns: int = 0
    unknown: int = 0

    def add(self, episode: Episode) -> None:
        """Count one episode that is over."""
        self.n += 1
        self.passed += episode.passed()
        self.submitted += episode.final is not None
        self.turns += episode.turns
        self.unknown += episode.unknown


@dataclass(slots=True)
class Report:
    """Tallies of one decode setting: of all episodes and by family."""

    total: Tally = field(default_factory=Tally)
    families: dict[str, Tally] = field(default_factory=dict)


def probe(
    model: Any, tokenizer: Any, tasks: Sequence[Task], *, temperature: float, seed: int = 0, max_tokens: int = 48
) -> Report:
    """Play each task once.

    Args:
        model: A causal language model.
        tokenizer: Its tokenizer, padding on the left.
        tasks: Generated tasks.
        temperature: 0 decodes greedily.
        seed: Of the sampling.
        max_tokens: Cap of a reply.
    """
    template = ChatTemplate(tokenizer)
    episodes = []
    for task in tasks:
        files = {path: (entry.content or b"").decode() for path, entry in task.files().items()}
        episodes.append(Episode(task, Conversation(template), files))
        episodes[-1].conversation.start("", STYLE.first(task, []))
    torch.manual_seed(seed)
    while active := [episode for episode in episodes if not episode.over]:
        replies = _generate(model, tokenizer, [e.conversation.ids for e in active], temperature, max_tokens)
        for episode, ids in zip(active, replies, strict=True):
            ended = ids[-1] in template.eos_ids
            episode.take(ids, FinishReason.STOP if ended else FinishReason.LENGTH)
    report = Report()
    for episode in episodes:
        report.total.add(episode)
        report.families.setdefault(episode.task.family or "", Tally()).add(episode)
    return report


def _generate(
    model: Any, tokenizer: Any, prompts: Sequence[Sequence[int]], temperature: float, max_tokens: int
) -> list[list[int]]:
    width = max(len(prompt) for prompt in prompts)
    pad, eos = tokenizer.pad_token_id, tokenizer.eos_token_id
    ids = torch.tensor([[pad] * (width - len(prompt)) + list(prompt) for prompt in prompts], device=model.device)
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts], device=model.device)
    settings: dict[str, Any] = {"do_sample": False}
    if temperature:
        settings = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    with torch.inference_mode():
        out = model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=max_tokens,
            pad_token_id=pad,
            eos_token_id=eos,
            **settings,
        )
    replies = out[:, width:].tolist()
    return [row[: row.index(eos) + 1] if eos in row else row for row in replies]


def table(sampled: Report, greedy: Report) -> str:
    """Both reports as text, a line for each family."""
    rows = [
        f"{'family':<16}{'n':>6}{'sampled':>9}{'greedy':>8}   sampled: {'turns':>6}{'submit':>8}"
        f"   greedy: {'turns':>6}{'submit':>8}{'unknown':>9}"
    ]
    pairs = [(name, sampled.families[name], greedy.families[name]) for name in sorted(sampled.families)]
    for name, one, other in [*pairs, ("all", sampled.total, greedy.total)]:
        unknown = one.unknown / max(1, one.turns)
        rows.append(
            f"{name:<16}{one.n:>6}{one.passed / one.n:>9.3f}{other.passed / other.n:>8.3f}"
            f"            {one.turns / one.n:>6.2f}{one.submitted / one.n:>8.2f}"
            f"           {other.turns / other.n:>6.2f}{other.submitted / other.n:>8.2f}{unknown:>9.3f}"
        )
    return "\n".join(rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Command line entry."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.warm_start.probe", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("models", nargs="+", help="model folders (or named models)")
    parser.add_argument("--n", type=int, default=340, help="tasks")
    parser.add_argument("--seed", type=int, default=1_000_003, help="seed of the tasks and of the sampling")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    flags = parser.parse_args(argv)
    tasks = generate(MIX, flags.n, flags.seed)
    for name in flags.models:
        model, tokenizer = load_model(name, device=flags.device)
        sampled = probe(model, tokenizer, tasks, temperature=1.0, seed=flags.seed)
        greedy = probe(model, tokenizer, tasks, temperature=0.0)
        print(f"{name}\n{table(sampled, greedy)}\n", flush=True)
    return 0


if __name__ == "__main__":
    start(main)
