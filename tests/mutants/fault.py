"""A fault: a small change of one function that the tests must notice, found in the code by the function's name."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

PRODUCT = ("include/rewind", "dags", "plugins", "examples")
"""Where faults are planted."""

GUARD = "removed guard"
RANGE = "range off by one"
SIDES = "sides swapped"
ORDER = "order lost"
LOCK = "missing lock"
EFFECT = "skipped side effect"
COMPARISON = "inverted comparison"
REACTION = "wrong reaction"
VALUE = "wrong value"


class UnfitError(Exception):
    """The fault no longer fits the code: it must be written anew, or taken off the list."""


@dataclass(frozen=True)
class Fault:
    """A change of one function.

    Attributes:
        name: What is wrong with it then, in a few words.
        kind: One of the kinds above.
        function: The end of its dotted name, as long as it takes to be unambiguous: `renew`, `Lease.renew`, or
            `leases.renew` with the module. Modules may move.
        old: What is replaced; stands once in the function.
        new: What stands there then.
    """

    name: str
    kind: str
    function: str
    old: str
    new: str


@dataclass(frozen=True)
class Place:
    """Where a fault is planted.

    Attributes:
        path: The file, from the root of the checkout.
        function: Full dotted name.
        first: First line of the function, counted from 1.
        source: Source of the function.
    """

    path: str
    function: str
    first: int
    source: str

    def lines(self, fault: Fault) -> set[int]:
        """Return the numbers of the lines that the fault changes."""
        before, _ = self.source.split(fault.old)
        start = self.first + before.count("\n")
        return set(range(start, start + fault.old.count("\n") + 1))

    def package(self) -> str:
        """Return the package it lies in, as `rewind.core` or `dags`."""
        parts = Path(self.path).parts
        return ".".join(parts[1:3]) if parts[0] == "include" else parts[0]


def locate(root: Path, fault: Fault) -> Place:
    """Return the one function of this name that holds the text once.

    Raises:
        UnfitError: There is none, or more than one.
    """
    named = [place for place in places(root) if f".{place.function}".endswith(f".{fault.function}")]
    if not named:
        raise UnfitError(f"{fault.name}: there is no function {fault.function}. Name it anew")
    fitting = [place for place in named if place.source.count(fault.old) == 1]
    if len(fitting) != 1:
        found = ", ".join(f"{place.source.count(fault.old)} times in {place.function}" for place in named)
        raise UnfitError(f"{fault.name}: {fault.old!r} must stand once in one {fault.function}, but stands {found}")
    return fitting[0]


def changed(root: Path, fault: Fault) -> tuple[Place, str]:
    """Return where a fault is planted and the whole text of that file with it.

    Raises:
        UnfitError: It does not fit the code, changes nothing, or what comes of it is no Python.
    """
    place = locate(root, fault)
    text = (root / place.path).read_text()
    wrong = place.source.replace(fault.old, fault.new)
    made = text.replace(place.source, wrong)
    if text.count(place.source) != 1:
        raise UnfitError(f"{fault.name}: {place.function} stands more than once in {place.path}. Name another")
    try:
        ast.parse(textwrap.dedent(wrong))
    except SyntaxError as error:
        raise UnfitError(f"{fault.name}: what comes of it is no Python: {error}") from error
    return place, made


def compiled(root: Path, fault: Fault) -> tuple[Place, str]:
    """Return where a fault is planted and the function alone with it, to be executed within its module."""
    place, _ = changed(root, fault)
    return place, textwrap.dedent(place.source.replace(fault.old, fault.new))


@lru_cache
def places(root: Path) -> tuple[Place, ...]:
    """Return all functions of the product, those within classes and functions too."""
    files = sorted(path for folder in PRODUCT for path in (root / folder).rglob("*.py"))
    return tuple(place for path in files for place in _places(root, path))


def _places(root: Path, path: Path) -> Iterator[Place]:
    text = path.read_text()
    lines = text.splitlines(keepends=True)
    relative = path.relative_to(root).as_posix()
    module = ".".join(path.relative_to(root).with_suffix("").parts).removeprefix("include.")
    for name, node in _definitions(ast.parse(text), module):
        source = "".join(lines[node.lineno - 1 : node.end_lineno])
        yield Place(relative, name, node.lineno, source)


def _definitions(tree: ast.AST, name: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        inner = (
            f"{name}.{node.name}" if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) else name
        )
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield inner, node
        yield from _definitions(node, inner)
