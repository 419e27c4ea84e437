"""Verdicts and the answers that people gave to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from rewind.core import comparing, lifecycle
from rewind.core.errors import RefusedError
from rewind.core.offsets import Vector
from rewind.registry import audit, rewinds, schema
from rewind.registry.database import now, vector_from_json, vector_to_json


@dataclass(frozen=True)
class Verdict:
    """What one validation found.

    Attributes:
        attempt: The attempt at `validate` that gave it.
        backfill_attempt: The attempt at `backfill` whose output it judged.
        verdict: pass, fail, error, or none where an operator chose not to compare.
        floor: First source offset compared, per partition.
        ceiling: Offset after the last one compared, per partition.
        counts: Rows by class.
        sample: Some of the differences.
        reason: Why it is not a pass; for a pass what could not be looked at, mostly empty.
        at: When it was given, UTC.
    """

    attempt: int
    backfill_attempt: int
    verdict: str
    floor: Vector
    ceiling: Vector
    counts: Mapping[str, int]
    sample: Sequence[Mapping[str, Any]]
    reason: str
    at: datetime


@dataclass(frozen=True)
class Approval:
    """An answer to a verdict: `approve` or `reject`, by whom and why."""

    attempt: int
    answer: str
    person: str
    reason: str


def store(connection: Connection, rewind_id: str, made: Verdict) -> None:
    """Store the verdict of an attempt."""
    connection.execute(
        insert(schema.verdicts).values(
            rewind_id=rewind_id,
            attempt=made.attempt,
            backfill_attempt=made.backfill_attempt,
            verdict=made.verdict,
            floor=vector_to_json(made.floor),
            ceiling=vector_to_json(made.ceiling),
            counts=dict(made.counts),
            sample=list(made.sample),
            reason=made.reason,
            at=made.at,
        )
    )


def newest(connection: Connection, rewind_id: str) -> Verdict | None:
    """Return the verdict of the newest attempt, or None before the first."""
    table = schema.verdicts
    query = select(table).where(table.c.rewind_id == rewind_id).order_by(table.c.attempt.desc()).limit(1)
    row = connection.execute(query).one_or_none()
    return None if row is None else _verdict(row)


def newest_of(connection: Connection, rewind_ids: Sequence[str]) -> dict[str, tuple[Verdict, Approval | None]]:
    """Return the verdicts of the newest attempts with the answers to them, by rewind."""
    table, given = schema.verdicts, schema.approvals
    mine = select(table).where(table.c.rewind_id.in_(rewind_ids)).order_by(table.c.attempt)
    found = {row.rewind_id: _verdict(row) for row in connection.execute(mine)}
    rows = connection.execute(select(given).where(given.c.rewind_id.in_(rewind_ids)))
    answers = {(r.rewind_id, r.attempt): Approval(r.attempt, r.answer, r.person, r.reason) for r in rows}
    return {rewind_id: (made, answers.get((rewind_id, made.attempt))) for rewind_id, made in found.items()}


def _verdict(row: Row[Any]) -> Verdict:
    floor, ceiling = vector_from_json(row.floor), vector_from_json(row.ceiling)
    return Verdict(
        row.attempt, row.backfill_attempt, row.verdict, floor, ceiling, row.counts, row.sample, row.reason, row.at
    )


def answer(connection: Connection, rewind_id: str, given: str, person: str, reason: str) -> None:
    """Record the answer to the newest verdict; the same answer again is harmless.

    Raises:
        RefusedError: There is no verdict, it is an error, one that needs a reason is approved without, or it has
            another answer already.
    """
    verdict = newest(connection, rewind_id)
    if verdict is None:
        raise RefusedError("rewind_id", f"{rewind_id} has no verdict", "Run validate first")
    if given == "approve":
        check_approvable(verdict, person, reason)
    before = approval(connection, rewind_id)
    if before is not None and before.answer != given:
        raise RefusedError(
            "answer", f"{rewind_id} has the answer {before.answer} by {before.person}", "Run validate again"
        )
    if before is None:
        values = {"answer": given, "person": person, "reason": _kept(verdict, given, reason), "at": now()}
        connection.execute(insert(schema.approvals).values(rewind_id=rewind_id, attempt=verdict.attempt, **values))
        said = {"verdict": verdict.verdict, "attempt": verdict.attempt, "reason": values["reason"]}
        rewind = rewinds.find(connection, rewind_id)
        pipeline = "" if rewind is None else rewind.pipeline
        audit.note(connection, audit.Act(person, given, pipeline, rewind_id, said))


def approval(connection: Connection, rewind_id: str) -> Approval | None:
    """Return the answer to the newest verdict, if there is one."""
    verdict = newest(connection, rewind_id)
    if verdict is None:
        return None
    table = schema.approvals
    where = (table.c.rewind_id == rewind_id) & (table.c.attempt == verdict.attempt)
    row = connection.execute(select(table).where(where)).one_or_none()
    return None if row is None else Approval(row.attempt, row.answer, row.person, row.reason)


def approved(connection: Connection, rewind_id: str) -> Verdict:
    """Return the newest verdict when it may be acted on.

    Raises:
        RefusedError: There is none, it is an error, it judged another attempt at the backfill, or it has not
            been approved.
    """
    verdict = newest(connection, rewind_id)
    given = approval(connection, rewind_id)
    if verdict is None or verdict.verdict == lifecycle.ERROR:
        raise RefusedError("verdict", f"{rewind_id} has no verdict to act on", "Run validate again")
    backfilled = rewinds.last_attempt(connection, rewind_id, "backfill", "done")
    if backfilled != verdict.backfill_attempt:
        problem = f"validated attempt {verdict.backfill_attempt} of backfill, backfilled attempt {backfilled}"
        raise RefusedError("verdict", problem, "Run validate again")
    if given is None or given.answer != "approve":
        raise RefusedError("verdict", f"{rewind_id} is not approved", "Answer its approve task")
    return verdict


def _kept(verdict: Verdict, given: str, reason: str) -> str:
    """Return the reason as it is kept: of an approval of nothing it says so."""
    if given != "approve" or verdict.verdict != lifecycle.UNCOMPARED:
        return reason
    return f"{comparing.NOTHING}: {reason}"


def needs_reason(verdict: Verdict) -> bool:
    """Return whether a verdict is approved by a person with a reason alone."""
    return verdict.verdict in (lifecycle.FAIL, lifecycle.UNCOMPARED)


def check_approvable(verdict: Verdict, person: str, reason: str) -> None:
    """Check that a verdict may be approved.

    Raises:
        RefusedError: It is an error, or it failed or compared nothing and no person or reason is given.
    """
    if verdict.verdict == lifecycle.ERROR:
        raise RefusedError(
            "answer", f"the verdict is an error ({verdict.reason})", "Fix the cause and run validate again"
        )
    if needs_reason(verdict) and (not person or not reason.strip()):
        what = "a failed verdict" if verdict.verdict == lifecycle.FAIL else f"a verdict of which {comparing.NOTHING}"
        raise RefusedError("reason", f"{what} needs a person and a reason", "Say why it may go live all the same")
