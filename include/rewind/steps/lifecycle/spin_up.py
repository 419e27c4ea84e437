"""Make the empty candidate of a rewind, or the staging of a repair."""

from __future__ import annotations

import logging
from typing import Any

from rewind.core.errors import WorldMovedError
from rewind.core.model import Generation, Topic
from rewind.core.pipeline import KAFKA
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.registry import generations, rewinds
from rewind.registry.database import reading
from rewind.runtime.drivers import bundle
from rewind.runtime.kafka.broker import Broker
from rewind.steps.base import recording
from rewind.steps.generation import allocate
from rewind.steps.generation.allocate import Examined

log = logging.getLogger(__name__)


def run(settings: Settings, rewind_id: str) -> None:
    """Record the generation of a rewind and make what it owns; again is harmless.

    Raises:
        RefusedError: The rewind is not active, or something of the generation's name exists already.
    """
    recording.recorded(settings, rewind_id, "spin_up", lambda _: _spin_up(settings, rewind_id))


def _spin_up(settings: Settings, rewind_id: str) -> dict[str, Any]:
    with reading(settings.registry_url) as connection:
        _, plan = rewinds.read_active(connection, rewind_id)
        live = generations.read(connection, plan.live_job_id)
    source = _topic(settings, plan, plan.topic)
    if source.id != plan.topic_id:
        raise WorldMovedError("source.topic", f"{plan.topic} was recreated since the plan", "Make a new plan")
    code = bundle.verified(settings.data / "bundles" / plan.bundle, plan.bundle)
    pipeline = plan.declared
    # A live job that writes to a table has no topic whose limits the candidate's could take.
    on_topic = live.declared.output_format == KAFKA
    like = _topic(settings, plan, live.output_topic) if on_topic else source
    made = Generation(
        job_id=plan.job_id,
        pipeline=pipeline.name,
        state=plan.shape.made_as,
        topic_id=plan.topic_id,
        bundle=plan.bundle,
        frozen=allocate.frozen_configuration(
            settings, pipeline, Examined(plan.output_schema, state=plan.state), source, _epoch(plan), plan.trusted_from
        ),
        start=plan.start,
        handoff=None,
        output_topic=plan.output_topic,
        dead_letter_topic=plan.dead_letter_topic,
    )
    made = allocate.record(settings, made, rewind_id)
    allocate.make(settings, made, code, source, like)
    log.info("%s is made: %s, %s", made.job_id, made.output_topic, made.dead_letter_topic)
    return {"job_id": made.job_id, "output_topic": made.output_topic}


def _epoch(plan: Plan) -> int:
    # The rows of a repair go to live's output, as newer versions of its own.
    return plan.epoch + 1 if plan.shape.takes_over else plan.epoch


def _topic(settings: Settings, plan: Plan, name: str) -> Topic:
    found = Broker(settings).topic(name)
    if found is None:
        raise WorldMovedError("source.topic", f"{name} is gone since plan {plan.id}", "Make a new plan")
    return found
