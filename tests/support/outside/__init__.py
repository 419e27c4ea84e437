"""What others rely on, as lines of text: a line that is added, changed or gone is a change that somebody notices.

`lines.txt` holds the lines of the release that began the names of today. `differences.json` lists what has changed
since: each line that is new or gone, and by which alias the old name still works, or why nobody needs it.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parents[2]


def baseline(kind: str) -> set[str]:
    """Return the recorded lines of one kind, which is their first word."""
    return {line for line in (FOLDER / "lines.txt").read_text().splitlines() if line.startswith(f"{kind} ")}


def differences(kind: str) -> tuple[set[str], set[str]]:
    """Return the lines of one kind that are known to be new, and those that are known to be gone."""
    listed = json.loads((FOLDER / "differences.json").read_text())
    lines = [(entry["change"], entry["line"]) for entry in listed if entry["line"].startswith(f"{kind} ")]
    return {line for change, line in lines if change == "new"}, {line for change, line in lines if change == "gone"}


def changed(kind: str, found: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return what is new and what is gone against the recorded lines, the listed differences left out.

    A listed difference that is none is returned too, with a mark: the list holds nothing but the truth.
    """
    before, now = baseline(kind), set(found)
    new, gone = differences(kind)
    stale = {f"listed, but not so: {line}" for line in (new - (now - before)) | (gone - (before - now))}
    return sorted((now - before) - new | stale), sorted((before - now) - gone)


def schema_lines(kind: str, schema: Any, at: str = "") -> Iterator[str]:
    """Return a line for each value of a JSON schema or of anything like it, in its place."""
    if isinstance(schema, Mapping):
        for key, value in schema.items():
            yield from schema_lines(kind, value, f"{at}.{key}" if at else str(key))
    else:
        yield f"{kind} {at} {json.dumps(schema, default=str, sort_keys=True)}"


def field_lines(kind: str, of: Any, at: str = "") -> Iterator[str]:
    """Return a line for each field of a dataclass and of those that it holds, as its JSON has them."""
    if dataclasses.is_dataclass(of):
        hints = typing.get_type_hints(of)
        for field in dataclasses.fields(of):
            place = f"{at}.{field.name}" if at else field.name
            yield f"{kind} {place}"
            yield from field_lines(kind, hints[field.name], place)
    elif typing.get_origin(of) in (tuple, list, dict, types.UnionType, typing.Union) or typing.get_args(of):
        for part in typing.get_args(of):
            yield from field_lines(kind, part, at)


def strings_of_calls(name: str, *folders: str) -> set[str]:
    """Return the first arguments of all calls of a function that are plain text."""
    found = set()
    for folder in folders:
        for path in (PROJECT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                called = getattr(node, "func", None)
                first = node.args[0] if isinstance(node, ast.Call) and node.args else None
                if name in (getattr(called, "attr", None), getattr(called, "id", None)):
                    found |= _texts(first)
    return found


def _texts(node: ast.AST | None) -> set[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return {node.value}
    if isinstance(node, ast.JoinedStr):
        return {"".join(str(part.value) if isinstance(part, ast.Constant) else "*" for part in node.values)}
    return set()


def environment_names(*folders: str) -> set[str]:
    """Return all names of variables of the environment that begin with `REWIND_`."""
    texts = [p.read_text() for folder in folders for p in (PROJECT / folder).rglob("*.py")]
    return {name for text in texts for name in re.findall(r"\bREWIND_[A-Z][A-Z_]*[A-Z]\b", text)}


def key_lines(kind: str, body: Any, depth: int = 2, at: str = "") -> Iterator[str]:
    """Return a line for each key of parsed JSON, down to a depth; elements of lists stand for each other."""
    if isinstance(body, Mapping) and depth:
        for key, value in body.items():
            place = f"{at}.{key}" if at else str(key)
            yield f"{kind} {place}"
            yield from key_lines(kind, value, depth - 1, place)
    elif isinstance(body, list):
        for element in body:
            yield from key_lines(kind, element, depth, f"{at}[]")
