"""Differences that are kept with both sides, as evidence shows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from rewind.transforms.comparing import compare
from rewind.transforms.records import outputs

MOST = 20
"""Differences that are kept."""


def first(rows: DataFrame) -> tuple[Mapping[str, Any], ...]:
    """Return the first pairs that differ, by source coordinate (`compare.classified`), expected ones last."""
    ordered = rows.where(F.col("class") != compare.EQUAL).orderBy(F.col("class") == compare.EXPECTED, "p", "o", "n")
    return tuple(shown(row) for row in ordered.limit(MOST).collect())


def shown(row: Row) -> dict[str, Any]:
    """Return a pair as evidence shows it: where it comes from, or its key, its class, and both sides."""
    at = row.asDict()
    by_key = {"key": _text(at.get("key"))}
    place = {"partition": row["p"], "offset": row["o"], "row": row["n"]} if "p" in at else by_key
    return {
        **place,
        "class": row["class"],
        "fields": row["fields"],
        "live": _side(row["l"]),
        "candidate": _side(row["c"]),
    }


def _side(side: Row | None) -> dict[str, Any] | None:
    if side is None:
        return None
    return {name: _text(side[name]) for name in outputs.CONTENT}


def _text(value: object) -> object:
    if not isinstance(value, (bytes, bytearray)):
        return value
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        return f"0x{bytes(value).hex()}"
