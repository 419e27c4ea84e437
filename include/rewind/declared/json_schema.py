"""Values that users write, held against a JSON schema.

Beside the keywords of JSON schema, `expects` says in words what a text must be; formats are the rules of `rewind.core`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from jsonschema import Draft202012Validator, FormatChecker, ValidationError

from rewind.core import times
from rewind.core.errors import RefusedError
from rewind.core.nearest import meant
from rewind.core.planning import requested_range

POSITION, REPLAY, ORIGIN, DURATION = "rewind-position", "rewind-replay", "rewind-origin", "rewind-duration"
"""Formats of texts: what their patterns cannot tell, such as whether there is such a day."""
FIELDS = "docs/pipeline-yaml.md lists the fields"
"""What to do where a schema says no more than that a value does not fit."""


def check(body: Any, schema: Mapping[str, Any], field: str) -> None:
    """Check a value against a JSON schema.

    Raises:
        RefusedError: The first violation, with the path of its field.
    """
    errors = Draft202012Validator(schema, format_checker=_FORMATS).iter_errors(body)
    error = min(errors, key=_order, default=None)
    if error is not None:
        raise _refused(error, ".".join([field, *map(str, error.path)]))


def _order(error: ValidationError) -> tuple[list[str], bool]:
    # A format says what is wrong, where a pattern says only that something is.
    return [str(part) for part in error.path], error.validator != "format"


def _refused(error: ValidationError, where: str) -> RefusedError:
    if isinstance(error.cause, RefusedError):
        return RefusedError(where, error.cause.problem, error.cause.cure)
    violated = cast("Mapping[str, Any]", error.schema)
    if error.validator == "additionalProperties":
        known = violated.get("properties", {})
        unknown = next(str(name) for name in cast("Mapping[str, Any]", error.instance) if name not in known)
        return RefusedError(where, error.message, meant(unknown, known))
    problem = f"{error.instance!r} is no such text" if error.validator == "pattern" else error.message
    cure = f"Give {violated['expects']}" if "expects" in violated else FIELDS
    return RefusedError(where, problem, cure)


def _formats(rules: Mapping[str, Callable[[str, str], object]]) -> FormatChecker:
    made = FormatChecker(formats=())
    for name, rule in rules.items():
        made.checks(name, raises=RefusedError)(
            lambda value, rule=rule: not isinstance(value, str) or _kept(rule, value)
        )
    return made


def _kept(rule: Callable[[str, str], object], value: str) -> bool:
    rule(value, "")
    return True


_FORMATS = _formats(
    {
        POSITION: requested_range.check,
        REPLAY: requested_range.check_replay,
        ORIGIN: requested_range.check_origin,
        DURATION: times.parse_duration,
    }
)
