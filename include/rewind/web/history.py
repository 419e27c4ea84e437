"""All rewinds of all pipelines."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select

from rewind.control import rewinds, schema, verdicts
from rewind.control.rewinds import Rewind
from rewind.control.status import Status
from rewind.web.wire import wire

NEWEST = 500


def history(connection: Connection, found: Status) -> dict[str, Any]:
    """Return the newest rewinds, newest first, with what was judged and answered."""
    table = schema.rewinds
    query = select(table.c.id).order_by(table.c.created_at.desc(), table.c.id).limit(NEWEST)
    ids = connection.execute(query).scalars().all()
    lines = [_line(connection, rewinds.read(connection, rewind_id)) for rewind_id in ids]
    return dict(wire({"at": found.at, "problems": found.problems, "rewinds": lines, "newest": NEWEST}))


def _line(connection: Connection, rewind: Rewind) -> dict[str, Any]:
    verdict, approval = verdicts.newest(connection, rewind.id), verdicts.approval(connection, rewind.id)
    return {
        "rewind": rewind,
        "verdict": "" if verdict is None else verdict.verdict,
        "counts": {} if verdict is None else verdict.counts,
        "answer": "" if approval is None else f"{approval.answer} by {approval.person}",
    }
