"""What a campaign file asks for, the runs that it comes to, and the manifest of its folder.

A campaign folder holds `manifest.json` and ordinary run folders `<condition>/seed_<n>`; what a run printed is beside
them in `seed_<n>.log` and `seed_<n>.err`. The manifest has no times: whatever was killed, it ends the same.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from tasks.document import Document
from tasks.model import Items, Problem, StrictModel, remove_part_files
from tasks.yaml import explain
from trainers.errors import ConfigError, RunFolderError
from trainers.jsonl import json_text, write_json
from trainers.reporting.folder import read_mapping
from trainers.run.folder import LOCK
from trainers.run.record import REPORT, SUMMARY
from trainers.run.summary import Stopped
from trainers.settings.help import CONFIGS

MANIFEST = "manifest.json"
FORMAT = 1
CORES = 2
"""For each run without a GPU: it learns in one, and its sandboxes want another."""
OVER = (Stopped.FINISHED, Stopped.PATIENCE, Stopped.GUARD)
"""Ends after which a run is not started again."""

ELSEWHERE = {
    "seed": "a campaign has `seeds` at its top",
    "max_steps": "say `max_steps` at the top: it is the budget of every run",
    "output_dir": "say `output_dir` at the top: each run has a folder in it",
    "resume": "a campaign always goes on with its runs",
    "overwrite": "a campaign always goes on with its runs: name another `output_dir` to start anew",
}
"""Settings of a run that are none of a condition, and why."""


class Figure(StrEnum):
    """Which figures of a run are compared."""

    LAST = "last"
    """The last held-out measurement: of a step that was fixed before the run."""
    CONFIRMED = "confirmed"
    """The chosen step, measured again on tasks that nothing was chosen on."""


class NodeShare(StrictModel):
    """The keys of `[ray]`: what a run takes of a node, where the campaign runs on a Ray cluster.

    Attributes:
        num_cpus: Cores.
        num_gpus: GPUs; 1 where nothing is said, or 0 where all runs are on the CPU or the cluster has none.
        memory_gb: Memory that Ray sets aside, in GB; it is no limit.
        retries: How often a run goes on elsewhere whose node or Ray process was lost.
    """

    num_cpus: Annotated[float, Field(gt=0)] = CORES
    num_gpus: Annotated[float, Field(ge=0)] | None = None
    memory_gb: Annotated[float, Field(gt=0)] | None = None
    retries: Annotated[int, Field(ge=0)] = 3


class CampaignFile(StrictModel):
    """The keys of a campaign file.

    Attributes:
        config: A config that ships, or the path of a YAML file, as `trainers.grpo --config` takes it.
        settings: What every run has beyond it; `conditions` what the runs of one condition have beyond that.
        baseline: The condition that the others are compared with; the first one where none is named.
        max_steps: Optimizer steps of each run; those of the config where nothing is said.
        workers: Runs at a time; one for each GPU or, without any, for every two cores where nothing is said. On a Ray
            cluster: as many as fit.
        stagger_seconds: Between the starts of two runs, which load models and sandboxes.
        looks: How often the results will be tested, planned before the first run.
        figure: What of each run is compared.
        ray: What a run takes of a node of a cluster.
    """

    name: Annotated[str, Field(min_length=1)]
    config: str
    output_dir: Annotated[str, Field(min_length=1)]
    seeds: Annotated[Items[Annotated[int, Field(ge=0, lt=2**32)]], Field(min_length=1)]
    conditions: Annotated[dict[str, dict[str, Any]], Field(min_length=1)]
    settings: dict[str, Any] = Field(default_factory=dict)
    baseline: str | None = None
    max_steps: Annotated[int, Field(ge=1)] | None = None
    workers: Annotated[int, Field(ge=1)] | None = None
    stagger_seconds: Annotated[float, Field(ge=0)] = 5.0
    looks: Annotated[int, Field(ge=1)] = 1
    figure: Annotated[Figure, Field(strict=False)] = Figure.LAST
    ray: NodeShare = Field(default_factory=NodeShare)


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A run of a campaign.

    Attributes:
        folder: Of the run, in the campaign's folder.
        config_sha256: Hash of its settings, as its own `summary.json` has it.
        ended: How it ended; `None` where it has not.
    """

    condition: str
    seed: int
    folder: str
    config_sha256: str
    ended: Stopped | None = None

    def __str__(self) -> str:
        return f"{self.condition} seed {self.seed}"

    @property
    def over(self) -> bool:
        """It is not started again."""
        return self.ended in OVER


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign file, read.

    Attributes:
        path: The file.
        file: Its keys.
    """

    path: Path
    file: CampaignFile

    @property
    def folder(self) -> Path:
        """Where its runs and its manifest are."""
        return Path(self.file.output_dir)

    @property
    def baseline(self) -> str:
        """The condition that the others are compared with."""
        return self.file.baseline or next(iter(self.file.conditions))

    def names(self) -> Iterator[tuple[str, int]]:
        """Condition and seed of each run, in the order of their starts: a seed in all conditions, then the next."""
        for seed in self.file.seeds:
            for condition in self.file.conditions:
                yield condition, seed

    def given(self, condition: str) -> dict[str, Any]:
        """What the file says of a condition's runs, beyond its seeds."""
        budget = {} if self.file.max_steps is None else {"max_steps": self.file.max_steps}
        return {"config": self.file.config, **self.file.settings, **self.file.conditions[condition], **budget}

    def arguments(self, condition: str, seed: int) -> list[str]:
        """The command line of a run, after `python -m trainers.grpo`."""
        given = [f"--{name}={_flag(value)}" for name, value in self.given(condition).items()]
        folder = self.folder / run_folder(condition, seed)
        return [*given, f"--seed={seed}", f"--output_dir={folder}", "--resume"]


def run_folder(condition: str, seed: int) -> str:
    """Of a run, in the campaign's folder."""
    return f"{condition}/seed_{seed}"


def _flag(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, dict) else str(value)


# -- The file ---------------------------------------------------------------------------------------------------------


def load_campaign(name: str) -> Campaign:
    """Read a campaign file; settings are only looked at by `Manifest.of`, which takes seconds.

    Args:
        name: A TOML file, or the name of one that ships, without its folder.

    Raises:
        ConfigError: It cannot be read, or one line per key that does not fit.
    """
    shipped = CONFIGS / f"{name}.toml"
    path = shipped if shipped.exists() and not Path(name).exists() else Path(name)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        known = ", ".join(sorted(p.stem for p in CONFIGS.glob("*.toml")))
        raise ConfigError(f"{path}: no such campaign file (those that ship: {known})") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise ConfigError(f"{path}: not TOML ({error})") from error
    try:
        file = CampaignFile.model_validate(data)
    except ValidationError as error:
        found = explain(error, Document(str(path), data), CampaignFile)
        raise ConfigError("\n".join(str(replace(problem, line=None)) for problem in found)) from error
    if wrong := list(_problems(str(path), file)):
        raise ConfigError("\n".join(map(str, wrong)))
    return Campaign(path, file)


def _problems(path: str, file: CampaignFile) -> Iterator[Problem]:
    twice = sorted({seed for seed in file.seeds if file.seeds.count(seed) > 1})
    if twice:
        yield Problem(f"{twice[0]} is there twice: each seed is one run of each condition", path, key="seeds")
    for name in file.conditions:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,63}", name, re.ASCII):
            yield Problem(
                f"the condition {name!r} names a folder: use letters, digits, '.', '_' and '-'", path, key="conditions"
            )
    if file.baseline is not None and file.baseline not in file.conditions:
        known = ", ".join(file.conditions)
        yield Problem(f"{file.baseline!r} is no condition (there are {known})", path, key="baseline")


def _wrong_settings(campaign: Campaign) -> Iterator[Problem]:
    from trainers.settings.parsing import GROUPS, misfit

    parts = {f"conditions.{name}": given for name, given in campaign.file.conditions.items()}
    for place, given in {"settings": campaign.file.settings, **parts}.items():
        for name, value in given.items():
            why = ELSEWHERE.get(name) or misfit(name, value, GROUPS)
            if not why and isinstance(value, list):
                why = f"`{name}` takes one text here; a list goes into the YAML file that `config` names"
            if why:
                yield Problem(why, str(campaign.path), key=f"{place}.{name}")


def resolve(campaign: Campaign) -> dict[str, dict[str, Any]]:
    """All settings of each condition's runs, but for seed and folder; imports the trainer's settings, which takes long.

    Raises:
        ConfigError: A setting that does not exist or does not fit, with file and key.
    """
    from trainers.settings.parsing import parse

    if wrong := list(_wrong_settings(campaign)):
        raise ConfigError("\n".join(map(str, wrong)))
    out = {}
    for condition in campaign.file.conditions:
        try:
            settings = parse(campaign.arguments(condition, campaign.file.seeds[0]))
        except ConfigError as error:
            raise ConfigError(f"{campaign.path}: conditions.{condition}: {error}") from error
        resolved = settings.resolved()
        out[condition] = {name: resolved[name] for name in resolved if name not in ("seed", "output_dir")}
    return out


# -- The manifest -----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Manifest:
    """What is in a campaign folder.

    Attributes:
        name: Of the campaign.
        conditions: All settings of each, but for seed and folder.
        given: What the file said of each when it was run last.
        runs: By condition and seed, in the order of their starts.
    """

    name: str
    conditions: dict[str, dict[str, Any]] = field(default_factory=dict)
    given: dict[str, dict[str, Any]] = field(default_factory=dict)
    runs: dict[tuple[str, int], RunEntry] = field(default_factory=dict)

    @classmethod
    def of(cls, campaign: Campaign) -> Manifest:
        """That of the folder, with what the file has beyond it. Nothing is written.

        Raises:
            ConfigError: A setting does not fit, or a condition that has runs has other settings now.
            RunFolderError: The folder holds something else, or a run of other settings.
        """
        from trainers.settings.parsing import sha256_of

        old = cls.read(campaign.folder)
        found = json.loads(json_text(resolve(campaign)))  # as it is read again
        for name, settings in found.items():
            if name in old.conditions and (changed := _changes(old.conditions[name], settings)):
                raise ConfigError(
                    f"{campaign.path}: conditions.{name}: its runs in {campaign.folder} have other settings: "
                    f"{'; '.join(changed)}. Give the new settings a condition of their own, or another `output_dir`"
                )
        gone = [name for name in old.conditions if name not in found]
        manifest = cls(
            campaign.file.name,
            {**found, **{name: old.conditions[name] for name in gone}},
            {**{name: campaign.given(name) for name in found}, **{name: old.given[name] for name in gone}},
        )
        for condition, seed in campaign.names():
            sha = sha256_of({**found[condition], "seed": seed})
            entry = RunEntry(condition, seed, run_folder(condition, seed), sha)
            before = old.runs.get((condition, seed))
            ended = ended_of(campaign.folder, entry)
            if ended is None and before is not None and not before.over:
                ended = before.ended
            manifest.runs[condition, seed] = replace(entry, ended=ended)
        manifest.runs |= {key: entry for key, entry in old.runs.items() if key not in manifest.runs}
        return manifest

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """That of a folder; one without runs where there is none.

        Raises:
            RunFolderError: The folder holds something and is no campaign's, or the manifest is damaged.
        """
        path = folder / MANIFEST
        if not path.exists():
            there = sorted(p.name for p in folder.iterdir()) if folder.is_dir() else [folder.name][: folder.exists()]
            if other := [name for name in there if name != LOCK and not name.startswith(MANIFEST)]:
                raise RunFolderError(
                    f"{folder} holds no campaign ({len(there)} entries, such as {other[0]}): choose another output_dir"
                )
            return cls("")
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            entries = [RunEntry(**{**run, "ended": run["ended"] and Stopped(run["ended"])}) for run in data["runs"]]
            if data["format"] != FORMAT:
                raise ValueError(f"format {data['format']}, and {FORMAT} is read")
            conditions = data["conditions"].items()
            settings, given = ({name: parts[part] for name, parts in conditions} for part in ("settings", "given"))
            return cls(data["name"], settings, given, {(run.condition, run.seed): run for run in entries})
        except (ValueError, KeyError, TypeError) as error:
            raise RunFolderError(f"{path}: not a campaign's manifest ({type(error).__name__}: {error})") from error

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all."""
        remove_part_files(folder)
        runs = [asdict(run) for run in self.runs.values()]
        conditions = {name: {"given": self.given[name], "settings": self.conditions[name]} for name in self.conditions}
        content = {"format": FORMAT, "name": self.name, "conditions": conditions, "runs": runs}
        write_json(folder / MANIFEST, content)


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Settings that are other ones, for people."""
    names = dict.fromkeys([*now, *before])
    return [
        f"{name} is {now.get(name, 'not there')}, was {before.get(name, 'not there')}"
        for name in names
        if now.get(name) != before.get(name)
    ]


def read_summary(folder: Path, run: RunEntry) -> dict[str, Any] | None:
    """`summary.json` of a run; `None` before it has one.

    Raises:
        RunFolderError: It cannot be read, or is that of other settings.
    """
    place = folder / run.folder
    summary = read_mapping(place / SUMMARY)
    if summary and summary.get("config_sha256") != run.config_sha256:
        raise RunFolderError(
            f"{place}: holds a run of other settings (config_sha256 {str(summary.get('config_sha256'))[:12]}, and "
            f"{run.config_sha256[:12]} is planned): move it away, or choose another output_dir"
        )
    return summary or None


def ended_of(folder: Path, run: RunEntry) -> Stopped | None:
    """How a run ended, by its own files; `None` where it has not, or was killed before all of them were written.

    Raises:
        RunFolderError: See `read_summary`.
    """
    summary = read_summary(folder, run)
    written = summary is not None and (folder / run.folder / REPORT).is_file()
    return Stopped(summary["stopped"]) if summary is not None and written else None
