"""Four eyes: who asked for a rewind does not approve it, where the pipeline says so."""

from __future__ import annotations

from sqlalchemy import Connection

from rewind.control import generations, rewinds
from rewind.core.errors import RefusedError
from rewind.core.plan import Plan

FIELD = "approval.four_eyes"


def needed(connection: Connection, plan: Plan) -> bool:
    """Return whether a plan's approval needs a second person.

    Live's own configuration counts as well: a version that takes the rule away is approved by it once more.
    """
    live = generations.find(connection, plan.live_job_id)
    configs = [plan.config] if live is None else [plan.config, live.frozen["config"]]
    return any(config.get("four_eyes", False) for config in configs)


def refuse_asker(connection: Connection, rewind_id: str, plan: Plan, person: str) -> None:
    """Check that a person may approve a rewind.

    Raises:
        RefusedError: Two are needed, and this one asked for it or is not known.
    """
    asker = rewinds.asked_by(connection, rewind_id)
    if needed(connection, plan) and person in ("", asker):
        told = f"{person} asked for {rewind_id}" if person else "nobody knows who answered"
        raise RefusedError(FIELD, told, "Let another person approve it; a rejection needs no second one")
