"""From flags and a YAML file to the settings of a run."""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import types
import typing
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from trl import TrlParser

from agents.t2po import T2POConfig
from tasks.document import Document
from tasks.document import parse as parse_yaml
from tasks.model import TaskError
from tasks.settings import NO_RULES, plain, rules_of, written
from tasks.sources import held_out_sources
from trainers.errors import ConfigError
from trainers.settings import EnvArguments, GiGPOConfig, PolicyArguments
from trainers.settings.help import CONFIGS, QUICKSTART, asks_for_help, short_help
from trainers.settings.preset import Preset, choose

# -- A YAML file of settings as plain data: readable, one mapping, each key once; each fault with its line ------------


def read_settings(path: Path) -> Document:
    """The mapping in a file (`data`), and where each key stands (`lines`).

    Raises:
        ConfigError: It cannot be read, is not plain YAML, or holds something else.
    """
    try:
        document = parse_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text ({error})") from error
    if document.problems:
        raise ConfigError("\n".join(map(str, document.problems)))
    if not isinstance(document.data, dict):
        raise ConfigError(f"{path}: must hold `key: value` lines")
    return document


# ---------------------------------------------------------------------------------------------------------------------
# A YAML file of settings, strictly: keys that exist, once each, with values of their kind, each fault with its line.
#
# `TrlParser` makes such values its defaults, and argparse looks at no default that is not text: a seed of 1.5, a
# learning rate that was left empty or a list of steps would arrive as they are.

LISTS = ("tasks",)
"""Texts that may be a list in a file."""
_KINDS = {
    bool: "true or false", int: "a whole number", float: "a number", str: "a text", list: "a list", dict: "a mapping",
}  # fmt: skip
Groups = tuple[Any, ...]
"""Dataclasses of settings."""


@cache
def known_settings(groups: Groups) -> Mapping[str, dataclasses.Field[Any]]:
    """Every setting by name."""
    return {f.name: f for group in groups for f in dataclasses.fields(group) if f.init}


def suggest(name: str, known: Collection[str]) -> str:
    """The known setting that was probably meant, for the end of a message."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"; did you mean `{near[0]}`?" if near else "; `--help` lists the common ones, `--help-all` all"


def read_config(path: Path, groups: Groups) -> dict[str, Any]:
    """The settings of a file.

    Raises:
        ConfigError: It cannot be read, or one line per key or value that does not fit.
    """
    document = read_settings(path)
    wrong = []
    for name, value in document.data.items():
        why = misfit(name, value, groups)
        wrong += [document.complain(why, (name,))] if why else []
    if wrong:
        raise ConfigError("\n".join(f"{problem.file}:{problem.line}: {problem.message}" for problem in wrong))
    return {name: _as_kind(_kinds(name, groups), value) for name, value in document.data.items()}


def misfit(name: str, value: Any, groups: Groups) -> str | None:
    """Why there can be no such setting with this value; `None` where there can."""
    known = known_settings(groups)
    if name not in known:
        return f"unknown key `{name}`{suggest(name, known)}"
    return _misfit(known[name], _kinds(name, groups), value)


def _misfit(f: dataclasses.Field[Any], kinds: frozenset[type], value: Any) -> str | None:
    """Why a value cannot be that of a setting."""
    if not kinds or (isinstance(value, list) and f.name in LISTS):
        return None
    if value is None:
        return None if type(None) in kinds else f"`{f.name}` has no value: give it one, or leave the line out"
    choices = rules_of(f).choices or f.metadata.get("choices")
    if choices and value not in tuple(choices) and not isinstance(value, bool):
        return f"{f.name}={value!r}: one of {', '.join(map(str, choices))}"
    if _fits(value, kinds):
        takes = rules_of(f).misfit(value)
        return f"{f.name}={value!r}: {takes}" if takes else None
    if isinstance(value, bool) and str in kinds:
        return f"`{f.name}`: YAML reads yes, no, on and off as true and false. Put the word in quotes"
    wanted = " or ".join(text for kind, text in _KINDS.items() if kind in kinds)
    return f"{f.name}={value!r}: {wanted} is needed"


def _fits(value: Any, kinds: frozenset[type]) -> bool:
    if isinstance(value, str):
        if str in kinds or bool in kinds:  # what is neither true nor false is refused with the flags
            return True
        return any(_reads_as(value, kind) for kind in (int, float) if kind in kinds)  # 1e-4 is a text in YAML 1.1
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int):
        return bool(kinds & {int, float, str})
    if isinstance(value, float):
        return bool(kinds & {float, str})
    return type(value) in kinds


def _reads_as(text: str, kind: type) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return True


def _as_kind(kinds: frozenset[type], value: Any) -> Any:
    """A number as the text that a setting is (`unseen_families: 2`), and the reverse (`1e-4`); others as they are."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and kinds and not kinds & {int, float}:
        return str(value)
    if isinstance(value, str) and not kinds & {str, bool}:
        return next((kind(value) for kind in (int, float) if kind in kinds and _reads_as(value, kind)), value)
    return value


@cache
def _kinds(name: str, groups: Groups) -> frozenset[type]:
    """The plain types that a setting takes; none where it takes others, too, which are not judged here."""
    hint = next(hints[name] for group in reversed(groups) if name in (hints := typing.get_type_hints(group)))
    parts = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    found = {typing.get_origin(part) or part for part in parts}
    found = {str if isinstance(part, type) and issubclass(part, str) else part for part in found}
    plain = found & {*_KINDS, type(None)}
    return frozenset(plain) if plain == found or str in found else frozenset()


# -- Flags and YAML into the dataclasses of a run, with messages that say what to do ----------------------------------
# A run's settings are: the dataclasses' defaults, then one YAML file, then flags. Without `--config` and with the
# quickstart policy the file is `trainers/configs/quickstart.yaml`; with another policy there is none.

GROUPS = (EnvArguments, PolicyArguments, T2POConfig, GiGPOConfig)


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Everything a run is made of.

    Attributes:
        dry_run: Check, and say what would be done.
        start: `--from`: the step of the checkpoint that `--resume` goes back to; `None` takes the newest. How a run was
            started is no part of its settings.
        preset: What the device chose; it is in the settings already.
    """

    env: EnvArguments
    policy: PolicyArguments
    t2po: T2POConfig
    config: GiGPOConfig
    dry_run: bool
    start: int | None = None
    preset: Preset = field(default_factory=Preset)

    def resolved(self) -> dict[str, Any]:
        """One flat mapping that `--config` takes back: all of ours, and what differs from TRL's defaults."""
        out: dict[str, Any] = {}
        for part in (self.env, self.policy, self.t2po):
            out |= written(part)
        c = self.config
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            defaults = GiGPOConfig(output_dir=c.output_dir, use_cpu=c.use_cpu).to_dict()
        values = c.to_dict()
        for f in dataclasses.fields(GiGPOConfig):
            rules = rules_of(f)
            ours = rules is not NO_RULES and rules.recorded
            if f.name in values and f.name not in _DERIVED and (ours or values[f.name] != defaults[f.name]):
                out[f.name] = rules.off if values[f.name] is None else values[f.name]
        out["device_preset"] = "none"  # what it chose stands here, and holds on any device
        if c.steps_per_generation != c.gradient_accumulation_steps:
            out["steps_per_generation"] = c.steps_per_generation
        return out

    def sha256(self) -> str:
        """Hash of the resolved settings without the output folder: equal runs, equal hashes."""
        return sha256_of(self.resolved())


def sha256_of(resolved: Mapping[str, Any]) -> str:
    """`RunSettings.sha256` of settings that are resolved."""
    content = {k: v for k, v in resolved.items() if k != "output_dir"}
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


_DERIVED = {
    "generation_batch_size",
    "steps_per_generation",
    "run_name",
    "do_eval",
    "activation_checkpointing",
    "resume",
    "overwrite",
}
"""Follow from other settings or from how the run was started, so they are no part of the record."""


def parse(argv: Sequence[str]) -> RunSettings:
    """Settings from a command line.

    Raises:
        ConfigError: An unknown key or flag (with the nearest known one), a value that does not fit, no such file.
        SystemExit: After printing help.
    """
    args = _held_out_joined(_separate(argv))
    if asks_for_help(args):
        print(short_help())
        raise SystemExit(0)
    parser = _parser()
    if "--help_all" in args:
        parser.print_help()
        raise SystemExit(0)
    dry_run = "--dry_run" in args
    args = [a for a in args if a != "--dry_run"]
    args, start = _take_from(args)
    args, config_path = _take_config(args)
    file = read_config(config_path, GROUPS) if config_path is not None else {}
    parser.set_defaults_with_config(**file)
    _check_flags(args)
    parser.error = _raise
    env, policy, t2po, config = _parts(parser, args)
    if start is not None and not config.resume:
        raise ConfigError(f"--from {start}: goes with --resume, which goes back to the checkpoint of that step")
    own = Path(config.output_dir) / "config.yaml"
    written = read_settings(own).data if config.resume and own.exists() else None
    preset = choose(env, policy, config, {*file, *_flags(args)}, written)
    if preset.chosen:
        parser.set_defaults(**preset.chosen)
        env, policy, t2po, config = _parts(parser, args)
    config.rounded = policy.dtype != "float32"
    return RunSettings(env, policy, t2po, config, dry_run, start, preset)


def _parts(parser: TrlParser, args: Sequence[str]) -> tuple[EnvArguments, PolicyArguments, T2POConfig, GiGPOConfig]:
    """The groups of settings.

    Raises:
        ConfigError: A value does not fit, or something is no flag.
    """
    try:
        with warnings.catch_warnings():
            # TRL's own defaults use names that newer transformers deprecate.
            warnings.simplefilter("ignore", FutureWarning)
            *parts, rest = parser.parse_args_into_dataclasses(
                args=args, return_remaining_strings=True, look_for_args_file=False
            )
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error
    if rest:
        raise ConfigError(f"not understood: {' '.join(rest)} (flags are written --name value; see --help)")
    env, policy, t2po, config = parts
    return env, policy, t2po, config


def _parser() -> TrlParser:
    """Flags of all settings, with the defaults that people write; values are judged by `tasks.settings` alone."""
    parser = TrlParser(GROUPS, prog="python -m trainers.grpo", allow_abbrev=False)
    known = known_settings(GROUPS)
    for action in parser._actions:
        rules = rules_of(known[action.dest]) if action.dest in known else NO_RULES
        if rules.choices:
            action.choices = None
            action.default = plain(action.default)
        elif action.default is None:
            action.default = rules.off
    return parser


def _raise(message: str) -> None:
    raise ConfigError(message)


def _separate(argv: Sequence[str]) -> list[str]:
    """`--name=value` as two words and names with underscores, so that every rule below sees one form."""
    out: list[str] = []
    for arg in argv:
        name, equals, value = arg.partition("=")
        if not arg.startswith("--"):
            out.append(arg)
            continue
        name = "--" + name[2:].replace("-", "_")
        out += [name, value] if equals else [name]
    return out


def _held_out_joined(args: list[str]) -> list[str]:
    """`--held_out` that is given again with `NAME=SOURCE` as one value; else the last one counts, as with all flags.

    Raises:
        ConfigError: A named set is none.
    """
    flag = "--held_out"
    at = [i for i, arg in enumerate(args[:-1]) if arg == flag]
    values = [args[i + 1] for i in at]
    try:
        if len(values) < 2 or not any(held_out_sources(value).sets for value in values):
            return args
    except TaskError as error:
        raise ConfigError(str(error)) from error
    rest = [arg for i, arg in enumerate(args) if i not in at and i - 1 not in at]
    return [*rest, flag, ",".join(values)]


def _value(args: Sequence[str], name: str) -> str | None:
    """The value that a flag is given, if it is given."""
    flag = f"--{name}"
    return args[args.index(flag) + 1] if flag in args[:-1] else None


def _without(args: list[str], name: str) -> list[str]:
    """The rest, without a flag that is no setting of a run and its value."""
    at = args.index(f"--{name}")
    return args[:at] + args[at + 2 :]


def _take_from(args: list[str]) -> tuple[list[str], int | None]:
    """The step after `--from`, and the rest."""
    if "--from" not in args:
        return args, None
    step = _value(args, "from") or ""
    if not step.isdigit():
        raise ConfigError("--from: needs the step of a checkpoint, such as 20 for checkpoint-20")
    return _without(args, "from"), int(step)


def _take_config(args: list[str]) -> tuple[list[str], Path | None]:
    """The file of settings, and the rest: one that is named, one that ships, the run's own, or the quickstart's."""
    if "--config" in args:
        name = _value(args, "config")
        if name is None:
            raise ConfigError("--config needs a YAML file")
        return _without(args, "config"), _named_config(name)
    base = QUICKSTART if _value(args, "model_name_or_path") in (None, "quickstart") else None
    if "--resume" in args:
        default = read_config(base, GROUPS)["output_dir"] if base else GiGPOConfig.output_dir
        own = Path(_value(args, "output_dir") or default) / "config.yaml"
        if own.exists():
            return args, own  # a run goes on with its own settings; flags still win
    if base and _value(args, "tasks") and not _value(args, "held_out"):
        args = [*args, "--held_out", "split"]  # the file's held-out tasks go with the file's own pool
    return args, base


def _named_config(name: str) -> Path:
    """A file, or the name of a config that ships without its folder."""
    shipped = CONFIGS / f"{name}.yaml"
    path = shipped if shipped.exists() and not Path(name).exists() else Path(name)
    if path.parent == CONFIGS and path.stem.endswith("warm_start"):
        raise ConfigError(f"--config {path.stem}: a warm start: `python -m trainers.sft --config {path.stem}`")
    if not path.exists():
        # Warm starts are settings of `python -m trainers.sft`.
        known = ", ".join(sorted(p.stem for p in CONFIGS.glob("*.yaml") if not p.stem.endswith("warm_start")))
        raise ConfigError(f"--config {path}: no such file (the configs that ship: {known})")
    return path


_ELSEWHERE = {"user": ": a model as the user is for evaluation; in training the tasks' own rules answer"}
"""Flags of `python -m trainers.evaluate` that training has on purpose not, and why."""


def _check_flags(args: Sequence[str]) -> None:
    known = known_settings(GROUPS)
    unknown = [name for name in _flags(args) if name not in known]
    if unknown:
        raise ConfigError(
            "\n".join(f"unknown flag --{name}{_ELSEWHERE.get(name) or suggest(name, known)}" for name in unknown)
        )


def _flags(args: Sequence[str]) -> list[str]:
    """Names of the settings that flags give; those of switches that are turned off (`--no_name`) without the no."""
    known, names = known_settings(GROUPS), [arg[2:] for arg in args if arg.startswith("--")]
    return [name if name in known else bare if (bare := name.removeprefix("no_")) in known else name for name in names]
