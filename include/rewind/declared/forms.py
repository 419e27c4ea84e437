"""What the trigger form takes: one JSON schema, checked in the form and again before every submit."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rewind.core import comparing, observing, times
from rewind.core.errors import RefusedError
from rewind.core.nearest import meant
from rewind.core.nights import LEAST_SHARE
from rewind.core.planning import requested_range
from rewind.core.planning.plan import Request
from rewind.declared import json_schema
from rewind.declared.pipeline_schema import OVERRIDES

Form = Mapping[str, Mapping[str, Any]]
"""JSON schema of each parameter, with its default; one without must be given. Null stands for what was left out."""

_HALF = re.compile("[\ud800-\udfff]")

SHORTEST_PAUSE = 30
"""Seconds between two comparisons while a switch is observed: each is a spark-submit."""
DAYS = {
    "type": "string",
    "pattern": f"^{times.DURATION}$",
    "format": json_schema.DURATION,
    "expects": "a duration, as P1D",
}
OPTIONAL_TEXT = {"type": ["string", "null"], "maxLength": 2_000, "default": None}
DRY_RUN = {"type": "boolean", "default": True}
# An empty text passes the pattern: a run that was made before this was refused must not fail in a later task.
JOB = {
    "type": ["string", "null"],
    "pattern": r"^([A-Za-z0-9_][A-Za-z0-9._-]*-g[1-9]\d*)?$",
    "expects": "the id of a job, as visits_converter-g1",
    "maxLength": 249,
    "default": None,
}

MOVES: dict[str, dict[str, Any]] = {
    "consumer_groups": {
        "type": ["array", "null"],
        "items": {"type": "string", "pattern": r"^[^\s,]{1,249}$", "expects": "a consumer group"},
        "uniqueItems": True,
        "maxItems": 100,
        "default": [],
    },
    "only_new": {"type": "string", "enum": ["keep", "replay"], "default": "keep"},
    "replay_from": {
        "type": ["string", "null"],
        "pattern": rf"^\s*({requested_range.REPLAY})\s*$",
        "format": json_schema.REPLAY,
        "expects": requested_range.REPLAY_FORMS,
        "maxLength": 10_000,
        "default": "earliest",
    },
}
"""JSON schema of what moves consumer groups, in each form that switches."""

_POSITION = {"format": json_schema.POSITION, "expects": requested_range.FORMS, "maxLength": 10_000}
PARAMETERS: dict[str, dict[str, Any]] = {
    "from": {"type": "string", "pattern": rf"^\s*({requested_range.POSITION})\s*$", **_POSITION, "default": "earliest"},
    "to": {
        "type": ["string", "null"],
        "pattern": rf"^\s*({requested_range.POSITION})?\s*$",
        **_POSITION,
        "default": None,
    },
    "overrides": {**OVERRIDES, "type": ["object", "null"], "default": {}},
    "reason": OPTIONAL_TEXT,
    "accept_gaps": {**OPTIONAL_TEXT, "maxLength": 10_000},
    "same_code": {"type": "boolean", "default": False},
    "auto_approve": {"type": "boolean", "default": False},
    "observe": {**DAYS, "default": "PT15M"},
    "grace": {**DAYS, "default": "PT1H"},
    "repair_into": {"type": "string", "enum": ["live", "beside"], "default": "live"},
    **MOVES,
    "on_difference": {"type": "string", "enum": [observing.TELL, observing.ROLL_BACK], "default": observing.TELL},
    "compare_every": {**DAYS, "type": ["string", "null"], "pattern": f"^({times.DURATION})?$", "default": None},
    "compare": {"type": "string", "enum": [comparing.ROWS, comparing.NONE], "default": comparing.ROWS},
    "dry_run": DRY_RUN,
    "apply_plan": {
        "type": ["string", "null"],
        "pattern": "^([0-9a-f]{12})?$",
        "expects": "the id of a plan, as 0123456789ab",
        "default": None,
    },
}
"""The form of a rewind DAG."""

ROLLBACK: dict[str, dict[str, Any]] = {
    "to": JOB,
    "reason": OPTIONAL_TEXT,
    "grace": {**DAYS, "default": "PT1H"},
    "move_consumers": {"type": "boolean", "default": True},
    **MOVES,
    "dry_run": DRY_RUN,
}
"""The form of a rollback DAG."""

CONSUMERS: dict[str, dict[str, Any]] = {**MOVES, "from_job": JOB, "to_job": JOB, "dry_run": DRY_RUN}
"""The form of a consumers DAG."""

DEPLOY: dict[str, dict[str, Any]] = {
    "from": {
        "type": "string",
        "pattern": f"^({requested_range.ORIGIN})$",
        "format": json_schema.ORIGIN,
        "maxLength": 1_000,
        "default": "earliest",
    }
}
"""The form of a deploy DAG."""

ABORT: dict[str, dict[str, Any]] = {
    "rewind_id": {"type": "string", "pattern": "^rw-[0-9a-f]{10}$", "expects": "the id of a rewind, as rw-0123456789"},
    "reason": OPTIONAL_TEXT,
}
"""The form of an abort DAG."""

STREAM: dict[str, dict[str, Any]] = {"owner": JOB}
"""The form of a stream DAG."""

NIGHTLY: dict[str, dict[str, Any]] = {
    "partitions": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 0}, "default": None},
    "share": {"type": "number", "minimum": LEAST_SHARE, "maximum": 1, "default": 1.0},
}
"""The form of a nightly replay; a pipeline may declare other defaults."""

COLLECT: dict[str, dict[str, Any]] = {"dry_run": {"type": "boolean", "default": False}}
"""The form of the collection of garbage."""

PROVE: dict[str, dict[str, Any]] = {"topic": {"type": ["string", "null"], "default": None}}
"""The form of the proof of mirrors."""

NOTHING: dict[str, dict[str, Any]] = {}
"""The form of a DAG that takes no parameters."""

FORMS: dict[str, Form] = {
    "rewind": PARAMETERS,
    "rollback": ROLLBACK,
    "consumers": CONSUMERS,
    "deploy": DEPLOY,
    "abort": ABORT,
    "stream": STREAM,
    "mirror": NOTHING,
    "nightly_replay": NIGHTLY,
    "collect_garbage": COLLECT,
    "prove_mirrors": PROVE,
    "watch_streams": NOTHING,
    "check_pipelines": NOTHING,
}
"""The form of each DAG, by its id or by what its id begins with."""


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


def form_of(dag_id: str) -> Form:
    """Return the form of a DAG.

    Raises:
        RefusedError: It is none of Rewind's.
    """
    kinds = [kind for kind in FORMS if dag_id == kind or dag_id.startswith(f"{kind}_")]
    if not kinds:
        raise RefusedError("dag_id", f"{dag_id} is no DAG of Rewind", meant(dag_id, FORMS))
    return FORMS[kinds[0]]


def checked(parameters: Mapping[str, Any], form: Form, of: str) -> dict[str, Any]:
    """Return parameters with their defaults filled in, each held against its schema; checked again they are the same.

    Args:
        parameters: What was given.
        form: What may be given.
        of: Whose form it is, for the error.

    Raises:
        RefusedError: A parameter that is unknown, lacking, empty, of another type, or has a bad value; it is named.
    """
    unknown = sorted(parameters.keys() - form.keys())
    if unknown:
        raise RefusedError(unknown[0], f'{of} does not know "{unknown[0]}"', meant(unknown[0], form))
    return {name: _checked(name, parameters.get(name, schema.get("default")), schema) for name, schema in form.items()}


def _checked(name: str, value: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(value, str) and not value.strip():
        raise RefusedError(name, "is empty", f"Give {schema.get('expects', 'a value')}, or leave it out")
    json_schema.check(value, schema, name)
    if any("\0" in text or _HALF.search(text) for text in _texts(value)):
        raise RefusedError(name, "holds a NUL or half of a surrogate pair, which no argument carries", "Take it out")
    return schema.get("default") if value is None else value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for item in [*value.keys(), *value.values()] for text in _texts(item))
    elif isinstance(value, list):
        yield from (text for item in value for text in _texts(item))


def _pause(text: str | None) -> int:
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
    values = checked(parameters, PARAMETERS, f"rewind_{pipeline}")
    observe = int(times.parse_duration(values["observe"], "observe").total_seconds())
    grace = int(times.parse_duration(values["grace"], "grace").total_seconds())
    if grace < observe:
        raise RefusedError("grace", "is shorter than observe", "The old job must outlive the watch over the new one")
    if values["consumer_groups"] and values["to"]:
        raise RefusedError("consumer_groups", "are given with a repair", "Leave them out: a repair moves no pointer")
    comparing.check(values["compare"], values["reason"] or "", values["on_difference"])
    return Request(
        pipeline=pipeline,
        start=values["from"].strip(),
        end=(values["to"] or "").strip(),
        overrides=values["overrides"],
        reason=values["reason"] or "",
        accept_gaps=values["accept_gaps"] or "",
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
