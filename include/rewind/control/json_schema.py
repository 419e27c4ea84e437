"""Values that users write, held against a JSON schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator

from rewind.core.errors import RefusedError


def check(body: Any, schema: Mapping[str, Any], field: str) -> None:
    """Check a value against a JSON schema.

    Raises:
        RefusedError: The first violation, with the path of its field.
    """
    error = next(iter(sorted(Draft202012Validator(schema).iter_errors(body), key=lambda e: list(e.path))), None)
    if error is not None:
        where = ".".join([field, *map(str, error.path)])
        raise RefusedError(where, error.message, "Mend it: README.md lists the fields")
