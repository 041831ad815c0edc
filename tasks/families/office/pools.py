"""What office families draw from: who asks, names, topics, dates."""

from __future__ import annotations

from random import Random

from tasks.task import Persona

PERSONAS: dict[str, tuple[str, ...]] = {
    "developer": ("looks after a small product with two others", "tidies up before a release"),
    "bookkeeper": ("closes the books of a month", "prepares the papers for the tax adviser"),
    "system administrator": ("runs a handful of servers alone", "takes over from a colleague"),
    "office assistant": ("keeps the shared folder of a team in order", "covers for somebody on leave"),
    "writer": ("works on a long text with an editor", "publishes a small magazine"),
    "student": ("hands in a project on Friday", "learns to work at the command line"),
    "photographer": ("delivers to three customers this week", "sorts a year of work"),
    "shop keeper": ("runs a shop with a small stock room", "sells in a store and on the web"),
}
"""The eight who ask: role, and sentences about their situation."""

TECHNICAL = ("developer", "system administrator", "student")
"""Roles that ask for work on code, servers and permissions."""

PEOPLE: tuple[str, ...] = (
    "Ada", "Bruno", "Carla", "Dmitri", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kaya", "Leo", "Mira",
    "Nils", "Olga", "Pavel", "Rosa", "Sven",
)  # fmt: skip
CITIES: tuple[str, ...] = (
    "Bergen", "Cadiz", "Dublin", "Essen", "Ghent", "Graz", "Lyon", "Malmo", "Nantes", "Porto", "Riga", "Split",
    "Turin", "Vaasa", "York",
)  # fmt: skip
TOPICS: tuple[str, ...] = (
    "anchor", "basket", "bridge", "candle", "carpet", "cellar", "copper", "desert", "engine", "falcon", "garden",
    "hammer", "island", "jacket", "kettle", "ladder", "lantern", "marble", "meadow", "mirror", "needle", "orchard",
    "paddle", "pebble", "pillow", "quarry", "ribbon", "saddle", "sailor", "silver", "spring", "tunnel", "turbine",
    "valley", "velvet", "violin", "walnut", "window", "winter",
)  # fmt: skip
SERVICES: tuple[str, ...] = (
    "auth", "billing", "cache", "export", "gateway", "indexer", "mailer", "orders", "queue", "reports", "search",
    "uploads",
)  # fmt: skip
FOLDERS: tuple[str, ...] = (
    "inbox", "papers", "records", "shared", "stuff", "transfer", "desk", "material",
)  # fmt: skip


def persona(rng: Random, roles: tuple[str, ...] = ()) -> Persona:
    """Draw who asks, from `roles` or from all."""
    role = rng.choice(roles or tuple(PERSONAS))
    return Persona(role=role, context=rng.choice(PERSONAS[role]))


def say(rng: Random, *phrasings: str, **values: object) -> str:
    """Return one of several phrasings of the same request, filled in."""
    return rng.choice(phrasings).format(**values)


def topics(rng: Random, count: int) -> list[str]:
    """Return `count` different topics."""
    return rng.sample(TOPICS, count)


def dates(rng: Random, count: int, *years: int) -> list[str]:
    """Return `count` different days of the given years, as 2024-03-09, in no order."""
    found: dict[str, None] = {}
    while len(found) < count:
        found[f"{rng.choice(years or (2024,))}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"] = None
    return list(found)


def money(rng: Random, most: int = 900) -> int:
    """Return an amount in cents."""
    return rng.randint(500, most * 100)


def cents(amount: int) -> str:
    """Write cents as 12.50."""
    return f"{amount // 100}.{amount % 100:02}"


def prose(rng: Random, lines: int = 3) -> str:
    """Return some lines of words, as a text file holds them."""
    return "".join(" ".join(rng.sample(TOPICS, 4)) + "\n" for _ in range(lines))
