"""Families of tasks that need turns: what the next command must be is only revealed by an observation."""

from tasks.families.turns.machines import MACHINES_FAMILIES
from tasks.families.turns.parts import TurnFamily
from tasks.families.turns.records import RECORDS_FAMILIES
from tasks.families.turns.routes import ROUTES_FAMILIES
from tasks.families.turns.settings import SETTINGS_FAMILIES
from tasks.families.turns.small import SMALL_FAMILIES

# In this order, which seeded draws of the mix depend on.
TURNS: dict[str, TurnFamily] = {
    family.name: family for family in (*SETTINGS_FAMILIES, *RECORDS_FAMILIES, *ROUTES_FAMILIES, *MACHINES_FAMILIES)
}
"""Every family of tasks that need turns, by name; but for the small ones."""

SMALL_TURNS: dict[str, TurnFamily] = {family.name: family for family in SMALL_FAMILIES}
"""Those in the words of the quickstart policy, by name."""

__all__ = ["SMALL_TURNS", "TURNS", "TurnFamily"]
