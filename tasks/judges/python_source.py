"""What Python code of a judge does with the agent's code, read from its syntax tree and never run.

Two questions are asked of every call: does it start another program, and does it load or evaluate code here? Code that
is loaded is the grader's own where its path is made of `__file__` or `$GRADER`, and harmless where it is a constant of
the source. Everything else may be the agent's.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tasks.judges.constructs import LOADERS, NAMED, PATHS, SHADOWED, STARTERS, WHAT_LOADS, Finding, JudgeUse, harmless
from tasks.judges.python_names import FUNCTIONS, Names, argument_of


class Reach(Enum):
    """Which modules may come from the workspace, as the interpreter was started."""

    NONE = 0
    """`python3 -I`, or a script of the grader: its own folder comes first."""
    FOREIGN = 1
    """The workspace is first on the path before Python 3.11, where `PYTHONSAFEPATH` means nothing."""
    ALL = 2
    """The workspace is first on the path: a file there may stand for a module of the standard library, too."""


@dataclass(frozen=True, slots=True)
class PythonText:
    """A piece of Python in a judge.

    Attributes:
        source: The code.
        file: Where it stands, for findings.
        files: Files of the grader.
        reach: Which modules may come from the workspace.
        own_folder: Whether the grader's folder is searched for modules.
        line: Line at which the code starts.
    """

    source: str
    file: str
    files: Mapping[str, str]
    reach: Reach = Reach.NONE
    own_folder: bool = True
    line: int = 1


_SAFE_YAML = ("SafeLoader", "CSafeLoader", "BaseLoader", "CBaseLoader")
_TESTS = ("discover", "loadTestsFromName", "loadTestsFromNames")
_AT_START = {
    *sys.builtin_module_names,
    "abc",
    "codecs",
    "encodings",
    "genericpath",
    "io",
    "os",
    "posixpath",
    "site",
    "stat",
}
"""Modules that Python has loaded before the workspace is on its path."""

_NAMES = [
    *(set(name.split(".")) for name in [*LOADERS, *NAMED] if not name.startswith("yaml.")),
    *({name} for name in ("subprocess", "exec_module", "load_module", "addsitedir", *_TESTS)),
    *({name, "main"} for name in ("pytest", "unittest")),
    {"pty", "spawn"},
]
"""Words of which one set must stand in a text that holds anything to find, however it is imported."""

_IN_PROSE_TOO = re.compile(
    r"\b(?:sys\s*\.\s*path\b|os\s*\.\s*(?:system|popen|posix_sp|spawn|exec)|yaml\s*\.\s*(?:load|full_|unsafe_)"
    r"|from\s+(?:os|sys|yaml)\s+import\b|import\s+(?:os|sys|yaml)\s+as\b|create_subprocess)"
)
"""The same for words that stand in many texts and mean nothing there."""


def _worth_parsing(source: str) -> bool:
    """Whether a text that reaches no module of the workspace can hold anything to find. Parsing it costs more."""
    words = set(re.findall(r"\w+", source))
    return any(names <= words for names in _NAMES) or bool(_IN_PROSE_TOO.search(source))


def read_python(text: PythonText, seen: set[str] | None = None) -> list[Finding]:
    """Find what a piece of Python starts and loads, with the grader's modules that it imports.

    Args:
        text: The code.
        seen: Files of the grader that were read already; those read here are added.
    """
    seen = set() if seen is None else seen
    before = set(seen)
    found, widened = _read_with_modules(text, seen)
    if widened and text.reach is Reach.NONE and seen > before:  # what one file puts on the path, others import from
        found, _ = _read_with_modules(replace(text, reach=Reach.FOREIGN), before)
    return found


def _read_with_modules(text: PythonText, seen: set[str]) -> tuple[list[Finding], bool]:
    """What stands in a file and in the grader's modules that it loads, and whether one opens the import path."""
    several = sum(path.endswith(".py") for path in text.files) > (text.file in text.files)
    if text.reach is Reach.NONE and not several and not _worth_parsing(text.source):
        return [], False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in a judge is no affair of ours
            tree = ast.parse(text.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        what = f"cannot be read as Python ({type(error).__name__})"
        return [Finding(JudgeUse.IN_PROCESS, text.file, text.line, what)], False
    nodes = list(ast.walk(tree))
    reader = _Reader(text, Names.of(nodes))
    reader.read(nodes)
    found, widened = reader.found, bool(reader.widened)
    for path in sorted(reader.own - seen):
        seen.add(path)
        more, opens = _read_with_modules(replace(text, source=text.files[path], file=path, line=1), seen)
        found, widened = found + more, widened or opens
    return found, widened


@dataclass(slots=True)
class _Reader:
    text: PythonText
    names: Names
    found: list[Finding] = field(default_factory=list)
    own: set[str] = field(default_factory=set)
    widened: list[int] = field(default_factory=list)
    _inside: set[ast.AST] = field(default_factory=set)

    def read(self, nodes: Sequence[ast.AST]) -> None:
        """Look at every node of the file."""
        placed = [node for node in nodes if isinstance(node, ast.expr | ast.stmt)]
        self.widened = [node.lineno for node in placed if self._widens(node)]
        if self.widened:
            bodies = [statement for node in placed if isinstance(node, FUNCTIONS) for statement in node.body]
            self._inside = {node for statement in bodies for node in ast.walk(statement)}
        calls = [node for node in placed if isinstance(node, ast.Call)]
        functions = {node.func for node in calls}
        inner = {node.value for node in placed if isinstance(node, ast.Attribute)}
        loads = False
        for call in calls:
            loads = self._call(call) or loads
        for node in placed:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self._import(alias.name, node)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                self._import(node.module, node)
            elif isinstance(node, ast.Name | ast.Attribute) and node not in functions and node not in inner:
                self._handed_on(node)
        if not loads:  # else it was said where the path of the file stands
            for call in calls:
                if isinstance(call.func, ast.Attribute) and call.func.attr in ("exec_module", "load_module"):
                    self._flag(call, f"{call.func.attr}(...) runs a module")
        self.found.sort(key=lambda finding: finding.line)

    # -- calls --------------------------------------------------------------------------------------------------------

    def _call(self, call: ast.Call) -> bool:
        """Look at one call; returns whether it names the file of a module that is then loaded."""
        name = self.names.dotted(call.func)
        if name in self.names.functions or self._rebound(name):
            return False
        if name in LOADERS:
            self._loader(call, name)
            return name.startswith(("importlib.", "imp.", "zipimport."))
        if name in NAMED:
            argument = argument_of(call, 0, NAMED[name])
            modules = self.names.constants(argument)
            if modules is None:
                self._flag(call, f"{name}({_shown(argument)}) imports a module whose name is not fixed")
            for module in sorted(modules or ()):
                self._import(module, call)
        elif STARTERS.fullmatch(name):
            if not self._harmless(argument_of(call, 0, "args")):
                self._flag(call, f"{name}({_shown(argument_of(call, 0, 'args'))})", JudgeUse.STARTS)
        elif name in ("pytest.main", "unittest.main") or (
            isinstance(call.func, ast.Attribute) and call.func.attr in _TESTS
        ):
            self._runs_tests(call, name)
        return False

    def _loader(self, call: ast.Call, name: str) -> None:
        argument = argument_of(call, *LOADERS[name])
        if name == "torch.load" and _is_true(call, "weights_only"):
            return
        if name == "numpy.load" and not _is_true(call, "allow_pickle"):
            return
        if name in ("yaml.load", "yaml.load_all"):
            loader = argument_of(call, 1, "Loader")
            if loader is not None and self.names.dotted(loader).rpartition(".")[2] in _SAFE_YAML:
                return
        if name.startswith("ctypes."):
            libraries = self.names.constants(argument)
            if libraries is not None and not any("/" in library for library in libraries):
                return  # searched for among the system's
        elif name not in PATHS and argument is not None and self.names.constants(argument) is not None:
            return
        if self.names.is_own(argument):
            self.own |= {path for path in self.text.files if path.endswith(".py") and path != self.text.file}
            return
        self._flag(
            call, f"{name}({_shown(argument)}) {WHAT_LOADS.get(name.rpartition('.')[2], 'runs what it is given')}"
        )

    def _runs_tests(self, call: ast.Call, name: str) -> None:
        if name == "unittest.main":  # its own tests, unless it is told a module
            if (module := argument_of(call, 0, "module")) is not None and self.names.constants(module) != {"__main__"}:
                self._flag(call, f"unittest.main({_shown(module)}) runs tests beside the judge")
            return
        if name != "pytest.main":
            assert isinstance(call.func, ast.Attribute)
            made = self.names.dotted(call.func.value.func if isinstance(call.func.value, ast.Call) else call.func.value)
            values = [self.names.dotted(v.func) for v in self.names.values(made) if isinstance(v, ast.Call)]
            if not any(place.startswith("unittest.") for place in [made, *values]):
                return
        given = argument_of(call, 0, "args" if name == "pytest.main" else "start_dir")
        for item in given.elts if isinstance(given, ast.List | ast.Tuple) else [given]:
            flags = self.names.constants(item)
            if not (self.names.is_own(item) or (flags is not None and all(flag.startswith("-") for flag in flags))):
                self._flag(call, f"{ast.unparse(call.func)}({_shown(item)}) runs tests beside the judge")
                return

    def _harmless(self, argument: ast.expr | None) -> bool:
        """Whether a program that is started is known to run nothing of the agent."""
        if isinstance(argument, ast.Name):
            return all(value is not None and self._harmless(value) for value in self.names.values(argument.id))
        if isinstance(argument, ast.List | ast.Tuple) and argument.elts:
            words = [self.names.one_constant(item) for item in argument.elts]
            return words[0] is not None and harmless([word or "" for word in words])
        text = self.names.one_constant(argument)
        return text is not None and not re.search(r"[;&|`$<>(\n]", text) and harmless(text.split())

    def _handed_on(self, node: ast.Name | ast.Attribute) -> None:
        """A function that is not called by its name here, such as `map(eval, rows)`."""
        name = self.names.dotted(node)
        if name in self.names.functions or self._rebound(name):
            return
        if name in LOADERS or name in NAMED:
            self._flag(node, f"{name} is handed on as a function")
        elif STARTERS.fullmatch(name):
            self._flag(node, f"{name} is handed on as a function", JudgeUse.STARTS)

    def _rebound(self, name: str) -> bool:
        return name in ("exec", "eval", "__import__") and name in self.names.bound

    # -- imports ------------------------------------------------------------------------------------------------------

    def _import(self, module: str, node: ast.AST) -> None:
        top = module.partition(".")[0]
        mine = {path for path in self.text.files if path == f"{top}.py" or path.startswith(f"{top}/")}
        wide = any(node in self._inside or line <= node.lineno for line in self.widened)  # type: ignore[attr-defined]
        if mine and self.text.own_folder and not wide:
            self.own |= {path for path in mine if path.endswith(".py") and path != self.text.file}
        elif top in sys.stdlib_module_names:
            if self.text.reach is Reach.ALL and top not in _AT_START:
                self._flag(node, f"import {module}: {SHADOWED}")
        elif wide:
            self._flag(node, f"import {module}, with a folder of the workspace on sys.path")
        elif self.text.reach is not Reach.NONE:
            self._flag(node, f"import {module}, with the workspace on the import path")

    def _widens(self, node: ast.AST) -> bool:
        """Whether a statement puts a folder on the import path that is not the grader's own."""
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Call):
            name = self.names.dotted(node.func)
            if name in ("sys.path.append", "sys.path.extend", "site.addsitedir"):
                values = [node.args[0] if node.args else None]
            elif name == "sys.path.insert":
                values = [argument_of(node, 1, "object")]
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                place = target.value if isinstance(target, ast.Subscript) else target
                if self.names.dotted(place) == "sys.path":
                    values.append(node.value)
        items: list[ast.expr | None] = []
        for value in values:
            items += value.elts if isinstance(value, ast.List | ast.Tuple) else [value]
        return any(not self.names.is_own(item) for item in items)

    def _flag(self, node: ast.AST, what: str, use: JudgeUse = JudgeUse.IN_PROCESS) -> None:
        line = self.text.line + node.lineno - 1  # type: ignore[attr-defined]
        self.found.append(Finding(use, self.text.file, line, what))


def _is_true(call: ast.Call, keyword: str) -> bool:
    return any(
        item.arg == keyword and isinstance(item.value, ast.Constant) and item.value.value is True
        for item in call.keywords
    )


def _shown(node: ast.expr | None) -> str:
    text = "..." if node is None else " ".join(ast.unparse(node).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
