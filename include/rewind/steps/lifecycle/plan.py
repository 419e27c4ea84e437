"""Plan a rewind: read the world, resolve what was asked, store the plan, print it."""

from __future__ import annotations

import json
import logging
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from rewind.adapters.mirror_reader import Mirror
from rewind.adapters.session import session
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.pipeline import Pipeline
from rewind.core.planning import plan as plans
from rewind.core.planning import planner
from rewind.core.planning.plan import Plan, Request
from rewind.core.planning.planner import Code, World
from rewind.core.settings import Settings
from rewind.declared import forms, pipelines
from rewind.registry import generations, owners, plannings, rewinds
from rewind.registry.database import reading, writing
from rewind.runtime import approvers, rights, tables
from rewind.runtime.drivers import bundle, supervise
from rewind.runtime.kafka.broker import Broker
from rewind.runtime.planner_reads import Lifecycle
from rewind.steps.base import recording
from rewind.steps.generation import allocate, cut_trial
from rewind.steps.mirroring import proving
from rewind.steps.mirroring.maintenance import configured_hours
from rewind.transforms.comparing import row_rules
from rewind.transforms.values import parsing

log = logging.getLogger(__name__)


def run(settings: Settings, rewind_id: str, pipeline: str, request: str) -> None:
    """Make or take up the plan of a rewind; unless it is a dry run the rewind becomes active with it.

    Raises:
        RefusedError: The request cannot be carried out, was aborted meanwhile, or the mirror has lost records of its
            range; nothing has been changed.
    """
    parameters = _parameters(request)
    recording.recorded(settings, rewind_id, "plan", lambda _: _plan(settings, rewind_id, pipeline, parameters))


def _plan(settings: Settings, rewind_id: str, pipeline: str, parameters: dict[str, Any]) -> dict[str, Any]:
    with writing(settings.registry_url) as connection:
        plannings.refuse_aborted(connection, rewind_id)
        known = rewinds.find(connection, rewind_id)
        if known is not None:
            # Cleared after it was planned: the plan of a rewind does not change under it.
            return _told(rewinds.read_plan(connection, known.plan_id))
    made = _made(settings, forms.parse(pipeline, parameters), parameters.get("apply_plan") or "")
    dry_run = parameters.get("dry_run", True)
    # A dry run costs no pass over the history, and a release reads none of it.
    proven = [] if dry_run or not made.shape.reads_history else _proven(settings, made, rewind_id)
    with side_effect("rewind.open"), writing(settings.registry_url) as connection:
        plannings.refuse_aborted(connection, rewind_id)
        outputs = (made.output_topic, made.dead_letter_topic)
        approvers.refuse_auto_approve(connection, rewind_id, made)
        owners.check(connection, owners.of_job(pipeline, made.job_id, made.config, outputs))
        rewinds.store_plan(connection, made)
        if not dry_run:
            rewinds.open_rewind(connection, rewind_id, made)
    return {**_told(made), "proof": proven}


def _check_rights(settings: Settings, broker: Broker, made: Plan) -> None:
    with reading(settings.registry_url) as connection:
        live = generations.read(connection, made.live_job_id)
    outputs = (made.output_topic, made.dead_letter_topic)
    rights.before_making(broker, made.declared, made.job_id, outputs, live)


def _proven(settings: Settings, made: Plan, rewind_id: str) -> list[str]:
    spark = session(f"plan {made.request.pipeline}", made.declared.session_time_zone)
    return proving.before_reading(spark, settings, made, rewind_id)


def _made(settings: Settings, request: Request, apply_plan: str) -> Plan:
    declared = pipelines.load(settings.pipelines, request.pipeline)
    stored: Plan | None = None
    if apply_plan:
        with reading(settings.registry_url) as connection:
            stored = rewinds.read_plan(connection, apply_plan)
        if stored.request.pipeline != request.pipeline:
            raise RefusedError("apply_plan", f"plan {apply_plan} is of {stored.request.pipeline}", "Use its own DAG")
    wanted = pipelines.overridden(declared, (stored.request if stored else request).overrides)
    spark = session(f"plan {wanted.name}", wanted.session_time_zone)
    code = _code(spark, settings, wanted)
    mirror, broker = Mirror(spark, settings, wanted.transactional), Broker(settings, wanted.isolation)
    world = World(
        broker,
        mirror,
        Lifecycle(settings.registry_url),
        shutil.disk_usage(settings.data).free,
        tables.all_names(settings),
        configured_hours() * 3600,
        mirror.undeclared(wanted.source_topic, parsing.declared(wanted.schema)),
    )
    made = stored or planner.make_plan(request, wanted, code, world, datetime.now(UTC))
    for line in planner.still_holds(stored, wanted, code, world) if stored else ():
        log.warning("since the plan was made: %s", line)
    _check_rights(settings, broker, made)
    return made


def _code(spark: SparkSession, settings: Settings, pipeline: Pipeline) -> Code:
    candidate = bundle.running(Path(sys.argv[0]))
    with reading(settings.registry_url) as connection:
        live = generations.live(connection, pipeline.name)
    files = {} if live is None else supervise.frozen_bundle(settings, live[0].job_id, live[0].bundle).files
    seen = allocate.examined(spark, pipeline)
    cut_trial.check(spark, settings, pipeline)
    if live is not None:
        both = [parsing.declared(schema) for schema in (live[0].output_schema, seen.schema)]
        row_rules.check(spark, pipeline, both[0], both[1])
    return Code(candidate.hash, candidate.files, files, seen.schema, seen.delay, seen.state)


def _told(made: Plan) -> dict[str, Any]:
    lines = plans.explain(made)
    for line in lines:
        log.info("%s", line)
    return {"plan_id": made.id, "kind": made.kind, "explained": lines}


def _parameters(request: str) -> dict[str, Any]:
    try:
        body = json.loads(request)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise RefusedError("request", f"{request!r} is not a JSON object", "Give the parameters of the rewind DAG")
    return body
