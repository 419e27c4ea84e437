"""Expectations of a pipeline: `expectations.json` beside its `pipeline.yaml`, in the words of Great Expectations.

It has two lists. `output` is the contract of the rows that the candidate wrote, over the columns of its output;
`differences` gates what the comparison counted, over one row with a column a class. Each entry has `type` and `kwargs`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rewind.core.errors import RefusedError
from rewind.declared.json_schema import check

FILE = "expectations.json"
OUTPUT, DIFFERENCES = "output", "differences"

_EXPECTATION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["type"],
    "properties": {"type": {"type": "string", "pattern": "^expect_[a-z0-9_]+$"}, "kwargs": {"type": "object"}},
}
# Two that are equal could not be told apart in the answers.
_LIST = {"type": "array", "items": _EXPECTATION, "uniqueItems": True}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {OUTPUT: _LIST, DIFFERENCES: _LIST},
}
"""JSON schema of `expectations.json`."""


def read(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the expectations of a pipeline's folder; empty without a file.

    Raises:
        RefusedError: The file is no JSON, or breaks the schema; the entry is named.
    """
    path = folder / FILE
    if not path.is_file():
        return {}
    try:
        body = json.loads(path.read_text())
    except (ValueError, OSError, RecursionError) as error:
        raise RefusedError(f"{folder.name}.{FILE}", f"is not valid JSON ({error})", "Fix it") from None
    check(body, SCHEMA, FILE)
    return {name: [{"type": e["type"], "kwargs": e.get("kwargs", {})} for e in listed] for name, listed in body.items()}
