"""What a report shows of a campaign beside its verdicts: each run in a line, each condition's means, curves and budget.

Means and curves are over the runs that a verdict compares first: those that ended as planned and have figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from trainers.campaigns.plan import Campaign, Figure, Manifest, RunEntry
from trainers.curves import Curve, Point, SeedMean, curve_over_seeds, mean_over_seeds
from trainers.measure import Measurement
from trainers.rank import NeededRank, needed_rank
from trainers.reporting.folder import RunFolder
from trainers.reporting.page import decode_rows
from trainers.reporting.run_charts import smooth
from trainers.run.record import BEST_FOLDERS, REPORT
from trainers.run.summary import DECIDING
from trainers.verdicts import SeedResult

PASS_RATE, REWARD = "Held-out pass rate", "Held-out reward"
POOL = {
    "Pool pass rate": "env/pass_rate",
    "Turns per episode, pool": "env/mean_turns",
    "Entropy per token (nats)": "sampling/entropy",
    "Tied pairs of attempts": "gigpo/tied_pair_frac",
    "Cosine of the gradient to that of plain GRPO": "cosine/gradient",
    "The same, as Adam scales it": "cosine/gradient_adam",
    "Cosine of advantages to those without token operators": "credit/cosine_uniform",
    "Signal variance of execution tokens, after operators": "credit/post_exec_signal_var",
}
"""Curves from the log of each training step, where runs have it: the metric of each."""
SHARES = (PASS_RATE, "Pool pass rate", "Tied pairs of attempts")
"""Figures that are shown as percent."""

SAMPLING = ("temperature", "max_turn_tokens", "max_episode_tokens", "max_turns", "think_budget", "think_stop",
            "turn_resample")  # fmt: skip
"""Settings of how training episodes are sampled; those that are off are not shown."""


def deciding(arms: dict[str, Measurement]) -> Measurement:
    """Of several decode settings, the one that conditions are compared by."""
    return arms.get(DECIDING) or next(iter(arms.values()))


def compared(figure: Figure, found: RunFolder | None) -> Measurement | None:
    """What a campaign compares of a run; `None` where there is none yet."""
    if found is not None and figure is Figure.LAST and found.held_out:
        return deciding(found.held_out[-1].settings)
    if found is not None and figure is Figure.CONFIRMED and found.confirmation:
        return deciding(found.confirmation.after) if found.confirmation.after else None
    return None


def last_step(found: RunFolder) -> int:
    """The last step that was logged."""
    return max((int(step["step"]) for step in found.steps), default=0)


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run.

    Attributes:
        state: How it ended, or where it stands.
        result: What is compared of it.
        excluded: Episodes of that measurement without a grade, which are in no mean.
        tokens: Sampled in training; `seconds` of wall time. Both are `None` before its end.
        warnings: How many guards and notes it has.
        rank: What its chosen adapter needs of its rank; `None` without one.
        page: Its own report, from the campaign's folder; `None` where there is none.
        left_out: Why it is in no mean; empty where it is.
    """

    state: str
    result: SeedResult
    excluded: int
    tokens: int | None
    seconds: float | None
    warnings: int
    rank: NeededRank | None
    page: str | None
    left_out: str

    @classmethod
    def of(
        cls,
        campaign: Campaign,
        run: RunEntry,
        state: str,
        result: SeedResult,
        measured: Measurement | None,
        found: RunFolder | None,
    ) -> RunLine:
        """That of a run whose folder is `found`; `None` before it has begun."""
        summary = (found.summary if found else None) or {}
        seconds = summary.get("wall_seconds")
        page = f"{run.folder}/{REPORT}"
        return cls(
            state=state,
            result=result,
            excluded=measured.infrastructure if measured else 0,
            tokens=(summary.get("timing") or {}).get("sampled_tokens"),
            seconds=float(seconds) if seconds is not None else None,
            warnings=len(found.warnings) if found else 0,
            rank=needed_rank(campaign.folder / run.folder / BEST_FOLDERS[0]),
            page=page if (campaign.folder / page).is_file() else None,
            left_out="; ".join(reason for reason in (result.cut_short, result.unusable) if reason),
        )


@dataclass(frozen=True, slots=True)
class ConditionFigures:
    """One condition.

    Attributes:
        given: What the file says of it beyond the settings of all conditions.
        planned: Runs that the file has; `seeds` those in the means.
        pass_rate: Mean over seeds; `reward` the same, `None` where rewards are not compared.
        curves: Title of a figure to its learning curve.
        tokens: Sampled a run, mean over the runs in the means; `steps` and `seconds` likewise. `None` where not known.
        all_seconds: Of all its runs, also of those left out.
        decode: What was sampled to what, and how.
    """

    name: str
    given: Mapping[str, Any]
    planned: int
    seeds: tuple[int, ...]
    pass_rate: SeedMean | None
    reward: SeedMean | None
    curves: Mapping[str, Curve]
    steps: float | None
    tokens: float | None
    seconds: float | None
    all_seconds: float | None
    decode: tuple[tuple[str, str], ...]


def condition_figures(
    campaign: Campaign,
    lines: Sequence[RunLine],
    folders: Mapping[tuple[str, int], RunFolder | None],
    manifest: Manifest,
) -> list[ConditionFigures]:
    """Each condition of the file, in its order.

    Args:
        campaign: The file.
        lines: One for each run.
        folders: Those of the runs, by condition and seed.
        manifest: Has all settings of each condition.
    """
    out = []
    for name, given in campaign.file.conditions.items():
        mine = [line for line in lines if line.result.condition == name]
        whole = [line for line in mine if not line.left_out]
        found = {str(line.result): folders[name, line.result.seed] for line in whole}
        rewards = [line.result.reward for line in whole if line.result.reward is not None]
        compared = bool(rewards) and len(rewards) == len(whole)
        out.append(
            ConditionFigures(
                name=name,
                given=given,
                planned=len(mine),
                seeds=tuple(line.result.seed for line in whole),
                pass_rate=mean_over_seeds([line.result.pass_rate or 0.0 for line in whole]),
                reward=mean_over_seeds(rewards) if compared else None,
                curves=_curves({run: folder for run, folder in found.items() if folder}, reward=compared),
                steps=_mean([line.result.steps for line in whole]),
                tokens=_mean([line.tokens for line in whole]),
                seconds=_mean([line.seconds for line in whole]),
                all_seconds=sum(line.seconds or 0.0 for line in mine) or None,
                decode=_decode(name, folders, manifest.conditions[name]),
            )
        )
    return out


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known and len(known) == len(values) else None


def _curves(runs: Mapping[str, RunFolder], *, reward: bool) -> dict[str, Curve]:
    held_out = {PASS_RATE: "pass_rate", **({REWARD: "reward"} if reward else {})}
    points: dict[str, list[tuple[str, Sequence[Point]]]] = {
        title: [(name, _held_out(run, figure)) for name, run in runs.items()] for title, figure in held_out.items()
    }
    points |= {title: [(name, smooth(run.series(key))) for name, run in runs.items()] for title, key in POOL.items()}
    curves = {title: curve_over_seeds(of_runs) for title, of_runs in points.items()}
    return {title: curve for title, curve in curves.items() if curve is not None}


def _held_out(run: RunFolder, figure: str) -> list[Point]:
    values = [(float(point.step), getattr(deciding(point.settings), figure)) for point in run.held_out]
    return [(step, value) for step, value in values if value is not None]


def _decode(
    name: str, folders: Mapping[tuple[str, int], RunFolder | None], settings: Mapping[str, Any]
) -> tuple[tuple[str, str], ...]:
    """What the runs say, each way once; that of training is a setting."""
    rows: dict[tuple[str, str], None] = {}
    for (condition, _), folder in folders.items():
        if condition == name and folder is not None:
            rows |= dict.fromkeys(row for row in decode_rows(folder) if row[0].startswith("held-out"))
    said = ", ".join(f"{key}={settings[key]}" for key in SAMPLING if settings.get(key) not in (None, 0, "none", False))
    return (*rows, ("pool (training)", said or "-"))
