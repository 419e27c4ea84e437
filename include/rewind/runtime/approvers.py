"""Who may approve a rewind, and whose rewinds need no approval, where the pipeline says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection

from rewind.core import lifecycle
from rewind.core.errors import RefusedError
from rewind.core.planning.plan import Plan
from rewind.registry import generations, rewinds
from rewind.registry.verdicts import Verdict

FOUR_EYES = "approval.four_eyes"
AUTO_APPROVE_BY = "approval.auto_approve_by"
CURE = "Leave it out, and let a person approve"


def second_needed(connection: Connection, plan: Plan) -> bool:
    """Return whether a plan's approval needs a second person."""
    return any(config.get("four_eyes", False) for config in _configs(connection, plan))


def refuse_asker(connection: Connection, rewind_id: str, plan: Plan, person: str) -> None:
    """Check that a person may approve a rewind.

    Raises:
        RefusedError: Two are needed, and this one asked for it or is not known.
    """
    asker = rewinds.asked_by(connection, rewind_id)
    if second_needed(connection, plan) and person in ("", asker):
        told = f"{person} asked for {rewind_id}" if person else "nobody knows who answered"
        raise RefusedError(FOUR_EYES, told, "Let another person approve it; a rejection needs no second one")


def refuse_auto_approve(connection: Connection, rewind_id: str, plan: Plan) -> None:
    """Check that who asked for a rewind may have a passing verdict approve it, where they asked for that.

    Raises:
        RefusedError: They are not among those whom the pipeline, or its live version, names.
    """
    if plan.request.auto_approve and not _named(connection, rewind_id, plan):
        asker = rewinds.asked_by(connection, rewind_id) or "whoever asked, whose name is not known"
        raise RefusedError("auto_approve", f"{AUTO_APPROVE_BY} does not name {asker}", CURE)


def needs_no_person(connection: Connection, rewind_id: str, plan: Plan, verdict: Verdict) -> bool:
    """Return whether a verdict lets a rewind go on by itself."""
    asked = plan.request.auto_approve and verdict.verdict == lifecycle.PASS
    return asked and not second_needed(connection, plan) and _named(connection, rewind_id, plan)


def _named(connection: Connection, rewind_id: str, plan: Plan) -> bool:
    asker = rewinds.asked_by(connection, rewind_id)
    lists = [config.get("auto_approve_by") for config in _configs(connection, plan)]
    return all(names is None or (asker != "" and asker in names) for names in lists)


def _configs(connection: Connection, plan: Plan) -> list[Mapping[str, Any]]:
    """Return the configurations that have a say: a version that takes a rule away is approved by it once more."""
    live = generations.find(connection, plan.live_job_id)
    return [plan.config] if live is None else [plan.config, live.frozen["config"]]
