"""Where a check finds nothing to compare: how long it waits for first records, and what its error tells to do."""

from __future__ import annotations

import time
from collections.abc import Callable

from rewind.core.model import Generation
from rewind.core.offsets import Ranges, total
from rewind.core.settings import Settings
from rewind.registry.database import now, reading
from rewind.runtime.drivers.driver_state import DRIVEN, Drivers

FIRST_RECORDS_SECONDS = 60.0
"""How long the first records of both jobs are waited for: just after a deploy live has written nothing yet."""
LOOK_SECONDS = 2.0


def awaited(
    look: Callable[[], Ranges], clock: Callable[[], float] = time.monotonic, pause: Callable[[float], None] = time.sleep
) -> Ranges:
    """Return what both jobs have processed, waited for while that is nothing.

    Args:
        look: Reads it.
        clock: Seconds.
        pause: Waits for some.
    """
    until = clock() + FIRST_RECORDS_SECONDS
    while not total(found := look()) and clock() < until:
        pause(LOOK_SECONDS)
    return found


def cure(settings: Settings, live: Generation) -> str:
    """Return what to do about a check that compared nothing, by how live's driver is."""
    with reading(settings.registry_url) as connection:
        drivers = Drivers(connection, [live.job_id], now())
    # Its processes are looked for outside of the transaction.
    driver = drivers.of(live.job_id, live.state)
    if driver.state in DRIVEN:
        return "run validate again once both have answered records, or rewind with compare: none and a reason"
    told = f"{live.job_id} has no driver ({driver.state}): bring it back and run validate again"
    return f"{told}, or rewind with compare: none and a reason"
