"""Which guards are on and how hard each is, from one setting."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum

# -- What happens when a guard fires. Apart from the guards, so that settings can name it -----------------------------


class Severity(StrEnum):
    """What happens when a guard fires."""

    NOTE = "note"
    """It is written down, and counted in the summary."""
    WARN = "warn"
    """It is also shown at once and in the summary."""
    STOP = "stop"
    """The run also ends after this step; `best/` and the last checkpoint stay."""


# -- Which guards are on and how hard each is, from one setting: `all`, `none`, or `name=off|note|warn|stop` items ----

ALL, NONE, OFF = "all", "none", "off"


class GuardName(StrEnum):
    """The guards; docs/guards.md says what each looks at."""

    SHIP_BY_HELD_OUT = "ship_by_held_out"
    SPLIT_LINT = "split_lint"
    LOGPROB_PARITY = "logprob_parity"
    MASK_BY_LENGTH = "mask_by_length"
    SEEDS = "seeds"
    PROMPT_PARITY = "prompt_parity"
    STOP_AND_TRUNCATION = "stop_and_truncation"
    INERT_INTERVENTION = "inert_intervention"
    SIGNAL_METER = "signal_meter"
    UPDATE_HEALTH = "update_health"
    VERIFIER_HEALTH = "verifier_health"
    RESAMPLE_BUDGET = "resample_budget"
    EXCLUSIONS_FOLLOW_POLICY = "exclusions_follow_policy"
    DEAD_UPDATE = "dead_update"
    REWARD_AGAINST_GRADE = "reward_against_grade"
    FORMAT_DRIFT = "format_drift"


Levels = Mapping[GuardName, Severity | None]
"""Guards that are on; the severity of their faults where one is asked for, `None` for each fault's own."""


def parse_levels(text: str) -> dict[GuardName, Severity | None]:
    """The guards that are on.

    Args:
        text: Items with commas between: `all` (as when it is left out) or `none` first, then a name (on), or
            `name=off|note|warn|stop`. A severity replaces that of the guard's faults; its notes stay notes.

    Raises:
        ValueError: One line per item that is not understood, with the nearest one that is.
    """
    levels: dict[GuardName, Severity | None] = dict.fromkeys(GuardName)
    problems: list[str] = []
    for place, item in enumerate(part.strip() for part in text.split(",") if part.strip()):
        name, equals, level = (word.strip() for word in item.partition("="))
        if not equals and name in (ALL, NONE):
            if place:
                problems.append(f"`{name}` stands first or not at all")
            elif name == NONE:
                levels.clear()
            continue
        if name in (ALL, NONE):
            problems.append(f"`{item}`: a severity is given to single guards, such as `{GuardName.SIGNAL_METER}=stop`")
        elif name not in tuple(GuardName):
            problems.append(f"`{name}` is no guard{_nearest(name, [*GuardName, ALL, NONE])}")
        elif equals and level == OFF:
            levels.pop(GuardName(name), None)
        elif equals and level not in tuple(Severity):
            problems.append(f"`{item}`: a guard is {OFF}, {', '.join(Severity)}{_nearest(level, [OFF, *Severity])}")
        else:
            levels[GuardName(name)] = Severity(level) if equals else None
    if problems:
        raise ValueError("; ".join(problems))
    return levels


def level_problems(text: str) -> Iterator[str]:
    """The message of `parse_levels`, if it has one."""
    try:
        parse_levels(text)
    except ValueError as error:
        yield f"guards={text!r}: {error}. The guards: {', '.join(GuardName)}."


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean `{near[0]}`?" if near else ""
