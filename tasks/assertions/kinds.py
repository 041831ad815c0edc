"""Any assertion a task may hold, told apart by `kind`: those that ship, and those of other installed packages."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidatorFunctionWrapHandler, WrapValidator

from tasks.assertions.answers import NumberEquals, NumberFormat
from tasks.assertions.base import AssertionKind, BaseAssertion
from tasks.assertions.command import Command
from tasks.assertions.compose import AllOf, AnyOf, Not
from tasks.assertions.contents import DirExists, FileCount, FileEquals, FileMode, LineCount, Sha256
from tasks.assertions.files import FileContains, FileExists, FileMatches, FileNotExists, FileUnchanged
from tasks.assertions.instructions import InstructionFollowed
from tasks.assertions.math.kinds import MathEquivalent, MathFormat
from tasks.assertions.script import Script
from tasks.assertions.tables import CsvCell, CsvRows
from tasks.assertions.values import JsonFileValue, YamlFileValue
from tasks.model import fault
from tasks.plugins import ASSERTIONS, load_plugin, plugins

_SHIPPED = frozenset(str(kind) for kind in AssertionKind)


def _foreign(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Let another package's kind read what names it; all else goes the ordinary way."""
    if isinstance(value, BaseAssertion) and value.kind not in _SHIPPED:
        return value
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind in _SHIPPED:
        return handler(value)
    entry = plugins(ASSERTIONS).get(kind)
    if entry is None:
        return handler(value)
    model = load_plugin(entry)
    if not (isinstance(model, type) and issubclass(model, BaseAssertion)):
        raise fault(f"the kind '{kind}' of {entry.value} is no subclass of tasks.assertions.BaseAssertion")
    return model.model_validate(value)


Assertion = Annotated[
    Annotated[
        FileExists
        | FileNotExists
        | FileContains
        | FileMatches
        | FileUnchanged
        | FileEquals
        | DirExists
        | FileCount
        | FileMode
        | LineCount
        | Sha256
        | JsonFileValue
        | YamlFileValue
        | CsvCell
        | CsvRows
        | Command
        | Script
        | NumberEquals
        | NumberFormat
        | MathEquivalent
        | MathFormat
        | InstructionFollowed
        | AnyOf
        | AllOf
        | Not,
        Field(discriminator="kind"),
    ],
    WrapValidator(_foreign),
]
"""Any assertion a task may hold."""

for _model in (AnyOf, AllOf, Not):
    _model.model_rebuild(_types_namespace={"Assertion": Assertion})
