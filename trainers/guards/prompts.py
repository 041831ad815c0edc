"""Guard 6, prompt parity: that the policy is spoken to as it was made for, and in training as in measuring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from agents.policy import FinishReason
from agents.rollout import RolloutResult
from agents.trajectory import Trajectory
from trainers.guards.events import Facts, LeftBehind, Measured
from trainers.guards.guard import Alarm, Guard, note, warn
from trainers.guards.levels import GuardName

GRAM = 4
"""Ids in a row that are compared within a reply."""
SHORT = 16
"""Replies with fewer ids are too short to repeat themselves."""


@dataclass
class PromptParity(Guard):
    """Other prompts than the policy knows, other prompts when measured, or replies that only repeat themselves.

    Attributes:
        garbage: Share of the first episodes' first replies that may repeat themselves.
        unread: Share of the first step's replies that may be no command and no answer.
    """

    name: ClassVar[str] = GuardName.PROMPT_PARITY
    garbage: float = 0.25
    unread: float = 0.8
    raw: bool = False
    cap: int = 0
    template_ids: Sequence[str] = ()
    _trained: dict[str, list[str]] = field(default_factory=dict)
    _measured: dict[str, list[str]] = field(default_factory=dict)

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """The policy's own card."""
        self.raw, self.template_ids = facts.raw_prompts, facts.template_ids
        self.cap = facts.sampling.max_tokens
        if why := facts.card.mismatch(facts.environment, facts.prompt_hash):
            yield warn("other_prompts", f"prompts: {why}. Use the prompt_style and the version it was trained with.")

        if facts.overrun is not None:
            yield warn("overrun", f"prompts: {facts.overrun}")

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """What the first replies look like, and what they answered to."""
        self._trained = _prompts(played.trajectories)
        yield from self._compare(step)
        if step != 1:
            return
        yield from self._malformed(played.trajectories)
        first = [episode.turns[0].ids for episode in played.trajectories if episode.turns]
        bad = sum(repeats_itself(ids) for ids in first)
        if first and bad / len(first) > self.garbage:
            tokens = f" and received {', '.join(self.template_ids)}" if self.template_ids and not self.raw else ""
            yield warn(
                "garbage",
                f"prompts: {bad} of {len(first)} first replies ({bad / len(first):.0%}) only repeat themselves: the "
                f"policy cannot read the prompt{tokens}. "
                + (
                    "Start from a policy that was trained on such prompts."
                    if self.raw
                    else "A base model wants no chat template: --prompt_style base, or start from its instruct version."
                ),
            )

    def _malformed(self, episodes: Sequence[Trajectory]) -> Iterator[Alarm]:
        turns = [(episode.task_id, turn) for episode in episodes for turn in episode.turns]
        bad = [(task, turn) for task, turn in turns if turn.action == "malformed"]
        if not bad or len(bad) / len(turns) <= self.unread:
            return
        task, turn = bad[0]
        cut = sum(turn.finish is FinishReason.LENGTH for _, turn in bad) / len(bad)
        style = "base, raw text" if self.raw else "a chat"
        yield warn(
            "unread",
            f"prompts: {len(bad)} of the {len(turns)} replies of step 1 ({len(bad) / len(turns):.0%}) are no command "
            f"and no answer. The first (task {task}): {_shortened(turn.reply)}. Likely reasons: the prompt_style does "
            f"not fit the policy (it is spoken to as {style}), its chat template is another one, it was never shown "
            "such turns (a warm start with `python -m trainers.sft` teaches them), or replies are cut before they act "
            f"({cut:.0%} of these reached their cap{f' of {self.cap} tokens' * bool(self.cap)}: max_turn_tokens).",
        )

    def measured(self, held_out: Measured) -> Iterator[Alarm]:
        """What held-out episodes answered to."""
        everything = [episode for episodes in held_out.episodes.values() for episode in episodes]
        if everything:
            self._measured = _prompts(everything)
        yield from self._compare(held_out.step)

    def left(self, behind: LeftBehind) -> Iterator[Alarm]:
        """What the newest checkpoint tells the policy, and what comes of it, when only its folder is known."""
        if behind.skipped:
            yield note("not_looked_back", f"prompts: {behind.folder} was not compared with the run: {behind.skipped}.")
            return
        found = list(behind.problems[:1])
        pairs = list(zip(behind.then, behind.now, strict=True))
        other = [then.task_id for then, now in pairs if then.prompt_ids != now.prompt_ids]
        if other:
            found.append(f"{len(other)} of {len(pairs)} tasks get another prompt (the first: {other[0]})")
        elif behind.compares_replies and 2 * sum(_first_reply(a) != _first_reply(b) for a, b in pairs) > len(pairs):
            found.append(
                f"more than half of {len(pairs)} episodes begin with another reply; passed "
                f"{sum(bool(a.passed) for a, _ in pairs)} in the run, {sum(bool(b.passed) for _, b in pairs)} now"
            )
        if found:
            yield warn(
                "left_behind",
                f"prompts: {behind.folder}, opened from its folder alone, is not what the run measured: "
                f"{'; '.join(found)}. Figures of `python -m trainers.evaluate` will not be those of the run: name its "
                "--prompt_style, --max_tokens and --max_turns, and report this.",
            )

    def _compare(self, step: int) -> Iterator[Alarm]:
        for name in sorted(self._trained.keys() & self._measured.keys()):
            if (trained := self._trained[name]) != (measured := self._measured[name]):
                yield warn(
                    "train_eval",
                    f"prompts: {name or 'the environment'} speaks to the policy otherwise in training than in "
                    f"measuring (prompt hash and tokenizer {' '.join(trained)} and {' '.join(measured)}, step {step}): "
                    "the held-out figure is that of another task. Use one prompt_style, one chat template.",
                )


def _first_reply(episode: Trajectory) -> list[int]:
    return list(episode.turns[0].ids) if episode.turns else []


def repeats_itself(ids: Sequence[int]) -> bool:
    """Whether fewer than half of a reply's runs of four ids are different ones. Short replies never are."""
    if len(ids) < SHORT:
        return False
    grams = [tuple(ids[i : i + GRAM]) for i in range(len(ids) - GRAM + 1)]
    return len(set(grams)) < len(grams) / 2


def _shortened(text: str, size: int = 160) -> str:
    """As a literal, so that blanks and special tokens show."""
    return repr(text if len(text) <= size else f"{text[:size]}...")


def _prompts(episodes: Sequence[Trajectory]) -> dict[str, list[str]]:
    """Prompt hashes and tokenizers that were at work, by environment."""
    out: dict[str, set[str]] = {}
    for episode in episodes:
        if prompt_hash := episode.environment.get("prompt_hash"):
            name = str(episode.environment.get("env", ""))
            out.setdefault(name, set()).add(f"{prompt_hash}/{episode.tokenizer or '?'}")
    return {name: sorted(found) for name, found in out.items()}
