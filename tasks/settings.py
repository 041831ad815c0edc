"""One setting of a dataclass, said once: its help, which values it takes, and what it needs to act.

`setting(...)` declares a field. Everything else is read from there: flags and their help, `problems` (a value that the
setting does not take), `idle` (a setting that was given and does nothing), and the manual's table of options.

A setting that can be off is `None` inside. Where people write 0 for that (`off=0`), `Settings` turns it into `None`
when the dataclass is made, and `written` turns it back for files.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Any

Need = Callable[[Any], str]
"""Asked with the settings: why a setting does nothing, as the end of "... does nothing"; empty where it acts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What holds for a setting. `None` for its value is always taken: its type says whether it may be that.

    Attributes:
        choices: The names it takes.
        low: Smallest number.
        high: Largest number.
        above: It is larger than this number.
        below: It is smaller than this number.
        finite: Its number is finite.
        off: What people write for `None`.
        why: Reason or remedy, for the end of a message about a value.
        unit: Of its number.
        source: Where the default comes from.
        needs: What it needs to act; who sets it without is told.
        requires: The same; who sets it without is refused.
        refused: Why only its default is taken, or what is as empty, and what to do.
        secret: Its value is never printed.
        common: `--help` shows it.
        recorded: It stands in a run's record even where it has its default.
    """

    choices: tuple[str, ...] | type[StrEnum] = ()
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    finite: bool = True
    off: Any = None
    why: str = ""
    unit: str = ""
    source: str = ""
    needs: tuple[Need, ...] = ()
    requires: tuple[Need, ...] = ()
    refused: str = ""
    secret: bool = False
    common: bool = False
    recorded: bool = True

    def misfit(self, value: Any) -> str | None:
        """What is taken instead of a value; `None` where it is taken."""
        if value is None or (self.off is not None and value == self.off):
            return None
        if self.choices:
            return None if value in tuple(self.choices) else f"one of {', '.join(self.choices)}"
        if isinstance(value, bool) or not isinstance(value, (int, float)) or self._holds(value):
            return None
        return self.range() or "a finite number"

    def _holds(self, value: float) -> bool:
        low, high = self.low if self.low is not None else -math.inf, self.high if self.high is not None else math.inf
        above, below = self.above is None or value > self.above, self.below is None or value < self.below
        return low <= value <= high and above and below and (math.isfinite(value) or not self.finite)

    def range(self) -> str:
        """Where its number may lie, in words; empty where it may be any."""
        if self.low is not None and self.high is not None:
            return f"between {self.low} and {self.high}"
        parts = [f"above {self.above}"] if self.above is not None else []
        parts += [f"{self.low} or more"] if self.low is not None else []
        parts += [f"at most {self.high}"] if self.high is not None else []
        parts += [f"below {self.below}"] if self.below is not None else []
        parts += [f"or {self.off:g} to leave it out"] if isinstance(self.off, int | float) else []
        return ", ".join(parts)


NO_RULES = Rules()


class _Help(str):
    """The help text of a setting, with its rules: parsers that know nothing of ours (TRL's) take it as a text."""

    rules: Rules = NO_RULES


def setting(default: Any, help: str, **rules: Any) -> Any:
    """A field of a settings dataclass.

    Args:
        default: Its value, unless another is given; a function makes a new one each time (`dict`).
        help: For people; it names the choices where they need a word each.
        rules: See `Rules`.
    """
    text = _Help(help)
    text.rules = Rules(**rules)
    made = {"default_factory": default} if callable(default) else {"default": default}
    return field(**made, metadata={"help": text})


def rules_of(f: dataclasses.Field[Any], more: Mapping[str, Rules] | None = None) -> Rules:
    """The rules of a field; `more` has those of fields that others declare, by name."""
    return getattr(f.metadata.get("help"), "rules", None) or (more or {}).get(f.name, NO_RULES)


def default_of(f: dataclasses.Field[Any]) -> Any:
    """The default of a field."""
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


def shown_default(f: dataclasses.Field[Any]) -> Any:
    """The default as people write it."""
    default = default_of(f)
    return rules_of(f).off if default is None else plain(default)


class Settings:
    """Base of a dataclass of settings: what people write becomes what the code reads."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Turn names into members of their enum, and what means off into `None`; then complete what others declare."""
        for f in dataclasses.fields(self):  # type: ignore[arg-type]
            rules, value = rules_of(f), getattr(self, f.name)
            if rules.off is not None and value == rules.off and not isinstance(value, bool):
                object.__setattr__(self, f.name, None)
            elif isinstance(rules.choices, type) and value in tuple(rules.choices):
                object.__setattr__(self, f.name, rules.choices(value))
        parent = getattr(super(), "__post_init__", None)
        if parent is not None:
            parent()


def written(settings: Any) -> dict[str, Any]:
    """Settings as people write them: plain values, and 0 where that is how to say off.

    One that is not `recorded` is left out where it has its default: settings from before it came are written alike.
    """
    out = {}
    for f in dataclasses.fields(settings):
        value, rules = getattr(settings, f.name), rules_of(f)
        if rules.recorded or value != default_of(f):
            out[f.name] = plain(rules.off if value is None else value)
    return out


def problems(settings: Any, more: Mapping[str, Rules] | None = None, *, only: Collection[str] = ()) -> Iterator[str]:
    """One line per setting (of `only` these) with a value that it does not take, each with what it takes."""
    for f in dataclasses.fields(settings):
        if only and f.name not in only:
            continue
        rules, value = rules_of(f, more), getattr(settings, f.name)
        shown = f.name if rules.secret else f"{f.name}={plain(value)!r}"
        if rules.refused and given(f, settings) and (value or default_of(f)):
            yield f"{shown}: {rules.refused}"
        elif takes := rules.misfit(value):
            yield f"{shown}: {takes}{'; ' if rules.why else ''}{rules.why}."
        elif why := _idle(rules.requires, f, settings):
            remedy = "Set that too, or leave it out." if why.startswith(" without") else "Leave it out."
            yield f"{shown}: does nothing{why}. {remedy}"


def idle(settings: Any, more: Mapping[str, Rules] | None = None) -> Iterator[str]:
    """Settings that were given and do nothing, one sentence each."""
    for f in dataclasses.fields(settings):
        if why := _idle(rules_of(f, more).needs, f, settings):
            yield f"{f.name}={plain(getattr(settings, f.name))} does nothing{why}"


def _idle(needs: Sequence[Need], f: dataclasses.Field[Any], settings: Any) -> str:
    """The first reason why a setting that was given does nothing; empty where it acts, or stands at its default."""
    if not needs or not given(f, settings):
        return ""
    return next(filter(None, (need(settings) for need in needs)), "")


def given(f: dataclasses.Field[Any], settings: Any) -> bool:
    """Whether a setting is not at its default."""
    return bool(plain(getattr(settings, f.name)) != plain(default_of(f)))


def plain(value: Any) -> Any:
    """A member of an enum as its name is written; any other value as it is."""
    return value.value if isinstance(value, Enum) else value


def without(name: str, *values: str) -> Need:
    """The need for another setting: that it is on, or one of `values`."""
    text = f" without {name}{'=' if values else ''}{' or '.join(values)}"
    return lambda settings: "" if (getattr(settings, name) in values if values else getattr(settings, name)) else text


def unless(idle: Callable[[Any], Any], reason: str) -> Need:
    """The need that something does not hold: `reason` ends the sentence, and may name settings as `{c.name}`."""
    return lambda settings: reason.format(c=settings) if idle(settings) else ""


def never(reason: str) -> Need:
    """It does nothing, ever."""
    return lambda settings: f": {reason}"
