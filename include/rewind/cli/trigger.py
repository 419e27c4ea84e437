"""`deploy`, `plan`, `start`, `rollback`, `consumers` and `abort`: runs of the DAGs, started over Airflow's REST API."""

from __future__ import annotations

import argparse
import contextlib
import getpass
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection

from rewind.cli import context, output, planning
from rewind.core import lifecycle
from rewind.core.errors import RefusedError, RetryError
from rewind.core.planning import plan as plans
from rewind.core.planning import requested_range
from rewind.declared import forms
from rewind.declared.forms import CONSUMERS, PARAMETERS, ROLLBACK
from rewind.registry import audit, plannings, rewinds
from rewind.registry.database import writing
from rewind.registry.plannings import Planning
from rewind.registry.rewinds import Rewind
from rewind.registry.snapshot import snapshot

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
    "compare": "rows, or none where live is dead: needs --reason, and a person approves",
    "grace": "how long the old generation is kept for a rollback",
    "repair_into": "where a repair's rows go",
    "apply_plan": "id of the plan to carry out, as `plan` printed it",
}
NEVER_ASKED = ("dry_run",)
"""Parameters of a rewind that the command itself gives: `plan` is a dry run, `start` is none."""
ROLLBACK_HELP = {
    **MOVES_HELP,
    "to": "the job to go back to; by default the newest standby",
    "reason": "why, for the history",
    "grace": "how long the job that is left is kept",
    "move_consumers": "move back the groups that the switch moved; --no-move-consumers leaves them",
    "dry_run": "dry run (default); pass --no-dry-run to apply",
}
CONSUMERS_HELP = {
    **MOVES_HELP,
    "from_job": "whose output they have read; by default the standby, or live",
    "to_job": "whose output they go on in; by default live",
    "dry_run": "dry run (default); pass --no-dry-run to apply",
}


START = {name: schema for name, schema in PARAMETERS.items() if name not in NEVER_ASKED}
PLAN = {name: schema for name, schema in START.items() if name != "apply_plan"}
ASK_MILLISECONDS = 5_000
"""How long a command waits for the registry's lock to make known what it has started."""
ONLY_TELLS = "a dry run unless --no-dry-run is given"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that start DAG runs."""
    deploy = subparsers.add_parser("deploy", parents=[output.FORM], help="make the first generation of a pipeline")
    deploy.add_argument("pipeline")
    deploy.add_argument("--from", dest="start", default="earliest", help=requested_range.ORIGIN_FORMS)
    deploy.set_defaults(func=_deploy)
    plan = _form(subparsers, "plan", "plan a rewind and show the plan; changes nothing", PLAN, HELP)
    plan.add_argument(
        "--wait", action=argparse.BooleanOptionalAction, default=True, help="wait for the plan; --no-wait only asks"
    )
    plan.set_defaults(func=_plan)
    _form(subparsers, "start", "rewind a pipeline, or carry out a plan", START, HELP).set_defaults(func=_start)
    back = _form(subparsers, "rollback", f"make the standby live again; {ONLY_TELLS}", ROLLBACK, ROLLBACK_HELP)
    back.set_defaults(func=_rollback)
    move = _form(subparsers, "consumers", f"move groups to another output; {ONLY_TELLS}", CONSUMERS, CONSUMERS_HELP)
    move.set_defaults(func=_consumers)
    abort = subparsers.add_parser(
        "abort", parents=[output.FORM], help="abort an active rewind and collect what it made"
    )
    abort.add_argument("rewind", help="id of the rewind, as `status` shows it")
    abort.add_argument("--reason", default="", help="why, for the history")
    abort.set_defaults(func=_abort)


def _form(
    subparsers: argparse._SubParsersAction[argparse.ArgumentParser],
    name: str,
    text: str,
    schemas: Mapping[str, Mapping[str, Any]],
    words: Mapping[str, str],
) -> argparse.ArgumentParser:
    parser = subparsers.add_parser(name, parents=[output.FORM], help=text)
    parser.add_argument("pipeline")
    for parameter in schemas:
        _add_option(parser, parameter, schemas, words)
    return parser


def _add_option(
    parser: argparse.ArgumentParser, name: str, schemas: Mapping[str, Mapping[str, Any]], words: Mapping[str, str]
) -> None:
    schema, flag = schemas[name], f"--{name.replace('_', '-')}"
    kinds = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    options: dict[str, Any] = {"dest": name, "default": None, "help": words[name]}
    if "boolean" in kinds:
        options["action"] = argparse.BooleanOptionalAction
    elif "array" in kinds:
        options |= {"nargs": "+", "metavar": "GROUP"}
    elif "object" in kinds:
        options["type"] = _json_object
    elif "enum" in schema:
        options["choices"] = schema["enum"]
    parser.add_argument(flag, **options)


def _json_object(text: str) -> dict[str, Any]:
    body = json.loads(text)
    if not isinstance(body, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is not a JSON object")
    return body


def _given(arguments: argparse.Namespace, schemas: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    given = {name: getattr(arguments, name) for name in schemas}
    return {name: value for name, value in given.items() if value is not None}


def _plan(arguments: argparse.Namespace) -> int:
    conf = {**_given(arguments, PLAN), "dry_run": True}
    forms.parse(arguments.pipeline, conf)
    dag_id = f"rewind_{arguments.pipeline}"
    if not arguments.wait:
        return _tell_started(arguments, dag_id, _asked(arguments, dag_id, conf), rewind=forms.rewind_id)
    run_id = _asked(arguments, dag_id, conf)
    made = planning.awaited(context.airflow_api(), context.settings().registry_url, dag_id, run_id)
    output.tell(arguments, made, plans.explain(made))
    return 0


def _start(arguments: argparse.Namespace) -> int:
    conf = {**_given(arguments, START), "dry_run": False}
    forms.parse(arguments.pipeline, conf)
    dag_id = f"rewind_{arguments.pipeline}"
    return _tell_started(arguments, dag_id, _asked(arguments, dag_id, conf), rewind=forms.rewind_id)


def _asked(arguments: argparse.Namespace, dag_id: str, conf: Mapping[str, Any]) -> str:
    """Start a run that plans, make its rewind known, and return the run's id."""
    run_id = _started(dag_id, conf)
    rewind_id, reason = forms.rewind_id(dag_id, run_id), conf.get("reason", "")
    # Where no registry is in reach, or its lock is held too long, the run's first task makes it known.
    with contextlib.suppress(RefusedError, RetryError), _registry() as connection:
        plannings.ask(connection, rewind_id, arguments.pipeline, reason, dry_run=conf["dry_run"])
    return run_id


@contextlib.contextmanager
def _registry() -> Iterator[Connection]:
    with writing(context.settings().registry_url, ASK_MILLISECONDS) as connection:
        yield connection


def _rollback(arguments: argparse.Namespace) -> int:
    conf = _given(arguments, ROLLBACK)
    return tell_started(arguments, f"rollback_{arguments.pipeline}", conf, rollback=forms.rollback_id)


def _consumers(arguments: argparse.Namespace) -> int:
    conf = _given(arguments, CONSUMERS)
    return tell_started(arguments, f"consumers_{arguments.pipeline}", conf, moves=forms.move_id)


def _deploy(arguments: argparse.Namespace) -> int:
    return tell_started(arguments, f"deploy_{arguments.pipeline}", {"from": arguments.start})


def _abort(arguments: argparse.Namespace) -> int:
    with writing(context.settings().registry_url) as connection:
        planning = plannings.abort(connection, arguments.rewind, arguments.reason)
        if planning is not None:
            said = {"reason": arguments.reason}
            audit.note(connection, audit.Act(getpass.getuser(), "abort", planning.pipeline, planning.id, said))
    if planning is not None:
        _end_steps(planning)
        body = {"rewind": planning.id, "state": lifecycle.ABORTED}
        output.tell(arguments, body, [f"{planning.id}: aborted while it was planned; there is nothing to take back"])
        return 0
    with snapshot(context.settings().registry_url) as connection:
        found, _ = rewinds.read_active(connection, arguments.rewind)
    conf = {"rewind_id": found.id} | ({"reason": arguments.reason} if arguments.reason else {})
    code = tell_started(arguments, f"abort_{found.pipeline}", conf)
    _end_steps(found)
    return code


def _end_steps(found: Rewind | Planning) -> None:
    """End the tasks that run for a rewind: while one drives a step, its abort waits."""
    api, dag_id = context.airflow_api(), f"rewind_{found.pipeline}"
    going = [run for run in api.dag_runs(dag_id) if run["state"] == "running"]
    for run_id in (run["dag_run_id"] for run in going if forms.rewind_id(dag_id, run["dag_run_id"]) == found.id):
        for task in api.task_instances(dag_id, run_id):
            if task["state"] == "running":
                api.end_task(dag_id, run_id, task["task_id"])


def tell_started(
    arguments: argparse.Namespace, dag_id: str, conf: Mapping[str, Any], **ids: Callable[[str, str], str]
) -> int:
    """Start a run of a DAG and tell its id, and what else is called after it; return the exit code.

    Args:
        arguments: Whether to answer as JSON.
        dag_id: The DAG.
        conf: Parameters of its form.
        ids: By what it is, a function that gives the id of what the run does.
    """
    return _tell_started(arguments, dag_id, _started(dag_id, conf), **ids)


def _tell_started(arguments: argparse.Namespace, dag_id: str, run_id: str, **ids: Callable[[str, str], str]) -> int:
    named = {what: of(dag_id, run_id) for what, of in ids.items()}
    lines = [f"{dag_id}: run {run_id}", *(f"{what} {name}" for what, name in named.items())]
    output.tell(arguments, {"dag_id": dag_id, "run_id": run_id, **named}, lines)
    return 0


def _started(dag_id: str, conf: Mapping[str, Any]) -> str:
    from rewind.airflow_api.client import AirflowApiError

    forms.checked(conf, forms.form_of(dag_id), dag_id)
    try:
        return str(context.airflow_api().trigger(dag_id, conf)["dag_run_id"])
    except AirflowApiError as refused:
        if refused.status == 404:
            cure = "Add its folder, or wait until Airflow has parsed it; `python -m rewind status` shows what is broken"
            raise RefusedError("pipeline", f"Airflow has no DAG {dag_id}", cure) from refused
        raise
