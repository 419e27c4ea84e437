"""Move the pointer of a pipeline with a shared output: the old job has stopped publishing, the new one has merged."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection

from rewind.core.crash import side_effect
from rewind.core.errors import RetryError
from rewind.core.model import Generation
from rewind.core.settings import Settings
from rewind.registry import generations, publications
from rewind.registry.database import reading, writing

STOP_SECONDS = 120.0
"""How long a driver may take to stop publishing: it answers between two merges."""
MERGE_SECONDS = 600.0
"""How long the first merge of a job that became live may take before the attempt is given up."""

log = logging.getLogger(__name__)


def shared(generation: Generation) -> bool:
    """Return whether a generation's pipeline has a shared output; one of an older release has none."""
    return generation.declared.shared


@contextmanager
def stopped(settings: Settings, live: Generation, epoch: int, by: str) -> Iterator[None]:
    """Run the body, which moves the pointer, while the live job publishes nothing; it goes on when the body fails.

    Args:
        settings: The installation.
        live: The live job.
        epoch: The pointer's epoch.
        by: The rewind or rollback.

    Raises:
        RetryError: The live job's driver lives, and does not answer.
    """
    if not shared(live):
        yield
        return
    with side_effect("publication.hold"), writing(settings.registry_url) as connection:
        publications.hold(connection, live.pipeline, epoch, live.job_id, by)
    try:
        _await_answer(settings, live, epoch, by)
        yield
    except BaseException:
        with side_effect("publication.release"), writing(settings.registry_url) as connection:
            publications.release(connection, live.pipeline, by)
        raise


def check_stopped(connection: Connection, live: Generation, epoch: int, by: str) -> None:
    """Check, in the transaction that moves the pointer, that the live job publishes nothing.

    Raises:
        RetryError: It does, or may.
    """
    if shared(live):
        publications.check_stopped(connection, live.pipeline, epoch, by)


def awaited(settings: Settings, live: Generation, epoch: int) -> dict[str, Any]:
    """Wait until the job that became live at an epoch has merged all it had, and return what that did.

    Returns:
        `published`, as `Publication.told`; nothing without a shared output, or once the pointer moved on.

    Raises:
        RetryError: It takes too long; it goes on meanwhile.
    """
    if not shared(live):
        return {}
    deadline = time.monotonic() + MERGE_SECONDS
    while True:
        with reading(settings.registry_url) as connection:
            found = publications.find(connection, live.pipeline, epoch)
            pointed = generations.live(connection, live.pipeline)
        if found is not None and found.batch is not None:
            log.info("%s has published up to batch %d at epoch %d", live.job_id, found.batch, epoch)
            return {"published": found.told()}
        if pointed is not None and pointed[1] != epoch:
            return {}
        if time.monotonic() > deadline:
            raise RetryError(f"{live.job_id} has not merged into the shared output yet; look at its driver's log")
        time.sleep(0.5)


def _await_answer(settings: Settings, live: Generation, epoch: int, by: str) -> None:
    deadline = time.monotonic() + STOP_SECONDS
    while True:
        try:
            with reading(settings.registry_url) as connection:
                publications.check_stopped(connection, live.pipeline, epoch, by)
        except RetryError:
            if time.monotonic() > deadline:
                raise
        else:
            return
        time.sleep(0.5)
