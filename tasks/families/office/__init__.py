"""Families of everyday work: larger workspaces, pitfalls by level, a persona, and two ways to do it."""

from tasks.families.office.archives import ARCHIVES_FAMILIES, PERMISSIONS_FAMILIES
from tasks.families.office.code import CODE_FAMILIES, LOGS_FAMILIES
from tasks.families.office.moving import FOLDERS_FAMILIES, MOVING_FAMILIES
from tasks.families.office.parts import OfficeFamily
from tasks.families.office.settings import RECORDS_FAMILIES, SETTINGS_FAMILIES
from tasks.families.office.tables import TABLES_FAMILIES, TOTALS_FAMILIES
from tasks.families.office.texts import PAGES_FAMILIES, REPORTS_FAMILIES

# In this order, which seeded draws of the mix depend on.
OFFICE: dict[str, OfficeFamily] = {
    family.name: family
    for family in (
        *MOVING_FAMILIES,
        *FOLDERS_FAMILIES,
        *LOGS_FAMILIES,
        *TABLES_FAMILIES,
        *TOTALS_FAMILIES,
        *RECORDS_FAMILIES,
        *SETTINGS_FAMILIES,
        *PAGES_FAMILIES,
        *REPORTS_FAMILIES,
        *CODE_FAMILIES,
        *ARCHIVES_FAMILIES,
        *PERMISSIONS_FAMILIES,
    )
}
"""Every office family by name."""

__all__ = ["OFFICE", "OfficeFamily"]
