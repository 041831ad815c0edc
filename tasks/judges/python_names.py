"""What names and expressions of a Python file may stand for: fixed texts, paths of the grader's folder, or unknown."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

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
