"""What the trigger form takes: one JSON schema, checked in the form and again before every submit."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from rewind.control.json_schema import check
from rewind.control.pipeline_schema import OVERRIDES
from rewind.core import comparing, observing, times
from rewind.core.errors import RefusedError
from rewind.core.plan import Request

DURATION = r"^P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?$"
POSITION = (
    r"^\s*(earliest|live|shift-by:-?\d+|P(?=.)(\d+D)?(T(?=.)(\d+H)?(\d+M)?(\d+S)?)?"
    r"|\d{4}-\d{2}-\d{2}.*|\{[\s\S]*\})\s*$"
)

MOVES: dict[str, dict[str, Any]] = {
    "consumer_groups": {
        "type": "array",
        "items": {"type": "string", "pattern": r"^[^\s,]{1,249}$"},
        "uniqueItems": True,
        "maxItems": 100,
        "default": [],
    },
    "only_new": {"type": "string", "enum": ["keep", "replay"], "default": "keep"},
    "replay_from": {
        "type": "string",
        "pattern": r"^\s*(earliest|\d{4}-\d{2}-\d{2}.*|\{[\s\S]*\})\s*$",
        "maxLength": 10_000,
        "default": "earliest",
    },
}
"""JSON schema of what moves consumer groups, in each form that switches."""
SHORTEST_PAUSE = 30
"""Seconds between two comparisons while a switch is observed: each is a spark-submit."""

PARAMETERS: dict[str, dict[str, Any]] = {
    "from": {"type": "string", "pattern": POSITION, "maxLength": 10_000, "default": "earliest"},
    "to": {"type": "string", "pattern": rf"^\s*$|{POSITION}", "maxLength": 10_000, "default": ""},
    "overrides": {**OVERRIDES, "default": {}},
    "reason": {"type": "string", "maxLength": 2_000, "default": ""},
    "accept_gaps": {"type": "string", "maxLength": 10_000, "default": ""},
    "same_code": {"type": "boolean", "default": False},
    "auto_approve": {"type": "boolean", "default": False},
    "observe": {"type": "string", "pattern": DURATION, "default": "PT15M"},
    "grace": {"type": "string", "pattern": DURATION, "default": "PT1H"},
    "repair_into": {"type": "string", "enum": ["live", "beside"], "default": "live"},
    **MOVES,
    "on_difference": {"type": "string", "enum": [observing.TELL, observing.ROLL_BACK], "default": observing.TELL},
    "compare_every": {"type": "string", "pattern": rf"^$|{DURATION}", "default": ""},
    "compare": {"type": "string", "enum": [comparing.ROWS, comparing.NONE], "default": comparing.ROWS},
    "dry_run": {"type": "boolean", "default": True},
    "apply_plan": {"type": "string", "pattern": "^([0-9a-f]{12})?$", "default": ""},
}
"""JSON schema of each parameter of a rewind DAG, with its default."""

JOB = {"type": "string", "pattern": r"^([A-Za-z0-9_-]+-g[1-9]\d*)?$", "maxLength": 249, "default": ""}

ROLLBACK: dict[str, dict[str, Any]] = {
    "to": JOB,
    "reason": {"type": "string", "maxLength": 2_000, "default": ""},
    "grace": {"type": "string", "pattern": DURATION, "default": "PT1H"},
    "move_consumers": {"type": "boolean", "default": True},
    **MOVES,
    "dry_run": {"type": "boolean", "default": True},
}
"""JSON schema of each parameter of a rollback DAG, with its default."""

CONSUMERS: dict[str, dict[str, Any]] = {
    **MOVES,
    "from_job": JOB,
    "to_job": JOB,
    "dry_run": {"type": "boolean", "default": True},
}
"""JSON schema of each parameter of a consumers DAG, with its default."""


def rewind_id(dag_id: str, run_id: str) -> str:
    """Return the id of the rewind that a DAG run carries out: the same through retries and clears."""
    return f"rw-{_of_run(dag_id, run_id)}"


def rollback_id(dag_id: str, run_id: str) -> str:
    """Return the id of the rollback that a DAG run carries out: the same through retries and clears."""
    return f"rb-{_of_run(dag_id, run_id)}"


def move_id(dag_id: str, run_id: str) -> str:
    """Return the id of the moves of consumer groups that a DAG run makes: the same through retries and clears."""
    return f"cg-{_of_run(dag_id, run_id)}"


def _of_run(dag_id: str, run_id: str) -> str:
    return hashlib.sha256(f"{dag_id}/{run_id}".encode()).hexdigest()[:10]


def checked(parameters: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return parameters with their defaults filled in, each held against its schema.

    Raises:
        RefusedError: A parameter that is unknown, of another type, or has a bad value; the field is named.
    """
    unknown = sorted(parameters.keys() - schemas.keys())
    if unknown:
        raise RefusedError(unknown[0], "is no parameter", f"Parameters are {', '.join(schemas)}")
    values = {name: parameters.get(name, schema["default"]) for name, schema in schemas.items()}
    for name, schema in schemas.items():
        check(values[name], schema, name)
    return values


def _pause(text: str) -> int:
    seconds = int(times.parse_duration(text, "compare_every").total_seconds()) if text else 0
    if text and seconds < SHORTEST_PAUSE:
        cure = f"Give at least PT{SHORTEST_PAUSE}S, or leave it empty for pauses that grow"
        raise RefusedError("compare_every", f"{text} is less than a comparison takes", cure)
    return seconds


def parse(pipeline: str, parameters: Mapping[str, Any]) -> Request:
    """Return the request that the parameters of a rewind DAG make.

    Raises:
        RefusedError: A parameter that is unknown, of another type, or has a bad value; the field is named.
    """
    values = checked({**parameters, "overrides": parameters.get("overrides") or {}}, PARAMETERS)
    observe = int(times.parse_duration(values["observe"], "observe").total_seconds())
    grace = int(times.parse_duration(values["grace"], "grace").total_seconds())
    if grace < observe:
        raise RefusedError("grace", "is shorter than observe", "The old job must outlive the watch over the new one")
    if values["consumer_groups"] and values["to"].strip():
        raise RefusedError("consumer_groups", "are given with a repair", "Leave them out: a repair moves no pointer")
    comparing.check(values["compare"], values["reason"], values["on_difference"])
    return Request(
        pipeline=pipeline,
        start=values["from"].strip(),
        end=values["to"].strip(),
        overrides=values["overrides"],
        reason=values["reason"],
        accept_gaps=values["accept_gaps"],
        same_code=values["same_code"],
        auto_approve=values["auto_approve"],
        observe_seconds=observe,
        grace_seconds=grace,
        repair_into=values["repair_into"],
        consumer_groups=tuple(values["consumer_groups"]),
        only_new=values["only_new"],
        replay_from=values["replay_from"].strip(),
        on_difference=values["on_difference"],
        compare_every_seconds=_pause(values["compare_every"]),
        compare=values["compare"],
    )
