"""`deploy`, `rewind`, `rollback`, `consumers` and `abort`: runs of the DAGs, started over Airflow's REST API."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from rewind.cli import context
from rewind.control import requests, rewinds
from rewind.control.requests import CONSUMERS, PARAMETERS, ROLLBACK
from rewind.control.snapshot import snapshot
from rewind.core.errors import RefusedError

MOVES_HELP = {
    "consumer_groups": "consumer groups that resume in the new output where they were in the old one",
    "only_new": "what becomes of records that only the new output has below a group's position",
    "replay_from": "with replay: earliest, an instant, or offsets JSON of the source",
}
HELP = {
    **MOVES_HELP,
    "from": "earliest, live, an instant, a duration back, shift-by:N, or offsets JSON",
    "to": "end of a repair, exclusive, in the same forms",
    "overrides": "settings of the pipeline to replace, as a JSON object",
    "reason": "why, for the history",
    "accept_gaps": "offsets that the mirror lacks and that may be skipped",
    "same_code": "go on although nothing differs from live",
    "auto_approve": "ask no person when the verdict is pass",
    "observe": "how long the switched pipeline is watched",
    "on_difference": "what is done when differences appear meanwhile",
    "compare_every": "pause between two comparisons meanwhile; by default pauses that grow",
    "grace": "how long the old generation is kept for a rollback",
    "repair_into": "where a repair's rows go",
    "dry_run": "only plan; --no-dry-run carries the plan out",
    "apply_plan": "id of the plan to carry out",
}
ROLLBACK_HELP = {
    **MOVES_HELP,
    "to": "the job to go back to; by default the one that stands by",
    "reason": "why, for the history",
    "grace": "how long the job that is left is kept",
    "move_consumers": "move back the groups that the switch moved; --no-move-consumers leaves them",
    "dry_run": "only tell; --no-dry-run acts",
}
CONSUMERS_HELP = {
    **MOVES_HELP,
    "from_job": "whose output they have read; by default the standby, or live",
    "to_job": "whose output they go on in; by default live",
    "dry_run": "only tell; --no-dry-run acts",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that start DAG runs."""
    deploy = subparsers.add_parser("deploy", help="make the first generation of a pipeline")
    deploy.add_argument("pipeline")
    deploy.add_argument("--from", dest="start", default="earliest", help=DEPLOY_FORMS)
    deploy.set_defaults(func=_deploy)
    rewind = subparsers.add_parser("rewind", help="rewind a pipeline; plans only, unless --no-dry-run is given")
    rewind.add_argument("pipeline")
    for name in PARAMETERS:
        _add_option(rewind, name, PARAMETERS, HELP)
    rewind.set_defaults(func=_rewind)
    back = subparsers.add_parser(
        "rollback", help="make the standby live again; tells only, unless --no-dry-run is given"
    )
    back.add_argument("pipeline")
    for name in ROLLBACK:
        _add_option(back, name, ROLLBACK, ROLLBACK_HELP)
    back.set_defaults(func=_rollback)
    move = subparsers.add_parser("consumers", help="move consumer groups to another output; tells only, unless told")
    move.add_argument("pipeline")
    for name in CONSUMERS:
        _add_option(move, name, CONSUMERS, CONSUMERS_HELP)
    move.set_defaults(func=_consumers)
    abort = subparsers.add_parser("abort", help="abort an active rewind and collect what it made")
    abort.add_argument("rewind", help="id of the rewind, as `status` shows it")
    abort.add_argument("--reason", default="", help="why, for the history")
    abort.set_defaults(func=_abort)


DEPLOY_FORMS = "earliest, latest, group:<consumer group> or checkpoint:<folder>"


def _add_option(
    parser: argparse.ArgumentParser, name: str, schemas: Mapping[str, Mapping[str, Any]], words: Mapping[str, str]
) -> None:
    schema, flag = schemas[name], f"--{name.replace('_', '-')}"
    options: dict[str, Any] = {"dest": name, "default": None, "help": words[name]}
    if schema["type"] == "boolean":
        options["action"] = argparse.BooleanOptionalAction
    elif schema["type"] == "array":
        options |= {"nargs": "+", "metavar": "GROUP"}
    elif schema["type"] == "object":
        options["type"] = _json_object
    elif "enum" in schema:
        options["choices"] = schema["enum"]
    parser.add_argument(flag, **options)


def _json_object(text: str) -> dict[str, Any]:
    body = json.loads(text)
    if not isinstance(body, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object")
    return body


def _given(arguments: argparse.Namespace, schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    given = {name: getattr(arguments, name) for name in schemas}
    return {name: value for name, value in given.items() if value is not None}


def _rewind(arguments: argparse.Namespace) -> int:
    conf = _given(arguments, PARAMETERS)
    requests.parse(arguments.pipeline, conf)
    dag_id = f"rewind_{arguments.pipeline}"
    run_id = _trigger(dag_id, conf)
    print(f"rewind {requests.rewind_id(dag_id, run_id)}")
    return 0


def _rollback(arguments: argparse.Namespace) -> int:
    conf = _given(arguments, ROLLBACK)
    requests.checked(conf, ROLLBACK)
    dag_id = f"rollback_{arguments.pipeline}"
    print(f"rollback {requests.rollback_id(dag_id, _trigger(dag_id, conf))}")
    return 0


def _consumers(arguments: argparse.Namespace) -> int:
    conf = _given(arguments, CONSUMERS)
    requests.checked(conf, CONSUMERS)
    dag_id = f"consumers_{arguments.pipeline}"
    print(f"moves {requests.move_id(dag_id, _trigger(dag_id, conf))}")
    return 0


def _deploy(arguments: argparse.Namespace) -> int:
    _trigger(f"deploy_{arguments.pipeline}", {"from": arguments.start})
    return 0


def _abort(arguments: argparse.Namespace) -> int:
    with snapshot(context.settings().registry_url) as connection:
        found, _ = rewinds.read_active(connection, arguments.rewind)
    _trigger(f"abort_{found.pipeline}", {"rewind_id": found.id, "reason": arguments.reason})
    return 0


def _trigger(dag_id: str, conf: Mapping[str, Any]) -> str:
    from rewind.local.airflow_api import AirflowApiError

    try:
        run_id = str(context.airflow_api().trigger(dag_id, conf)["dag_run_id"])
    except AirflowApiError as refused:
        if refused.status == 404:
            cure = "Add its folder, or wait until Airflow has parsed it; `python -m rewind status` shows what is broken"
            raise RefusedError("pipeline", f"Airflow has no DAG {dag_id}", cure) from refused
        raise
    print(f"{dag_id}: run {run_id}")
    return run_id
