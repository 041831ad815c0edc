"""What Python code of a judge does with the agent's code, read from its syntax tree and never run."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from tasks.judges.constructs import LOADERS, NAMED, PATHS, SHADOWED, STARTERS, WHAT_LOADS, Finding, JudgeUse, harmless

# ---------------------------------------------------------------------------------------------------------------------
# What names and expressions of a Python file may stand for: fixed texts, paths of the grader's folder, or unknown.

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
"""Nodes that define a function."""


@dataclass(slots=True)
class Names:
    """What the names of a file may stand for, whatever function they stand in."""

    aliases: dict[str, str] = field(default_factory=dict)
    bound: dict[str, list[ast.expr | None]] = field(default_factory=dict)
    functions: dict[str, list[ast.FunctionDef | ast.AsyncFunctionDef]] = field(default_factory=dict)
    _levels: dict[str, int | None] = field(default_factory=dict)
    _texts: dict[str, set[str] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Sequence[ast.AST]) -> Names:
        """Collect what a file binds, parameters by the calls of their functions."""
        names = cls()
        called: set[ast.expr] = set()
        for node in nodes:
            names._bind(node)
        methods = {f for node in nodes if isinstance(node, ast.ClassDef) for f in node.body if isinstance(f, FUNCTIONS)}
        for node in nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names.functions:
                called.add(node.func)
                names._pass(node, names.functions[node.func.id])
        for node in nodes:  # a function that is handed on may be called with anything
            if isinstance(node, ast.Name) and node.id in names.functions and node not in called:
                methods |= set(names.functions[node.id])
        for function in methods:
            for argument in ast.walk(function.args):
                if isinstance(argument, ast.arg):
                    names._add(argument.arg, None)
        return names

    def dotted(self, node: ast.expr) -> str:
        """The full name of a name or attribute, imports resolved; empty for anything else."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            front = self.dotted(node.value)
            return f"{front}.{node.attr}" if front else ""
        return ""

    def values(self, name: str) -> Sequence[ast.expr | None]:
        """All that a name is bound to in the file; None stands for what cannot be known."""
        return self.bound.get(name) or [None]

    def one_constant(self, node: ast.expr | None) -> str | None:
        """The one text that an expression is; None where it is not fixed, or one of several."""
        found = self.constants(node)
        return next(iter(found)) if found is not None and len(found) == 1 else None

    def constants(self, node: ast.expr | None) -> set[str] | None:
        """The texts that an expression can be where all are written in the source; None where one is not."""
        if isinstance(node, ast.Constant):
            return {node.value} if isinstance(node.value, str) else {repr(node.value)}
        if isinstance(node, ast.Name) and node.id not in self.aliases:
            if node.id not in self._texts:
                self._texts[node.id] = None  # a name that is made of itself is no constant
                every = [self.constants(value) for value in self.values(node.id)]
                known = [texts for texts in every if texts is not None]
                self._texts[node.id] = set().union(*known) if len(known) == len(every) else None
            return self._texts[node.id]
        if isinstance(node, ast.JoinedStr | ast.BinOp):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node.left, node.right]
            for part in parts:
                inner = part.value if isinstance(part, ast.FormattedValue) else part
                if self.constants(inner) is None:
                    return None
            return {ast.unparse(node)}
        if isinstance(node, ast.Call) and self.dotted(node.func) in ("compile", "textwrap.dedent") and node.args:
            return self.constants(node.args[0])
        return None

    def is_own(self, node: ast.expr | None) -> bool:
        """Whether an expression is a path in the grader's folder, an open file there, or its text."""
        level = self._level(node)
        return level is not None and level <= 1

    def _level(self, node: ast.expr | None) -> int | None:
        """How many folders above a file of the grader a path leads: 0 the file, 1 its folder; None if it is another."""
        if isinstance(node, ast.Name):
            if node.id == "__file__":
                return 0
            if node.id not in self._levels:
                self._levels[node.id] = None  # a path that is made of itself is not known
                levels = {self._level(value) for value in self.values(node.id)}
                self._levels[node.id] = levels.pop() if len(levels) == 1 else None
            return self._levels[node.id]
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            return _up(self._level(node.value), 1)
        if isinstance(node, ast.Subscript):
            if self.dotted(node.value) == "os.environ" and self.constants(node.slice) == {"GRADER"}:
                return 1
            if isinstance(node.value, ast.Attribute) and node.value.attr == "parents":
                index = node.slice.value if isinstance(node.slice, ast.Constant) else None
                return _up(self._level(node.value.value), index + 1) if isinstance(index, int) else None
            return None
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._below(node.left, [node.right])
        if not isinstance(node, ast.Call):
            return None
        name = self.dotted(node.func)
        if name in ("os.environ.get", "os.getenv"):
            return 1 if self.constants(argument_of(node, 0, "key")) == {"GRADER"} else None
        if name == "os.path.dirname":
            return _up(self._level(argument_of(node, 0, "p")), 1)
        if name in ("os.path.join", "pathlib.Path", "pathlib.PurePath") and node.args:
            return self._below(node.args[0], node.args[1:])
        if name in ("str", "open", "io.open", "compile", "os.fspath", "os.path.abspath", "os.path.realpath"):
            return self._level(argument_of(node, 0, "path"))
        if isinstance(node.func, ast.Attribute):
            if node.func.attr == "joinpath":
                return self._below(node.func.value, node.args)
            if node.func.attr in ("resolve", "absolute", "as_posix", "open", "read", "read_text", "read_bytes"):
                return self._level(node.func.value)
        return None

    def _below(self, start: ast.expr, parts: Sequence[ast.expr]) -> int | None:
        level = self._level(start)
        for part in parts:
            text = self.one_constant(part)
            if level is None or text is None or text.startswith("/") or ".." in text.split("/"):
                return None
            level -= 1
        return level

    def _add(self, name: str, value: ast.expr | None) -> None:
        self.bound.setdefault(name, []).append(value)

    def _bind(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                self.aliases[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self.aliases[alias.asname or alias.name] = f"{node.module or ''}.{alias.name}"
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._target(target, node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            self._target(node.target, node.value)
        elif isinstance(node, ast.AugAssign):
            self._target(node.target, None)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            values = node.iter.elts if isinstance(node.iter, ast.List | ast.Tuple | ast.Set) else [None]
            for value in values:
                self._target(node.target, value)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            self._target(node.optional_vars, node.context_expr)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            self._add(node.name, None)
        elif isinstance(node, FUNCTIONS):
            self.functions.setdefault(node.name, []).append(node)
            positional = [*node.args.posonlyargs, *node.args.args]
            for argument, default in zip(positional[::-1], node.args.defaults[::-1], strict=False):
                self._add(argument.arg, default)
            for argument, value in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if value is not None:
                    self._add(argument.arg, value)
            for rest in (node.args.vararg, node.args.kwarg):
                if rest is not None:
                    self._add(rest.arg, None)
        elif isinstance(node, ast.Lambda):
            for argument in [*node.args.args, *node.args.kwonlyargs]:
                self._add(argument.arg, None)

    def _target(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            self._add(target.id, value)
        elif isinstance(target, ast.Starred):
            self._target(target.value, None)
        elif isinstance(target, ast.Tuple | ast.List):
            same = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts)
            values = value.elts if same and isinstance(value, ast.Tuple | ast.List) else [None] * len(target.elts)
            for inner, item in zip(target.elts, values, strict=True):
                self._target(inner, item)

    def _pass(self, call: ast.Call, functions: Sequence[ast.FunctionDef | ast.AsyncFunctionDef]) -> None:
        """Bind the parameters of a function to what a call passes."""
        for function in functions:
            names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]]
            starred = any(isinstance(item, ast.Starred) for item in call.args)
            if starred or any(keyword.arg is None for keyword in call.keywords):
                for name in names:
                    self._add(name, None)
                continue
            for name, value in zip(names, call.args, strict=False):
                self._add(name, value)
            for keyword in call.keywords:
                self._add(keyword.arg or "", keyword.value)


def argument_of(call: ast.Call, place: int, keyword: str) -> ast.expr | None:
    """The argument of a call at a place or by its keyword; None where it is not given, or behind a `*`."""
    given = next((item.value for item in call.keywords if item.arg == keyword), None)
    if given is None and len(call.args) > place and not any(isinstance(a, ast.Starred) for a in call.args[: place + 1]):
        return call.args[place]
    return given


def _up(level: int | None, folders: int) -> int | None:
    return None if level is None else level + folders


# -- What Python code of a judge does with the agent's code, read from its syntax tree and never run ------------------
# Two questions are asked of every call: does it start another program, and does it load or evaluate code here? Code
# that is loaded is the grader's own where its path is made of `__file__` or `$GRADER`, and harmless where it is a
# constant of the source. Everything else may be the agent's.


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
