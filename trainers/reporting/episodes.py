"""Sample episodes of the report: chosen, and made safe to show."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from agents.trajectory import Trajectory, Turn
from trainers.reporting.folder import RunFolder
from trainers.run.summary import number

TEXT_CUT = 4000
SAMPLES = 3


@dataclass(frozen=True, slots=True)
class TurnView:
    """One turn as shown: the command apart from what stands before and after it in the reply, without fences."""

    before: str
    command: str
    after: str
    observation: str
    outcome: str


@dataclass(frozen=True, slots=True)
class EpisodeView:
    """One episode as shown.

    Attributes:
        verdict: `passed`, `failed` or `no grade`.
        assertions: Name, verdict and detail of each.
    """

    when: str
    verdict: str
    stop: str
    reward: str
    turns: list[TurnView]
    assertions: list[tuple[str, str, str]]
    error: str


@dataclass(frozen=True, slots=True)
class SampleView:
    """One task with its episodes, first and last."""

    task: str
    intent: str
    change: str
    episodes: list[EpisodeView]


def sample_episodes(run: RunFolder) -> list[SampleView]:
    """Up to three tasks, played first and last: one that got solved, one that broke, one that stayed unsolved.

    From the held-out evaluations at the start and at the chosen step; without those, from the first and last step of
    training that was kept.
    """
    first, last, names = _first_and_last(run)
    before = {t.task_id: t for t in reversed(first)}
    after = {t.task_id: t for t in reversed(last)}
    if before and after and names[0] != names[1]:
        wanted = [(False, True), (True, False), (False, False), (True, True)]
        chosen: list[str] = []
        for pair in wanted:
            match = (k for k in after if k in before and (before[k].passed, after[k].passed) == pair)
            chosen += [k for k in match if k not in chosen][:1]
        chosen += [k for k in after if k in before and k not in chosen]
        if not chosen:
            chosen = list(after)
    else:
        chosen = list(after or before)
    return [_sample(run, k, before.get(k), after.get(k), names) for k in chosen[:SAMPLES]]


def _first_and_last(run: RunFolder) -> tuple[list[Trajectory], list[Trajectory], tuple[str, str]]:
    best = run.best or (run.held_out[-1] if run.held_out else None)
    if best is not None:
        setting = "sampled" if "sampled" in best.settings else next(iter(best.settings))
        first, last = run.held_out[0].step, best.step if best.step else run.held_out[-1].step
        episodes = (run.held_out_episodes(first, setting), run.held_out_episodes(last, setting))
        if any(episodes):
            return *episodes, (f"held-out, {setting}, step {first}", f"held-out, {setting}, step {last}")
    steps = run.training_steps()
    if not steps:
        return [], [], ("", "")
    a, b = steps[0], steps[-1]
    return run.training_episodes(a), run.training_episodes(b), (f"pool, step {a}", f"pool, step {b}")


def _sample(
    run: RunFolder, task_id: str, before: Trajectory | None, after: Trajectory | None, names: tuple[str, str]
) -> SampleView:
    views = [_episode(t, name) for t, name in ((before, names[0]), (after, names[1])) if t is not None]
    if names[0] == names[1]:
        views = views[-1:]
    return SampleView(
        task=shown(task_id),
        intent=shown(run.intents.get(task_id, "")),
        change=" to ".join(v.verdict for v in views),
        episodes=views,
    )


def _episode(t: Trajectory, when: str) -> EpisodeView:
    verdict = "no grade" if t.passed is None else ("passed" if t.passed else "failed")
    return EpisodeView(
        when=when,
        verdict=verdict,
        stop=t.stop_reason,
        reward=number(t.reward, 3),
        turns=[_turn(turn) for turn in t.turns],
        assertions=[
            (shown(str(a.get("name", ""))), str(a.get("verdict", "")), shown(str(a.get("detail") or ""), 400))
            for a in t.assertions
        ],
        error=shown(t.error or ""),
    )


def _turn(turn: Turn) -> TurnView:
    before, command, after = turn.reply, turn.command or "", ""
    if command and command in turn.reply:  # elsewhere it was carried out otherwise than it was written
        before, _, after = turn.reply.partition(command)
        before, after = re.sub(r"`{3,}[^\n`]*\n\s*$", "", before), re.sub(r"^\s*`{3,}[^\S\n]*\n?", "", after)
    return TurnView(
        shown(before.strip()), shown(command), shown(after.strip()), shown(turn.observation), _turn_outcome(turn)
    )


def _turn_outcome(turn: Turn) -> str:
    parts = [turn.action]
    if turn.exit_code is not None:
        parts.append(f"exit {turn.exit_code}")
    if turn.signal:
        parts.append(f"progress {turn.signal:+.2f}")
    if turn.candidates:
        parts.append(f"{len(turn.candidates)} resampled")
    return ", ".join(p for p in parts if p)


def shown(text: str, limit: int = TEXT_CUT) -> str:
    """Text from a policy or a sandbox, safe to show: control and direction characters made visible, length capped."""
    if len(text) > limit:
        text = f"{text[: limit // 2]}\n[... {len(text) - limit} characters left out ...]\n{text[-limit // 2 :]}"
    return "".join(_visible(c) for c in text)


def _visible(c: str) -> str:
    if c in "\n\t":
        return c
    return f"<U+{ord(c):04X}>" if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co") else c
