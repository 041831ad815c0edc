"""Guards of what is sampled: prompts, ends of replies, seeds, resampling."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import quantiles
from typing import ClassVar

from agents.policy import FinishReason
from agents.rollout import RolloutResult
from agents.trajectory import Trajectory, Turn, groups
from trainers.guards.guard import Alarm, Facts, Fires, Gauge, Guard, LeftBehind, Measured, Window, note, warn
from trainers.guards.levels import GuardName

# -- Guard 6, prompt parity: that the policy is spoken to as it was made for, and in training as in measuring ---------

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
            f"and no answer. The first (task {task}): {_shortened(turn.reply)}. Likely reasons: prompt_style or "
            f"protocol do not fit the policy (it is spoken to as {style}), its chat template is another one, it was "
            "never shown such turns (a warm start with `python -m trainers.sft` teaches them), or replies are cut "
            f"before they act ({cut:.0%} of these reached their cap{f' of {self.cap} tokens' * bool(self.cap)}: "
            "max_turn_tokens).",
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


# -- Guard 7, stop and truncation: replies that are cut, text that is written on, and other caps when measured --------

LIMITS = ("tools", "revise", "stops")
"""Settings of an environment that bound an episode, beside its turns, which are each task's own."""


@dataclass
class StopAndTruncation(Guard):
    """Ends that the policy did not choose.

    Attributes:
        limit: Share of replies that may reach their cap, over the last steps; likewise of episodes with text behind a
            stop sequence or behind the answer.
    """

    name: ClassVar[str] = GuardName.STOP_AND_TRUNCATION
    limit: float = 0.3
    cap: int = 0
    _capped: Window = field(default_factory=lambda: Window(3))
    _past_stop: Window = field(default_factory=lambda: Window(3))
    _past_answer: Window = field(default_factory=lambda: Window(3))
    _settings: dict[str, str] = field(default_factory=dict)

    def begin(self, facts: Facts) -> Iterator[Alarm]:
        """Caps and temperatures of training and of the arms, side by side."""
        self.cap = facts.sampling.max_tokens
        train = facts.sampling
        for name, arm in facts.arms.items():
            if arm.caps != train.caps:
                yield warn(
                    "caps",
                    f"stops: training samples with {train.caps}, the arm '{name}' with {arm.caps}: the figures are of "
                    "two settings. Use the same caps.",
                )
            if not arm.greedy and arm.temperature != train.temperature:
                yield note(
                    "temperature",
                    f"stops: training samples at temperature {train.temperature:g}, the arm '{name}' at "
                    f"{arm.temperature:g}: pool and held-out rates are not to be compared.",
                )

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Shares of this step."""
        episodes = played.trajectories
        turns = [turn for episode in episodes for turn in episode.turns]
        self._settings = {}
        for episode in episodes:
            self._settings |= _limits(episode.environment)
        shares = (
            ("capped", self._capped, [turn.finish is FinishReason.LENGTH for turn in turns]),
            ("past_stop", self._past_stop, _notes(played, "text_after_stop")),
            ("past_answer", self._past_answer, _notes(played, "text_after_answer")),
        )
        for kind, window, found in shares:
            if window.add(sum(found) / len(found) if found else None) and window.mean > self.limit:
                yield warn(kind, self._message(kind, window))

    def _message(self, kind: str, window: Window) -> str:
        head = f"stops: over {len(window)} steps {window.mean:.0%} of"
        if kind == "capped":
            return (
                f"{head} the replies reached their cap{f' of {self.cap} tokens' * bool(self.cap)} and were cut: what "
                "they meant is lost, and a torn reply is judged. Raise max_turn_tokens, or the task's turn_tokens."
            )
        if kind == "past_stop":
            return (
                f"{head} the episodes write on behind a stop sequence, which cuts it off: the score says how well they "
                "are cut, not that the policy knows when to stop. Measure start and end with the same stops."
            )
        return (
            f"{head} the episodes write text behind their answer: a lenient grader may read the wrong part. Add a stop "
            "sequence, or ask for the answer last."
        )

    def measured(self, held_out: Measured) -> Iterator[Alarm]:
        """Limits of held-out episodes against those of training."""
        measured: dict[str, str] = {}
        for episodes in held_out.episodes.values():
            for episode in episodes:
                measured |= _limits(episode.environment)
        for name in sorted(measured.keys() & self._settings.keys()):
            if measured[name] != self._settings[name]:
                yield warn(
                    "limits",
                    f"stops: {name} is bounded by {self._settings[name]} in training and by {measured[name]} when "
                    "measured: the figures are of two settings. Use the same for both.",
                )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """What is cut, and what is written on."""
        windows = (
            ("replies cut at their cap", self._capped),
            ("episodes with text behind a stop", self._past_stop),
            ("episodes with text behind the answer", self._past_answer),
        )
        for name, window in windows:
            if len(window):
                yield Gauge(name, window.mean, Fires.ABOVE, self.limit)


def _notes(played: RolloutResult, key: str) -> list[bool]:
    """Which episodes have text there; only those whose environment looks for it."""
    values = [episode.notes.get(key) for episode in played.trajectories]
    return [value > 0 for value in values if value is not None]


def _limits(environment: dict[str, object]) -> dict[str, str]:
    """What bounds an episode, by environment."""
    found = {key: environment[key] for key in LIMITS if key in environment}
    return {str(environment.get("env", "")): str(found)} if found else {}


# -- Guard 5, seeds: that attempts at one task are independent --------------------------------------------------------


@dataclass
class Seeds(Guard):
    """Attempts at one task that share their random numbers. A policy that is sure of itself is no fault."""

    name: ClassVar[str] = GuardName.SEEDS

    def episodes(self, step: int, played: RolloutResult) -> Iterator[Alarm]:
        """Equal seeds within a group, before they show in what is sampled."""
        shared = total = 0
        for group in groups(played.trajectories).values():
            counts = Counter(episode.seed for episode in group if episode.seed is not None)
            total += len(group)
            shared += sum(count for count in counts.values() if count > 1)
        if shared:
            yield warn(
                "equal_seeds",
                f"seeds: {shared} of {total} episodes of step {step} have the seed of another attempt at their task. "
                "Derive each from run seed, step, task and attempt (`agents.seeds.derive_seed`).",
            )

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """Episodes that are equal and that independent sampling would not have made equal."""
        share = metrics.get("env/impossible_duplicate_frac", 0.0)
        if share == 0.0:
            return
        episodes = metrics.get("env/episodes")
        # Several batches of episodes may make a step: then both are means over them.
        count = f"{share:.2g}" if episodes is None else f"{max(1, round(share * episodes))} of {round(episodes)}"
        yield warn(
            "repeated_samples",
            f"repeated samples: {count} episodes of step {step} are equal, id for id, to another attempt at their "
            "task, and less than once in a million times by chance. Their seeds are equal, or the sampler ignores "
            "them: such groups teach nothing and count as more evidence than they are.",
        )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """Episodes that are equal, and not by chance."""
        if (share := metrics.get("env/impossible_duplicate_frac")) is not None:
            yield Gauge("attempts that are equal, not by chance", share, Fires.ABOVE, 0.0)


# -- Guard 12, resample budget: whether turn resampling selects, and what it costs ------------------------------------


@dataclass
class ResampleBudget(Guard):
    """What is wrong with turn resampling: the wrapper counts and is asked; the episodes say what it cost and gained.

    Attributes:
        extra_limit: Ids sampled and thrown away for each id kept, above which the cost is said by itself.
        target: Share of turns that are meant to be resampled (`turn_resample_rate`), for the suggested eta.
    """

    name: ClassVar[str] = GuardName.RESAMPLE_BUDGET
    extra_limit: float = 1.0
    target: float = 0.15
    warning: Callable[[], str | None] | None = None
    _changes: Window = field(default_factory=lambda: Window(512))
    """Change of uncertainty of the first sample of a turn against the turn before."""
    _extra: Window = field(default_factory=lambda: Window(5))
    _resampled: Window = field(default_factory=lambda: Window(256))
    """What turns that were resampled earned; `_kept` what the others did."""
    _kept: Window = field(default_factory=lambda: Window(256))

    def begin(self, facts: Facts) -> None:
        """Whom to ask."""
        self.warning, self.target = facts.resampling, facts.resample_rate

    def episodes(self, step: int, played: RolloutResult) -> None:
        """Cost and gain of this step."""
        if self.warning is None:
            return
        kept = extra = 0
        for episode in played.trajectories:
            for turn in episode.turns:
                kept += len(turn.ids)
                extra += sum(len(candidate.ids) for candidate in turn.candidates)
                if turn.index:
                    (self._resampled if turn.candidates else self._kept).add(turn.signal)
            for change in _changes(episode):
                self._changes.add(change)
        self._extra.add(extra / kept if kept else None)

    def step(self, step: int, metrics: Mapping[str, float]) -> Iterator[Alarm]:
        """The wrapper's message, with figures; each kind of it once."""
        if self.warning is None:
            return
        if (message := self.warning()) is not None:
            yield warn(_kind_of(message), f"{message} {self._figures(metrics)}".rstrip())
        elif self._extra.full and self._extra.mean > self.extra_limit:
            yield warn(
                "cost",
                f"turn_resample throws away {self._extra.mean:.1f} ids for each that it keeps. Lower "
                f"turn_resample_rate or turn_resample_max_try. {self._figures(metrics)}".rstrip(),
            )

    def gauges(self, metrics: Mapping[str, float]) -> Iterator[Gauge]:
        """What resampling costs."""
        if self.warning is not None and len(self._extra):
            yield Gauge("ids thrown away for each kept", self._extra.mean, Fires.ABOVE, self.extra_limit)

    def _figures(self, metrics: Mapping[str, float]) -> str:
        parts = []
        rate, exhausted = metrics.get("t2po/trigger_rate"), metrics.get("t2po/exhausted_frac")
        if rate:
            parts.append(f"fired on {rate:.0%} of eligible turns")
            if exhausted is not None:
                parts.append(f"{exhausted / rate:.0%} of them used every sample and stayed in the band")
        if len(self._extra):
            parts.append(f"{self._extra.mean:.2f} extra ids for each kept")
        if len(self._resampled) and len(self._kept):
            parts.append(f"resampled turns earn {self._resampled.mean:.3f}, kept ones {self._kept.mean:.3f}")
        if len(self._changes) >= 20:
            cuts = quantiles(self._changes.values, n=100, method="inclusive")
            parts.append(
                f"change of uncertainty p25 {cuts[24]:.2g}, median {cuts[49]:.2g}: suggested eta "
                f"{cuts[max(0, round(100 * self.target) - 1)]:.2g}"
            )
        return f"({'; '.join(parts)})" if parts else ""


def _kind_of(message: str) -> str:
    """What a message of the wrapper is about, whatever its counts are."""
    return re.sub(r"[^a-z]+", "_", message.lower())[:48].strip("_")


def _changes(episode: Trajectory) -> Iterator[float]:
    """Absolute change of uncertainty from turn to turn, as the decision to resample saw it."""
    for before, turn in zip(episode.turns, episode.turns[1:], strict=False):
        first = _first_sample(turn)
        if before.uncertainty is not None and first is not None:
            yield abs(first - before.uncertainty)


def _first_sample(turn: Turn) -> float | None:
    """Uncertainty of the sample that was drawn first: the oldest candidate, or the turn's own."""
    return turn.candidates[0].signal if turn.candidates else turn.uncertainty
