"""Roll back: the standby becomes live again once it has passed all that the live job has answered."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rewind.core import times
from rewind.core.crash import side_effect
from rewind.core.errors import RetryError
from rewind.core.model import Generation
from rewind.core.offsets import Vector, behind, reached
from rewind.core.planning.consumer_groups import Sides
from rewind.core.settings import Settings
from rewind.declared import forms
from rewind.registry import generations, rewinds
from rewind.registry.database import reading, vector_from_json, vector_to_json, writing
from rewind.runtime import announce, consumer_groups, publishing, rollback
from rewind.runtime.kafka.broker import Broker
from rewind.runtime.rollback import Target
from rewind.steps.base import recording

PATIENCE_SECONDS = 50.0
"""How long the standby may take to pass live's frozen positions before the attempt is given up."""

log = logging.getLogger(__name__)


def preview(settings: Settings, pipeline: str, values: Mapping[str, Any]) -> str:
    """Return what a rollback would do now, as text, and log the moves of consumer groups; nothing is changed.

    Raises:
        RefusedError: It would be refused.
    """
    with reading(settings.registry_url) as connection:
        target = rollback.find(connection, pipeline, values["to"] or "")
        standby, live = rollback.positions(connection, target)
    sides, groups = _groups(settings, target, values)
    if groups:
        from rewind.steps.lifecycle import consumer_groups as moving

        moving.computed(settings, sides, moving.asked_of(values, groups))
    return f"{target.told()}; the standby is {behind(standby, live):,} offsets behind live"


def run(settings: Settings, rollback_id: str, pipeline: str, asked: Mapping[str, Any]) -> None:
    """Make the standby of a pipeline live again and announce it; again is harmless.

    Args:
        settings: The installation.
        rollback_id: The same through retries.
        pipeline: The pipeline.
        asked: The form (`requests.ROLLBACK`). A dry run only tells what would be done.

    Raises:
        RefusedError: A bad value; nothing stands by, or it has no driver; a consumer group cannot be moved.
        WorldMovedError: The pointer moved since this rollback was decided.
        RetryError: The standby does not pass live's positions in time.
    """
    values = forms.checked(asked, forms.ROLLBACK, f"rollback_{pipeline}")
    grace = times.parse_duration(values["grace"], "grace")
    if values["dry_run"]:
        log.info("dry run: %s", preview(settings, pipeline, values))
        return

    def body(_: int) -> dict[str, Any]:
        made = _switched(settings, rollback_id, pipeline, values, grace)
        with reading(settings.registry_url) as connection:
            live = generations.read(connection, made["to"])
        published = publishing.awaited(settings, live, made["epoch"])
        moved = consumer_groups.carry_out(settings, Broker(settings), rollback_id)
        announce.publish(settings, pipeline, made["epoch"])
        return {**made, **published, "consumers": moved}

    recording.recorded(settings, rollback_id, "rollback", body)


def _switched(
    settings: Settings, rollback_id: str, pipeline: str, values: Mapping[str, Any], grace: timedelta
) -> dict[str, Any]:
    with reading(settings.registry_url) as connection:
        made = rollback.done(connection, rollback_id)
    if made is not None:
        log.info("already done: %s is live at epoch %d", made["to"], made["epoch"])
        return made
    with side_effect("rollback.intend"), writing(settings.registry_url) as connection:
        target = rollback.fixed(connection, rollback_id, pipeline, values["to"] or "")
    log.info("%s", target.told())
    sides, groups = _groups(settings, target, values)
    with publishing.stopped(settings, sides.old, target.epoch, rollback_id):
        _await_standby(settings, rollback_id, target, sides.old)
        if groups:
            # Spark is imported by those rollbacks alone that need it.
            from rewind.steps.lifecycle import consumer_groups as moving

            moving.planned(settings, rollback_id, sides, moving.asked_of(values, groups))
        with side_effect("pointer.roll_back"), writing(settings.registry_url) as connection:
            publishing.check_stopped(connection, sides.old, target.epoch, rollback_id)
            made = rollback.switch(connection, rollback_id, target, values["reason"] or "", grace)
    log.info("%s is live at epoch %d again, %s is standby", made["to"], made["epoch"], made["from"])
    return made


def _groups(settings: Settings, target: Target, values: Mapping[str, Any]) -> tuple[Sides, list[str]]:
    """Return the consumer groups that go with the pointer: those that came with it, and those asked for.

    Raises:
        RefusedError: One of them cannot be moved now.
    """
    with reading(settings.registry_url) as connection:
        came = rollback.groups(connection, target) if values["move_consumers"] else []
        sides = rollback.sides(connection, target)
    groups = list(dict.fromkeys([*came, *values["consumer_groups"]]))
    for group in groups:
        consumer_groups.held(settings, Broker(settings), sides, group)
    return sides, groups


def _await_standby(settings: Settings, rollback_id: str, target: Target, live: Generation) -> None:
    """Wait until the standby has passed the positions that live has now, frozen: readers must meet no gap."""
    frozen = _frozen(settings, rollback_id, target, live)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with reading(settings.registry_url) as connection:
            standby, _ = rollback.positions(connection, target)
        if reached(standby, frozen):
            return
        if time.monotonic() > deadline:
            left = behind(standby, frozen)
            raise RetryError(f"{target.standby_job_id} is {left:,} offsets short of live's positions, {frozen}")
        time.sleep(0.5)


def _frozen(settings: Settings, rollback_id: str, target: Target, live: Generation) -> Vector:
    with side_effect("rollback.freeze"), writing(settings.registry_url) as connection:
        _, now_at = rollback.positions(connection, target)
        stored = rewinds.fix(connection, rollback_id, "rollback.live_positions", vector_to_json(now_at))
    # Where an attempt before this one failed, live has published more since.
    return now_at if publishing.shared(live) else vector_from_json(stored)
