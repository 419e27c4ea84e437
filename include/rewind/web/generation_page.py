"""The page of one generation or repair."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from rewind.core.errors import IntegrityError, RefusedError
from rewind.core.model import Generation
from rewind.core.planning.differences import Difference, Version, differences
from rewind.core.settings import Settings
from rewind.registry import generations, manifest, progress, rewinds
from rewind.registry.snapshot import snapshot
from rewind.runtime.drivers import bundle, supervise
from rewind.views.status import Status
from rewind.views.throughput import throughput
from rewind.web import files
from rewind.web.wire import wire

BATCHES = 50
STATE_SECONDS = 60
"""How long the size of a state is told without looking again at its files, which may be tens of thousands."""


def generation_page(settings: Settings, found: Status, job_id: str) -> dict[str, Any]:
    """Return what the page of a generation shows.

    Raises:
        RefusedError: There is none of that id.
    """
    with snapshot(settings.registry_url) as connection:
        shown = generations.read(connection, job_id)
        pipeline = found.pipeline(shown.pipeline)
        live = None if pipeline.live in (None, job_id) else generations.read(connection, str(pipeline.live))
        recorded = _recorded(connection, shown)
    code, problem = _code(settings, job_id)
    differing, untold = ([], "") if live is None else _differences(settings, live, shown, code)
    body = {
        "at": found.at,
        "problems": [*found.problems, *filter(None, (problem, untold))],
        "pipeline": shown.pipeline,
        "live": pipeline.live,
        "job": next(job for job in pipeline.jobs if job.job_id == job_id),
        "frozen": shown.frozen,
        "files": code,
        "differences": differing,
        "state_bytes": _state_bytes(settings, found, job_id),
        **recorded,
        "logs": {job_id: files.listed(files.logs_folder(settings, job_id))},
    }
    return dict(wire(body))


def _recorded(connection: Connection, shown: Generation) -> dict[str, Any]:
    job_id = shown.job_id
    return {
        "manifest": manifest.read(connection, job_id),
        "batches": progress.recent(connection, job_id, BATCHES),
        "throughput": throughput(connection, job_id),
        "deletions": manifest.ledger(connection, job_id),
        "rewinds": [r for r in rewinds.all_of(connection, shown.pipeline) if r.job_id == job_id],
    }


def _state_bytes(settings: Settings, found: Status, job_id: str) -> int | None:
    state = supervise.checkpoint_folder(settings, job_id) / "state"
    return files.bytes_below(state, int(found.at.timestamp()) // STATE_SECONDS)


def _differences(
    settings: Settings, live: Generation, shown: Generation, code: dict[str, str]
) -> tuple[list[Difference], str]:
    other, _ = _code(settings, live.job_id)
    # Code that was collected tells nothing, not that all files are new.
    both = (other, code) if other and code else ({}, {})
    versions = [_version(made, listed) for made, listed in zip((live, shown), both, strict=True)]
    try:
        return differences(versions[0], versions[1]), ""
    except RefusedError as unknown:
        return [], f"what differs cannot be shown: {unknown}"


def _version(made: Generation, listed: dict[str, str]) -> Version:
    return Version(made.frozen["config"], made.kept_state, listed)


def _code(settings: Settings, job_id: str) -> tuple[dict[str, str], str]:
    try:
        return bundle.listed(supervise.generation_folder(settings, job_id) / "bundle")[0], ""
    except (IntegrityError, RefusedError):
        return {}, f"the frozen code of {job_id} is not there: it was collected, or not yet frozen"
