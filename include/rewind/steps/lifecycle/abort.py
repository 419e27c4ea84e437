"""Abort a rewind: its candidate is stopped and all it made is collected; live is not touched."""

from __future__ import annotations

import logging
from typing import Any

from rewind.core import lifecycle
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.settings import Settings
from rewind.registry import generations, publications, rewinds, streams
from rewind.registry.database import writing
from rewind.registry.snapshot import snapshot
from rewind.runtime import collect, ownership
from rewind.runtime.drivers import supervise
from rewind.steps.base import recording

log = logging.getLogger(__name__)

_UNDOABLE = (lifecycle.CANDIDATE, lifecycle.STAGING, lifecycle.ABORTED, lifecycle.COLLECTED)


def run(settings: Settings, rewind_id: str, pipeline: str, reason: str) -> None:
    """Abort a rewind whose pointer has not moved; again is harmless.

    Raises:
        RefusedError: It is unknown or another pipeline's, and nothing was recorded; or its job is live, or was: then
            only a rollback leads back.
        RetryError: Its driver does not end.
    """
    with snapshot(settings.registry_url) as connection:
        ownership.refuse_rewind_of_another(connection, rewind_id, pipeline)
    recording.recorded(settings, rewind_id, "abort", lambda _: _abort(settings, rewind_id, reason))


def _abort(settings: Settings, rewind_id: str, reason: str) -> dict[str, Any]:
    with side_effect("abort.intend"), writing(settings.registry_url) as connection:
        found = rewinds.find(connection, rewind_id)
        if found is None or found.state != lifecycle.ACTIVE:
            log.info("rewind %s is not active: nothing to abort", rewind_id)
            return {"deleted": []}
        made = generations.find(connection, found.job_id)
        mine = made is not None and generations.rewind_of(connection, found.job_id) == rewind_id
        if mine and made is not None and made.state not in _UNDOABLE:
            cure = "Roll back, or let the rewind finish"
            raise RefusedError("rewind_id", f"{found.job_id} is {made.state}: the pointer has moved", cure)
        # From here on no step of it begins: one that did would make again what is about to be deleted.
        rewinds.fix(connection, rewind_id, rewinds.ABORTING, {"reason": reason})
        # A cut-over that died on the way may have stopped live's publishing.
        publications.release(connection, found.pipeline, rewind_id)
        if mine and streams.read(connection, found.job_id) is not None:
            streams.wish(connection, found.job_id, streams.GENERATION, streams.DRAIN)
    deleted = _undo(settings, found.job_id) if mine else []
    with side_effect("abort.close"), writing(settings.registry_url) as connection:
        rewinds.close(connection, rewind_id, lifecycle.ABORTED)
    log.info("rewind %s is aborted (%s)", rewind_id, reason or "no reason given")
    return {"reason": reason, "deleted": deleted}


def _undo(settings: Settings, job_id: str) -> list[dict[str, str]]:
    supervise.end(settings, job_id)
    with side_effect("generation.abort"), writing(settings.registry_url) as connection:
        if generations.read(connection, job_id).state != lifecycle.COLLECTED:
            generations.move(connection, job_id, lifecycle.ABORTED)
    return collect.collect(settings, job_id)
