"""Flags and YAML into the dataclasses of a run, with messages that say what to do.

A run's settings are: the dataclasses' defaults, then one YAML file, then flags. Without `--config` and with the
quickstart policy the file is `trainers/configs/quickstart.yaml`; with another policy there is none.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trl import TrlParser

from agents.t2po import T2POConfig
from tasks.settings import NO_RULES, plain, rules_of, written
from trainers.config import EnvArguments, GiGPOConfig, PolicyArguments
from trainers.errors import ConfigError
from trainers.run.config_file import known_settings, read_config, suggest
from trainers.run.help import CONFIGS, QUICKSTART, asks_for_help, short_help

GROUPS = (EnvArguments, PolicyArguments, T2POConfig, GiGPOConfig)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a run is made of.

    Attributes:
        dry_run: Check, and say what would be done.
        start: `--from`: the step of the checkpoint that `--resume` goes back to; `None` takes the newest. How a run was
            started is no part of its settings.
    """

    env: EnvArguments
    policy: PolicyArguments
    t2po: T2POConfig
    config: GiGPOConfig
    dry_run: bool
    start: int | None = None

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
        if c.steps_per_generation != c.gradient_accumulation_steps:
            out["steps_per_generation"] = c.steps_per_generation
        return out

    def sha256(self) -> str:
        """Hash of the resolved settings without the output folder: equal runs, equal hashes."""
        content = {k: v for k, v in self.resolved().items() if k != "output_dir"}
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


def parse(argv: Sequence[str]) -> Settings:
    """Settings from a command line.

    Raises:
        ConfigError: An unknown key or flag (with the nearest known one), a value that does not fit, no such file.
        SystemExit: After printing help.
    """
    args = _separate(argv)
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
    if config_path is not None:
        parser.set_defaults_with_config(**read_config(config_path, GROUPS))
    _check_flags(args)
    parser.error = _raise
    try:
        with warnings.catch_warnings():
            # TRL's own defaults use names that newer transformers deprecate.
            warnings.simplefilter("ignore", FutureWarning)
            env, policy, t2po, config, rest = parser.parse_args_into_dataclasses(
                args=args, return_remaining_strings=True, look_for_args_file=False
            )
    except (ValueError, TypeError) as error:
        raise ConfigError(str(error)) from error
    if rest:
        raise ConfigError(f"not understood: {' '.join(rest)} (flags are written --name value; see --help)")
    if start is not None and not config.resume:
        raise ConfigError(f"--from {start}: goes with --resume, which goes back to the checkpoint of that step")
    return Settings(env, policy, t2po, config, dry_run, start)


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


def _check_flags(args: Sequence[str]) -> None:
    known = known_settings(GROUPS)
    names = [arg[2:] for arg in args if arg.startswith("--")]
    unknown = [name for name in names if name not in known and name.removeprefix("no_") not in known]
    if unknown:
        raise ConfigError("\n".join(f"unknown flag --{name}{suggest(name, known)}" for name in unknown))
