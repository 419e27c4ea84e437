"""What a `pipeline.yaml` may say, and what a rewind may override of it, as JSON schemas."""

from __future__ import annotations

from typing import Any

from rewind.core.nights import LEAST_SHARE
from rewind.core.pipeline import (
    APPEAR,
    ENTER,
    INSTANT,
    KEEP,
    LEAVE,
    TOLERANCE,
    TOMBSTONE,
    UNORDERED,
    VANISH,
    VOLATILE,
)

_TEXT = {"type": "string", "minLength": 1}
_TEXTS = {"type": "array", "items": _TEXT, "uniqueItems": True}
_COUNT = {"type": "integer", "minimum": 1}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_EXPECTED = {
    "type": "object",
    "additionalProperties": False,
    "required": ["column"],
    "properties": {"column": _TEXT, "rule": {"type": "string"}},
}

_TOLERANCE = {
    "type": "object",
    "additionalProperties": False,
    "required": ["column"],
    "anyOf": [{"required": ["relative"]}, {"required": ["absolute"]}],
    "properties": {
        "column": _TEXT,
        "relative": {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        "absolute": {"type": "number", "exclusiveMinimum": 0},
    },
}

_ROWS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["change", "rule"],
    "properties": {
        "change": {"enum": [APPEAR, VANISH, LEAVE, ENTER]},
        "rule": _TEXT,
        "least": {"type": "integer", "minimum": 0},
        "most": {"type": "integer", "minimum": 0},
    },
}

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["source", "output"],
    "properties": {
        "source": {
            "type": "object",
            "additionalProperties": False,
            "required": ["topic", "schema"],
            "properties": {
                "topic": _TEXT,
                "schema": _TEXT,
                "required": _TEXTS,
                "transactional": {"type": "boolean"},
                "isolation": {"enum": ["read_committed", "read_uncommitted"]},
            },
        },
        "output": {
            "type": "object",
            "additionalProperties": False,
            "oneOf": [{"required": ["topic"]}, {"required": ["table"]}],
            "properties": {
                "topic": _TEXT,
                "table": _TEXT,
                "key": _TEXTS,
                "mode": {"enum": ["append", "update"]},
                "starts": _TEXT,
                "ends": _TEXT,
                "shared": {"type": "boolean"},
                "vanished": {"enum": [KEEP, TOMBSTONE]},
            },
        },
        "session_time_zone": _TEXT,
        "stateful": {"type": "boolean"},
        "state_horizon": _TEXT,
        "closes_at": _TEXT,
        "several_rows": {"type": "boolean"},
        "functions": {
            "type": "array",
            "items": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
            "uniqueItems": True,
            "maxItems": 100,
        },
        "stream": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"trigger": _TEXT, "max_offsets": _COUNT},
        },
        "backfill": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"chunk_records": _COUNT},
        },
        "gates": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"lag_records": _COUNT, "late_share": _SHARE, "null_share": _SHARE},
        },
        "approval": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"four_eyes": {"type": "boolean"}, "auto_approve_by": _TEXTS},
        },
        "nightly": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "partitions": {"type": "array", "items": {"type": "integer", "minimum": 0}, "uniqueItems": True},
                "share": {"type": "number", "minimum": LEAST_SHARE, "maximum": 1},
            },
        },
        "compare": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "expected": {"type": "array", "items": _EXPECTED},
                VOLATILE: _TEXTS,
                TOLERANCE: {"type": "array", "items": _TOLERANCE},
                UNORDERED: _TEXTS,
                INSTANT: _TEXTS,
                "rows": {"type": "array", "items": _ROWS},
            },
        },
    },
}
"""JSON schema of `pipeline.yaml`."""

OVERRIDES: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "session_time_zone": _TEXT,
        "trigger_seconds": {"type": "number", "exclusiveMinimum": 0},
        "max_offsets": _COUNT,
        "chunk_records": _COUNT,
        "lag_gate": _COUNT,
        "output_key": _TEXTS,
        "vanished": {"enum": [KEEP, TOMBSTONE]},
    },
}
"""JSON schema of the settings that a rewind may override, by their names in `rewind.core.pipeline`."""
