"""Where in a `pipeline.yaml` a fault is, and what is expected there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rewind.core.errors import RefusedError
from rewind.declared.json_schema import FIELDS
from rewind.declared.pipeline_schema import SCHEMA

FILE = "pipeline.yaml"
_WORDS = {"string": "a text", "boolean": "true or false", "integer": "an integer", "number": "a number"}
_BOUNDS = (("minimum", "from {}"), ("exclusiveMinimum", "above {}"), ("maximum", "up to {}"))
_UNEXPECTED = re.compile(r"\('?([^',]+)'?.* (?:was|were) unexpected\)")
_COLON = "mapping values are not allowed"


def located(name: str, text: str, refused: RefusedError) -> RefusedError:
    """Return a refusal of what a pipeline's YAML declares with its file, its line and what is expected there.

    Args:
        name: The pipeline.
        text: Its YAML, which can be read.
        refused: Names the field by its path; one that names no field of the file is returned as it is.
    """
    path = [part for part in refused.field.removeprefix(FILE).split(".") if part]
    if not refused.field.startswith(FILE) and path[0] not in SCHEMA["properties"]:
        return refused
    root = yaml.compose(text, yaml.SafeLoader)
    line = 1 if root is None else _line(root, path, refused.problem)
    where = f"{name}/{FILE}:{line}"
    words = expected(_schema(path)) if refused.cure == FIELDS else ""
    field = f"{where}: {'.'.join(path)}" if path else where
    return RefusedError(field, refused.problem, f"Expected {words}" if words else refused.cure)


def unreadable(name: str, text: str, error: Exception) -> RefusedError:
    """Return the refusal of a text that is not valid YAML, with file, line and column where they are known."""
    mark = getattr(error, "problem_mark", None)
    place, problem, cure = "", str(error), "Fix it"
    if isinstance(error, yaml.MarkedYAMLError) and mark is not None:
        place = f":{mark.line + 1}:{mark.column + 1}"
        begun = f"{error.context} from line {error.context_mark.line + 1} on" if error.context_mark else error.context
        problem = ", ".join(filter(None, (begun, error.problem)))
        cure = "Quote the text if it has a ': ' of its own" if _COLON in problem else cure
    elif isinstance(error, yaml.reader.ReaderError):
        place, problem = f":{text.count(chr(10), 0, int(error.position)) + 1}", error.reason
    elif isinstance(error, UnicodeDecodeError):
        line = error.object.count(b"\n", 0, error.start) + 1
        place, problem = f":{line}", "a byte is no UTF-8"
    elif isinstance(error, RecursionError):
        problem = "it is nested too deeply"
    elif isinstance(error, ValueError):
        place = next((f":{line}" for line in _unreadable_values(text)), "")
    return RefusedError(f"{name}/{FILE}{place}", f"is not valid YAML ({' '.join(problem.split())})", cure)


def expected(schema: Mapping[str, Any]) -> str:
    """Return in words what a JSON schema asks for; empty when it says nothing of it."""
    if "enum" in schema:
        return f"one of {', '.join(schema['enum'])}"
    if schema.get("type") == "array":
        return f"a list, each of it {expected(schema['items'])}"
    if schema.get("type") == "object":
        return f"the fields {', '.join(_fields(schema))}"
    bounds = [text.format(schema[name]) for name, text in _BOUNDS if name in schema]
    return " ".join([_WORDS.get(schema.get("type", ""), ""), *bounds]).strip()


def _fields(schema: Mapping[str, Any]) -> list[str]:
    needed = schema.get("required", ())
    choice = [each["required"][0] for each in (*schema.get("anyOf", ()), *schema.get("oneOf", ()))]
    notes = dict.fromkeys(choice, f" ({' or '.join(choice)})") | dict.fromkeys(needed, " (required)")
    return [f"{name}{notes.get(name, '')}" for name in schema["properties"]]


def _schema(path: list[str]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = SCHEMA
    for part in path:
        found = found["items"] if part.isdecimal() else found.get("properties", {}).get(part, {})
    return found


def _line(node: Node, path: list[str], problem: str) -> int:
    """Return the line of the field that a path leads to, or of the nearest above it that is there.

    A problem that quotes a field below names that one: JSON schema gives an unexpected field's parent.
    """
    line = node.start_mark.line + 1
    for part in path:
        below = dict(_below(node))
        if part not in below:
            return line
        line, node = below[part]
    alien = _UNEXPECTED.search(problem)
    return dict(_below(node)).get(alien[1], (line, node))[0] if alien else line


def _below(node: Node) -> Iterator[tuple[str, tuple[int, Node]]]:
    """Give what is directly below a node: name, line and node of each field or item."""
    if isinstance(node, MappingNode):
        yield from ((str(key.value), (key.start_mark.line + 1, value)) for key, value in node.value)
    elif isinstance(node, SequenceNode):
        yield from ((str(n), (item.start_mark.line + 1, item)) for n, item in enumerate(node.value))


def _unreadable_values(text: str) -> Iterator[int]:
    """Give the lines of values that look like what they are not, such as a day that does not exist."""
    waiting = list(filter(None, [yaml.compose(text, yaml.SafeLoader)]))
    while waiting:
        node = waiting.pop()
        waiting += [value for _, (_, value) in _below(node)]
        if isinstance(node, ScalarNode):
            try:
                yaml.safe_load(node.value)
            except ValueError:
                yield node.start_mark.line + 1
