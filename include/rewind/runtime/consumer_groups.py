"""Consumer groups of a pipeline's output: what each has read, and its moves to another output, recorded and made.

Positions are published under the epoch: the pointer is read before one is set and again with the mark that it was,
and no position is set over one that somebody else has set meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import Connection, delete, insert, select, update

from rewind.core import lifecycle
from rewind.core.crash import side_effect
from rewind.core.errors import RefusedError
from rewind.core.model import BrokerReader
from rewind.core.offsets import Vector
from rewind.core.planning import consumer_groups
from rewind.core.planning.consumer_groups import Held, Move, Sides
from rewind.core.planning.preflight import RESTING, check_reader
from rewind.core.settings import Settings
from rewind.registry import generations, schema
from rewind.registry.database import now, reading, vector_from_json, writing
from rewind.runtime import ownership

PLANNED, MOVED, REFUSED = "planned", "moved", "refused"
MEMBERS_CURE = "Stop its consumers; they resume at the new position once it is moved"

_table = schema.consumer_moves
log = logging.getLogger(__name__)


class Groups(BrokerReader, Protocol):
    """What is asked of the broker."""

    def commit(self, group: str, topic: str, vector: Vector) -> None:
        """Commit positions for a group without members."""


def held(settings: Settings, broker: Groups, sides: Sides, group: str) -> Held:
    """Return what a group has read of two outputs.

    Raises:
        RefusedError: It is a job's own group, has members, or never committed a position on the old output.
    """
    with reading(settings.registry_url) as connection:
        own = generations.find(connection, group) is not None
        started = _newest_start(connection, group, sides.new.output_topic)
    if own:
        raise RefusedError("consumer_groups", f"{group} is the group of a job", "Name groups that read the output")
    _check_resting(broker, group)
    read = check_reader(broker, group, sides.old.output_topic)
    return Held(group, read, broker.group_offsets(group, sides.new.output_topic), started)


def sides(connection: Connection, pipeline: str, from_job: str, to_job: str) -> Sides:
    """Return between which outputs of a pipeline groups are moved.

    Args:
        connection: A transaction.
        pipeline: The pipeline.
        from_job: Whose output they have read; empty for the standby, or for live when they go elsewhere.
        to_job: Whose output they go on in; empty for live.

    Raises:
        RefusedError: A job is unknown or of another pipeline, both are the same, or nothing stands by.
    """
    found = generations.live(connection, pipeline)
    if found is None:
        raise RefusedError("pipeline", f"{pipeline!r} has no live job", f"Deploy it with the DAG deploy_{pipeline}")
    new = ownership.refuse_job_of_another(connection, to_job, pipeline, "to_job") if to_job else found[0]
    if from_job:
        old = ownership.refuse_job_of_another(connection, from_job, pipeline, "from_job")
    elif new != found[0]:
        old = found[0]
    else:
        standbys = generations.in_state(connection, pipeline, lifecycle.STANDBY)
        if not standbys:
            raise RefusedError("from_job", f"{pipeline} has no standby", "Name the job that was read")
        old = standbys[-1]
    if old == new:
        raise RefusedError("from_job", f"is {new.job_id}, as to_job", "Name two jobs")
    return Sides(old, new)


def moved_to(connection: Connection, job_id: str) -> list[str]:
    """Return the groups that were moved to a job's output and from it nowhere else since."""
    rows = connection.execute(select(_table).where(_table.c.state == MOVED).order_by(_table.c.at)).all()
    newest = {row.group: row.to_job for row in rows}
    return sorted(group for group, job in newest.items() if job == job_id)


def plan(connection: Connection, move_id: str, pipeline: str, moves: Sequence[Move]) -> None:
    """Record moves before they are made; one that was made already stays as it is."""
    mine = _table.c.move_id == move_id
    connection.execute(delete(_table).where(mine & (_table.c.state != MOVED)))
    made = set(connection.execute(select(_table.c.group).where(mine)).scalars())
    for move in moves:
        if move.group not in made:
            values: dict[str, Any] = {
                "move_id": move_id,
                "group": move.group,
                "pipeline": pipeline,
                "to_job": move.to_job,
            }
            values |= {"to_topic": move.to_topic, "body": move.to_json(), "state": PLANNED, "detail": "", "at": now()}
            connection.execute(insert(_table).values(**values))


def states(connection: Connection, move_id: str) -> dict[str, tuple[str, str]]:
    """Return the state of each move of a switch, and what it says, by group."""
    rows = connection.execute(select(_table).where(_table.c.move_id == move_id).order_by(_table.c.group))
    return {row.group: (row.state, row.detail) for row in rows}


def carry_out(settings: Settings, broker: Groups, move_id: str) -> dict[str, str]:
    """Make the moves that are planned; one that is refused does not stop the others.

    Returns:
        What became of each group: `moved`, or why it was refused.

    Raises:
        RetryError: The broker or the registry cannot be reached; again is harmless.
    """
    with reading(settings.registry_url) as connection:
        planned = _planned(connection, move_id)
    for pipeline, move in planned:
        try:
            _make(settings, broker, move_id, pipeline, move)
        except RefusedError as refused:
            log.warning("group %s was not moved: %s", move.group, refused)
            with side_effect("consumers.refuse"), writing(settings.registry_url) as connection:
                _mark(connection, move_id, move.group, REFUSED, str(refused))
    with reading(settings.registry_url) as connection:
        return {group: detail or state for group, (state, detail) in states(connection, move_id).items()}


def _make(settings: Settings, broker: Groups, move_id: str, pipeline: str, move: Move) -> None:
    with reading(settings.registry_url) as connection:
        _check_pointer(connection, pipeline, move)
    _check_resting(broker, move.group)
    at = broker.group_offsets(move.group, move.to_topic)
    if at != move.positions:
        _check_unmoved(move, at)
        with side_effect("consumers.move"):
            broker.commit(move.group, move.to_topic, move.positions)
    with side_effect("consumers.mark"), writing(settings.registry_url) as connection:
        _check_pointer(connection, pipeline, move)
        _mark(connection, move_id, move.group, MOVED)
    log.info("group %s goes on in %s: %s repeats", move.group, move.to_topic, f"{move.repeats:,}")


def _planned(connection: Connection, move_id: str) -> list[tuple[str, Move]]:
    mine = (_table.c.move_id == move_id) & (_table.c.state == PLANNED)
    rows = connection.execute(select(_table).where(mine).order_by(_table.c.group))
    return [(row.pipeline, consumer_groups.from_json(row.body)) for row in rows]


def _mark(connection: Connection, move_id: str, group: str, state: str, detail: str = "") -> None:
    mine = (_table.c.move_id == move_id) & (_table.c.group == group)
    connection.execute(update(_table).where(mine).values(state=state, detail=detail, at=now()))


def _check_pointer(connection: Connection, pipeline: str, move: Move) -> None:
    found = generations.live(connection, pipeline)
    if found is None or found[0].job_id != move.to_job:
        where = found[0].job_id if found else "nowhere"
        raise RefusedError(
            "consumer_groups", f"the pointer is at {where}, not {move.to_job}", "Look, and move it again"
        )


def _check_resting(broker: Groups, group: str) -> None:
    state = broker.group_state(group)
    if state is not None and state not in RESTING:
        raise RefusedError("consumer_groups", f"{group} has members ({state})", MEMBERS_CURE)


def _check_unmoved(move: Move, at: Vector) -> None:
    if at != move.before:
        problem = f"{move.group} was moved on {move.to_topic} by somebody else, to {at}"
        raise RefusedError("consumer_groups", problem, "Look at who did; move it again if that was wrong")


def _newest_start(connection: Connection, group: str, topic: str) -> Vector:
    mine = (_table.c.group == group) & (_table.c.to_topic == topic) & (_table.c.state == MOVED)
    body = connection.execute(select(_table.c.body).where(mine).order_by(_table.c.at.desc()).limit(1)).scalar()
    return {} if body is None else vector_from_json(body["positions"])
