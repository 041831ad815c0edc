"""What the runs of a campaign came to: a table of where each stands, and what they allow to say.

The figures that are compared were fixed before the runs: the last held-out measurement, or the confirmation on fresh
tasks. That of the step that was chosen, by these very figures, is biased upwards and is shown and never compared.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.table import Table

from tasks.model import counted
from trainers.campaigns.beside import Beside, beside_lines, figures_beside
from trainers.campaigns.figures import ConditionFigures, RunLine, compared, condition_figures, deciding, last_step
from trainers.campaigns.plan import OVER, Campaign, Figure, Manifest, RunEntry, ended_of
from trainers.errors import RunFolderError
from trainers.jsonl import append_line, json_text, read_lines, write_json
from trainers.reporting.folder import RunFolder, read_run
from trainers.run.folder import is_locked
from trainers.run.record import METRICS, TASKS
from trainers.run.summary import Stopped, rate_text
from trainers.verdicts import Basis, Look, SeedResult, Verdict, verdicts

REPORT_FILE = "report.json"
LOOKS_FILE = "looks.jsonl"
"""One line for each look at results that had not been tested before."""
REWARDS = ("env", "reward", "turn_penalty", "subtract_baseline", "agent_errors", "verifier_network", "max_turns")
"""Settings that say what a reward is: rewards of conditions that differ in one are not compared."""


class State(StrEnum):
    """Of a run that has not ended."""

    WAITING = "waiting"
    RUNNING = "running"
    KILLED = "killed"


def state_of(folder: Path, run: RunEntry) -> State | Stopped:
    """Where a run stands; `folder` is the campaign's."""
    place = folder / run.folder
    if is_locked(place):
        return State.RUNNING
    if run.ended is not None:
        return run.ended
    return State.KILLED if place.is_dir() else State.WAITING


def planned(campaign: Campaign) -> tuple[list[RunEntry], list[RunEntry]]:
    """The runs of the file, as the folder's manifest has them, and those that are in the folder alone.

    Raises:
        RunFolderError: Nothing was run yet, or not with this file.
    """
    manifest = Manifest.read(campaign.folder)
    names = list(campaign.names())
    if not manifest.runs:
        raise RunFolderError(f"{campaign.folder}: nothing was run yet: `python -m trainers.campaign run` starts")
    if missing := [name for name in names if name not in manifest.runs]:
        condition, seed = missing[0]
        raise RunFolderError(
            f"{campaign.folder}: {len(missing)} runs of {campaign.path} are not in it, such as {condition} seed "
            f"{seed}: `python -m trainers.campaign run` adds them"
        )
    if other := [name for name in campaign.file.conditions if not _as_it_was_run(campaign.given(name), manifest, name)]:
        raise RunFolderError(
            f"{campaign.path}: conditions.{other[0]}: says other settings than when it was run: "
            "`python -m trainers.campaign run` shows what differs, and takes up what means the same"
        )
    runs = [manifest.runs[name] for name in names]
    runs = [replace(run, ended=run.ended or ended_of(campaign.folder, run)) for run in runs]
    return runs, [run for key, run in manifest.runs.items() if key not in names]


def _as_it_was_run(given: Mapping[str, Any], manifest: Manifest, condition: str) -> bool:
    """Whether what a file says of a condition is what was run: in the same words, or as what those came to."""
    before, settings = manifest.given[condition], manifest.conditions[condition]
    return all(name in given and given[name] in (before.get(name), settings.get(name)) for name in {**before, **given})


def _read(folder: Path, run: RunEntry) -> RunFolder | None:
    """Its folder; `None` before it has begun."""
    place = folder / run.folder
    return read_run(place) if (place / METRICS).exists() else None


def status_table(campaign: Campaign) -> Table:
    """One row for each run: state, step, last and best held-out measurement.

    Raises:
        RunFolderError: See `planned`; or a file of a run is damaged.
    """
    table = Table(show_edge=False, pad_edge=False)
    for column in ("condition", "seed", "state", "step", "last held-out", "best held-out (chosen, so leans high)"):
        table.add_column(column)
    runs, _ = planned(campaign)
    for run in runs:
        found = _read(campaign.folder, run)
        cells = ["-", "-", "-"]
        if found is not None:
            last, best = (found.held_out[-1] if found.held_out else None), found.best
            cells = [
                str(last_step(found)),
                *("-" if p is None else rate_text(deciding(p.settings)) for p in (last, best)),
            ]
            cells[2] += f" at step {best.step}" if best else ""
        table.add_row(run.condition, str(run.seed), state_of(campaign.folder, run), *cells)
    return table


# -- The report -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Report:
    """What a campaign allows to say.

    Attributes:
        results: One for each run.
        judged: One for each condition but the baseline.
        notes: What a reader must know beside it.
        conditions: Figures of each, the baseline's too; `runs` a line for each run.
        beside: What the runs measured beside the compared figure.
        environment: Machine and versions of one of the runs.
    """

    campaign: Campaign
    look: Look
    results: tuple[SeedResult, ...]
    judged: tuple[Verdict, ...]
    notes: tuple[str, ...]
    conditions: tuple[ConditionFigures, ...]
    runs: tuple[RunLine, ...]
    beside: tuple[Beside, ...]
    environment: Mapping[str, Any]

    @property
    def lead(self) -> str:
        """What is compared with what."""
        what = {
            Figure.LAST: "the last held-out measurement of each run",
            Figure.CONFIRMED: "the chosen step of each run on fresh tasks",
        }[self.campaign.file.figure]
        return f"{what}; baseline {self.campaign.baseline}"

    def lines(self) -> list[str]:
        """For people."""
        out = [f"{self.campaign.file.name}: {self.lead}", ""]
        for condition, group in groupby(sorted(self.results, key=_by_condition(self.campaign)), lambda r: r.condition):
            out.append(f"{condition}:")
            out += [f"  seed {result.seed}: {_counts(result)}" for result in group]
        for verdict in self.judged:
            out += ["", *verdict.lines()]
        if self.beside:
            out += ["", *beside_lines(self.beside)]
        return out + ["", *(f"note: {note}" for note in self.notes)] if self.notes else out

    def to_json(self) -> dict[str, Any]:
        """All of it, as data."""
        return {
            "name": self.campaign.file.name,
            "figure": self.campaign.file.figure,
            "baseline": self.campaign.baseline,
            "look": asdict(self.look),
            "results": [{**asdict(r), "cut_short": r.cut_short, "unusable": r.unusable} for r in self.results],
            "verdicts": [asdict(verdict) for verdict in self.judged],
            "conditions": [asdict(condition) for condition in self.conditions],
            "runs": [
                {"condition": line.result.condition, "seed": line.result.seed, **_without_result(line)}
                for line in self.runs
            ],
            "beside": [asdict(one) for one in self.beside],
            "notes": self.notes,
            "lines": self.lines(),
        }


def _without_result(line: RunLine) -> dict[str, Any]:
    return {name: value for name, value in asdict(line).items() if name != "result"}


def _by_condition(campaign: Campaign) -> Any:
    order = list(campaign.file.conditions)
    return lambda result: (order.index(result.condition), result.seed)


def _counts(result: SeedResult) -> str:
    rate = f"{result.passed}/{result.graded} = {100 * result.pass_rate:.1f} %" if result.pass_rate is not None else ""
    return ", ".join(part for part in (rate, result.cut_short, result.unusable) if part)


def make_report(campaign: Campaign, *, early: bool = False) -> Report:
    """Compare the conditions and count the look; writes report.json into the campaign's folder.

    Args:
        campaign: What was planned.
        early: Also while runs are missing, which are then counted as cut short.

    Raises:
        RunFolderError: Runs are not over and `early` is false; there is nothing to compare; a file is damaged.
    """
    if len(campaign.file.conditions) < 2:
        raise RunFolderError(f"{campaign.path}: conditions: nothing to compare: there is one condition")
    runs, others = planned(campaign)
    folder = campaign.folder
    states = {run: state_of(folder, run) for run in runs}
    ended = (*OVER, Stopped.FAILED)
    if (missing := [run for run in runs if states[run] not in ended]) and not early:
        raise RunFolderError(
            f"{folder}: {len(missing)} of {len(runs)} runs have not ended, such as {missing[0]} "
            f"({states[missing[0]]}). `run` goes on with them; `report --early` compares what is there, which counts "
            "as a look"
        )
    manifest = Manifest.read(folder)
    settings = manifest.conditions
    same_reward = all(
        settings[name].get(key) == settings[campaign.baseline].get(key)
        for name in campaign.file.conditions
        for key in REWARDS
    )
    folders = {(run.condition, run.seed): _read(folder, run) for run in runs}
    lines = [
        _line(
            campaign,
            run,
            states[run],
            folders[run.condition, run.seed],
            steps=int(settings[run.condition]["max_steps"]),
            same_reward=same_reward,
        )
        for run in runs
    ]
    results = tuple(line.result for line in lines)
    notes = (*_notes(campaign, runs, others, same_reward=same_reward), *_machines(folders))
    look = _look(campaign, results)
    judged = tuple(verdicts(results, campaign.baseline, look=look))
    lines.sort(key=lambda line: _by_condition(campaign)(line.result))
    shown = tuple(condition_figures(campaign, lines, folders, manifest))
    environment = next((found.environment for found in folders.values() if found and found.environment), {})
    beside = tuple(figures_beside(campaign, lines, folders))
    report = Report(campaign, look, results, judged, notes, shown, tuple(lines), beside, environment)
    write_json(folder / REPORT_FILE, report.to_json())
    return report


def _line(
    campaign: Campaign,
    run: RunEntry,
    state: State | Stopped,
    found: RunFolder | None,
    *,
    steps: int,
    same_reward: bool,
) -> RunLine:
    """One run, of which `steps` were planned; without a folder (`found`) it has not begun."""
    measured = compared(campaign.file.figure, found)
    result = SeedResult(
        run.condition,
        run.seed,
        passed=measured.passed if measured else 0,
        graded=measured.graded if measured else 0,
        reward=measured.reward if measured and same_reward else None,
        steps=last_step(found) if found else 0,
        planned=steps,
        stopped=state if isinstance(state, Stopped) else Stopped.INTERRUPTED,
        basis=Basis.PLANNED if campaign.file.figure is Figure.LAST else Basis.FRESH,
    )
    return RunLine.of(campaign, run, state, result, measured, found)


def _notes(campaign: Campaign, runs: list[RunEntry], others: list[RunEntry], *, same_reward: bool) -> Iterator[str]:
    if not same_reward:
        yield "the conditions have rewards of different kinds, which are not compared: pass rates decide alone"
    for other in others:
        yield f"{other} is in {campaign.folder} and not in {campaign.path}: left out of everything here"
    for seed in campaign.file.seeds:
        locks = {
            path.read_bytes() for r in runs if r.seed == seed if (path := campaign.folder / r.folder / TASKS).is_file()
        }
        if len(locks) > 1:
            yield f"seed {seed}: the conditions did not have the same tasks ({TASKS} of the runs differ)"


def _machines(folders: Mapping[tuple[str, int], RunFolder | None]) -> Iterator[str]:
    """Which machines the runs had, where these differ."""
    runs: dict[str, list[int]] = {}
    for (_, seed), found in folders.items():
        if found is not None and found.environment:
            runs.setdefault(_machine(found.environment), []).append(seed)
    if len(runs) > 1:
        told = "; ".join(f"{counted(len(seeds), 'run')} with {machine}" for machine, seeds in runs.items())
        yield f"the runs had other machines or versions, which round otherwise: {told}"
    common: Counter[int] = Counter(seed for seeds in runs.values() for seed in set(seeds))
    if mixed := sorted(seed for seed, machines in common.items() if machines > 1):
        yield f"seed {', '.join(map(str, mixed))}: not all conditions had the same machine"


def _machine(environment: Mapping[str, Any]) -> str:
    """What of a run's environment decides how it computes."""
    packages, gpus = environment.get("packages", {}), environment.get("gpus") or []
    versions = [f"{name} {packages[name]}" for name in ("torch", "transformers") if packages.get(name)]
    place = ", ".join(sorted(set(gpus))) or f"{environment.get('cores', '?')} cores ({environment.get('cpu', '?')})"
    return ", ".join([place, *versions])


def _look(campaign: Campaign, results: Sequence[SeedResult]) -> Look:
    """Which look this is; the same results again are no new one."""
    content = json_text([campaign.file.figure, campaign.baseline, [asdict(result) for result in results]])
    sha = hashlib.sha256(content.encode()).hexdigest()
    path = campaign.folder / LOOKS_FILE
    before = [line["results_sha256"] for line in read_lines(path)[0]]
    if sha not in before:
        before.append(sha)
        append_line(path, {"look": len(before), "results_sha256": sha, "runs": len(results)})
    return Look(before.index(sha) + 1, campaign.file.looks)
