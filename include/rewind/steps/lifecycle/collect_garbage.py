"""Drain, retire and collect what is due: by the registry alone, whatever any task's state says."""

from __future__ import annotations

import logging

from rewind.core.errors import RetryError, RewindError
from rewind.core.settings import Settings
from rewind.registry import owners
from rewind.registry.database import reading
from rewind.runtime import collect

log = logging.getLogger(__name__)


def run(settings: Settings, dry_run: bool) -> None:
    """Collect every generation that is due; one that refuses does not stop the others.

    Raises:
        RetryError: Some could not be collected; each reason is in the log.
    """
    refused: list[str] = []
    for due in collect.due(settings):
        log.info("%s", due.told())
        if dry_run or not due.now:
            continue
        try:
            for line in collect.retire_and_collect(settings, due.job_id):
                log.info("%s: %s %s %s", due.job_id, line["result"], line["kind"], line["name"])
        except RewindError as error:
            log.error("%s: %s", due.job_id, error)
            refused.append(due.job_id)
    for name in collect.unlisted(settings):
        log.warning("in no manifest, left alone: %s", name)
    with reading(settings.registry_url) as connection:
        contested = owners.contested(connection)
    for each in contested:
        log.warning("%s", each.told())
    if refused:
        raise RetryError(f"not collected: {', '.join(refused)}")
