"""Which registry transactions of the product write, by its source: what their bodies call, and what that calls.

A body writes when it, or any function that it calls and that this can resolve, builds an INSERT, UPDATE or DELETE or
sends SQL as text. Calls are resolved by imports, within a module, within a class, and on instances of classes by the
name of the method where no other class of the product has one of that name.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
TOPS = {"rewind": PROJECT / "include", "rewind_airflow": PROJECT / "dags", "examples": PROJECT}
DML = {"insert", "update", "delete", "text"}
"""What SQLAlchemy names the statements that change rows, and SQL as text, which this does not read."""
OPENERS = ("reading", "writing")


@dataclass
class Module:
    """A module of the product.

    Attributes:
        name: Its dotted name.
        path: Its file.
        imported: What each name in it stands for, as a dotted name.
        functions: Its functions and methods, `f` and `C.f`.
    """

    name: str
    path: Path
    imported: dict[str, str] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef | ast.AsyncFunctionDef] = field(default_factory=dict)


@dataclass(frozen=True)
class Site:
    """A transaction in the source.

    Attributes:
        place: Its file and line.
        opener: `reading` or `writing`.
        writes: Whether its body may write.
    """

    place: str
    opener: str
    writes: bool


class Source:
    """The product's source, as far as calls within it can be resolved."""

    def __init__(self) -> None:
        self._modules = {module.name: module for module in _modules()}
        self._methods: dict[str, list[tuple[str, str]]] = defaultdict(list)
        for module in self._modules.values():
            for name in module.functions:
                if "." in name:
                    self._methods[name.rpartition(".")[2]].append((module.name, name))
        self._known: dict[tuple[str, str], bool] = {}

    def sites(self) -> Iterator[Site]:
        """Return all transactions of the product."""
        for module in self._modules.values():
            for name, function in module.functions.items():
                for block in ast.walk(function):
                    if isinstance(block, ast.With):
                        yield from self._sites_of(module, name, block)

    def _sites_of(self, module: Module, function: str, block: ast.With) -> Iterator[Site]:
        for item in block.items:
            called = item.context_expr
            opener = _called(called) if isinstance(called, ast.Call) else ""
            if opener in OPENERS:
                place = f"{module.path.relative_to(PROJECT)}:{block.lineno}"
                rest = [*block.body, *(other.context_expr for other in block.items if other is not item)]
                # Whoever gets the connection may do anything with it.
                given_on = any(isinstance(node, ast.Yield) for part in block.body for node in ast.walk(part))
                writes = given_on or any(self._body_writes(module, function, part) for part in rest)
                yield Site(place, opener, writes)

    def _body_writes(self, module: Module, function: str, body: ast.AST) -> bool:
        for call in (node for node in ast.walk(body) if isinstance(node, ast.Call)):
            if isinstance(call.func, ast.Name) and call.func.id in DML:
                return True
        # A function that is passed on is called by whoever gets it.
        read = (node for node in ast.walk(body) if isinstance(getattr(node, "ctx", None), ast.Load))
        passed = [node for node in read if isinstance(node, ast.Name | ast.Attribute)]
        return any(self._writes(*target) for node in passed for target in self._named(module, function, node))

    def _writes(self, module: str, function: str) -> bool:
        key = (module, function)
        if key not in self._known:
            self._known[key] = False
            home = self._modules[module]
            self._known[key] = self._body_writes(home, function, home.functions[function])
        return self._known[key]

    def _named(self, module: Module, function: str, node: ast.AST) -> Iterator[tuple[str, str]]:
        if isinstance(node, ast.Name):
            yield from self._global(module, node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = node.value.id
            if owner in ("self", "cls") and "." in function:
                yield from self._in(module.name, f"{function.rpartition('.')[0]}.{node.attr}")
            elif owner in module.imported:
                yield from self._dotted(f"{module.imported[owner]}.{node.attr}")
            else:
                yield from self._method(node.attr)
        elif isinstance(node, ast.Attribute):
            yield from self._method(node.attr)

    def _global(self, module: Module, name: str) -> Iterator[tuple[str, str]]:
        if name in module.imported:
            yield from self._dotted(module.imported[name])
        yield from self._in(module.name, name)
        yield from self._in(module.name, f"{name}.__init__")

    def _dotted(self, dotted: str) -> Iterator[tuple[str, str]]:
        home, _, name = dotted.rpartition(".")
        yield from self._in(home, name)
        yield from self._in(home, f"{name}.__init__")
        outer, _, kind = home.rpartition(".")
        yield from self._in(outer, f"{kind}.{name}")

    def _method(self, name: str) -> Iterator[tuple[str, str]]:
        found = self._methods.get(name, [])
        if len(found) == 1:
            yield found[0]

    def _in(self, module: str, name: str) -> Iterator[tuple[str, str]]:
        if module in self._modules and name in self._modules[module].functions:
            yield module, name


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _modules() -> Iterator[Module]:
    for package, top in TOPS.items():
        paths = (p for p in sorted((top / package).rglob("*.py")) if not {"migrations", "__pycache__"} & set(p.parts))
        yield from (_module(".".join(p.relative_to(top).with_suffix("").parts), p) for p in paths)


def _module(name: str, path: Path) -> Module:
    made, tree = Module(name, path), ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            made.imported |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            made.functions[node.name] = node
        elif isinstance(node, ast.ClassDef):
            methods = (m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef))
            made.functions |= {f"{node.name}.{method.name}": method for method in methods}
    return made
