"""Families of everyday work: larger workspaces, pitfalls by level, a persona, and two ways to do it."""

from tasks.families.office import (
    archives,
    code,
    folders,
    logs,
    moving,
    pages,
    permissions,
    records,
    reports,
    settings,
    tables,
    totals,
)
from tasks.families.office.parts import OfficeFamily

OFFICE: dict[str, OfficeFamily] = {
    family.name: family
    for module in (
        moving,
        folders,
        logs,
        tables,
        totals,
        records,
        settings,
        pages,
        reports,
        code,
        archives,
        permissions,
    )
    for family in module.FAMILIES
}
"""Every office family by name."""

__all__ = ["OFFICE", "OfficeFamily"]
