"""Collection: exactly what the manifest of a retired or aborted generation lists, by name and id."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from sqlalchemy import Connection, select

from rewind.core import lifecycle, names
from rewind.core.crash import side_effect
from rewind.core.errors import DeniedError, LeaseHeldError, RefusedError, RetryError
from rewind.core.model import Generation
from rewind.core.settings import Settings
from rewind.registry import (
    generations,
    leases,
    manifest,
    nightly_replays,
    owners,
    rewinds,
    schema,
    shared_outputs,
    streams,
)
from rewind.registry.database import now, reading, writing
from rewind.registry.manifest import Entry
from rewind.registry.snapshot import snapshot
from rewind.runtime import rights, tables
from rewind.runtime.drivers import supervise
from rewind.runtime.kafka.broker import Broker

COLLECTABLE = (lifecycle.RETIRED, lifecycle.ABORTED, lifecycle.MERGED)


@dataclass(frozen=True)
class Due:
    """A generation that will be collected.

    Attributes:
        job_id: The generation.
        state: Its state.
        at: When its grace ends, UTC; None when it is due at once.
        now: Whether it is due.
        owns: Names of what would go.
    """

    job_id: str
    state: str
    at: datetime | None
    now: bool
    owns: tuple[str, ...]

    def told(self) -> str:
        """Return one line for a log."""
        when = "now" if self.now else f"at {self.at}Z"
        return f"{self.job_id} ({self.state}) goes {when}: {', '.join(self.owns)}"


def due(settings: Settings) -> list[Due]:
    """Return what will be collected, and when: standbys after their grace, all else that is over at once."""
    table = schema.generations
    with writing(settings.registry_url) as connection:
        rows = connection.execute(select(table.c.job_id, table.c.state, table.c.grace_until).order_by(table.c.job_id))
        over = [row for row in rows.all() if row.state in (lifecycle.STANDBY, *COLLECTABLE)]
        watched = rewinds.watched_standbys(connection)
        return [
            Due(
                job_id=row.job_id,
                state=row.state,
                at=row.grace_until if row.state == lifecycle.STANDBY else None,
                now=row.state in COLLECTABLE or _grace_is_over(row.grace_until, row.job_id in watched),
                owns=tuple(e.name for e in manifest.read(connection, row.job_id) if e.state != manifest.DELETED),
            )
            for row in over
        ]


def retire_and_collect(settings: Settings, job_id: str) -> list[dict[str, str]]:
    """Drain and retire a standby whose grace is over, then collect it; return what was done with each entry.

    Raises:
        RefusedError: Its grace is not over, or its state forbids it.
        DeniedError: A right to see or to delete what it owns is missing: it stands by as before.
        RetryError: Its driver does not end, or this clock is not that of the drivers.
    """
    with snapshot(settings.registry_url) as connection:
        until = generations.grace_until(connection, job_id)
        over = _grace_is_over(until, job_id in rewinds.watched_standbys(connection))
    if over:
        # Before it is drained: where a right is missing it stands by as before.
        _check_rights(settings, job_id)
    with side_effect("standby.drain"), writing(settings.registry_url) as connection:
        state = generations.read(connection, job_id).state
        until = generations.grace_until(connection, job_id)
        if state == lifecycle.STANDBY:
            if not _grace_is_over(until, job_id in rewinds.watched_standbys(connection)):
                raise RefusedError("job_id", f"{job_id} is standby until {until}Z", "Wait, or switch again")
            _check_clock(connection)
            streams.wish(connection, job_id, streams.GENERATION, streams.DRAIN)
    if state == lifecycle.STANDBY:
        supervise.end(settings, job_id)
        with side_effect("generation.retire"), writing(settings.registry_url) as connection:
            # A rollback that came meanwhile has made it live again: then this move is refused.
            generations.move(connection, job_id, lifecycle.RETIRED)
    return collect(settings, job_id)


def unlisted(settings: Settings) -> list[str]:
    """Return topics, tables and folders that look like a generation's and stand in no manifest: told, never deleted."""
    with reading(settings.registry_url) as connection:
        listed = manifest.listed(connection) | shared_outputs.names(connection) | _of_nights(settings, connection)
        outputs = generations.outputs(connection)
    likely = re.compile(rf"({'|'.join(map(re.escape, sorted(outputs)))})-[gr][1-9]\d*(-dead)?") if outputs else None
    topics = [name for name in Broker(settings).topics() if likely is not None and likely.fullmatch(name)]
    folders = [str(path) for path in sorted(settings.generations.glob("*"))]
    return [name for name in (*topics, *tables.all_names(settings), *folders) if name not in listed]


def _of_nights(settings: Settings, connection: Connection) -> set[str]:
    """Return what nightly replays that died may have left: the next one of their pipeline deletes it."""
    left = nightly_replays.with_scratch(connection)
    folders = {str(settings.generations / replay_id) for replay_id in left}
    return folders.union(*(nightly_replays.tables_of(connection, replay_id) for replay_id in left))


def collect(settings: Settings, job_id: str) -> list[dict[str, str]]:
    """Delete what a retired or aborted generation owns, in three steps; again is harmless.

    First all of it is withdrawn, in one transaction that holds the generation's state: from then on nothing leads back
    to it. Then each thing is looked for; where one that must answer does not, nothing is deleted. Then each is deleted,
    and what is refused does not stop the others.

    Raises:
        RefusedError: The generation is in another state, another owner lists one of its names, or one belongs to
            something else now.
        DeniedError: A right to see or to delete one of its topics is missing.
        RetryError: Broker or disk did not answer.
        LeaseHeldError: A driver of it lives.
    """
    with side_effect("manifest.withdraw"), writing(settings.registry_url) as connection:
        generation = generations.read(connection, job_id)
        state = generation.state
        lease = leases.read(connection, job_id)
        if state == lifecycle.COLLECTED:
            return []
        if state not in COLLECTABLE:
            raise RefusedError("job_id", f"{job_id} is {state}", "Only what is over is collected")
        if lease is not None and lease.holder is not None and leases.alive(lease.holder):
            raise LeaseHeldError(f"{job_id} has a living driver: {lease.holder}")
        owners.refuse_contested(connection, job_id)
        entries = manifest.withdraw(connection, job_id)
    _check_rights(settings, job_id)
    found = [_look(settings, generation, entry) for entry in entries if entry.state != manifest.DELETED]
    lines = [_delete(settings, generation, each) for each in found]
    refused = [line["name"] for line in lines if line["result"] == "refused"]
    if refused:
        raise RefusedError("manifest", f"{job_id}: left alone: {', '.join(refused)}", "Look at the deletions ledger")
    with side_effect("generation.collected"), writing(settings.registry_url) as connection:
        generations.move(connection, job_id, lifecycle.COLLECTED)
        owners.release(connection, job_id)
    return lines


def _check_rights(settings: Settings, job_id: str) -> None:
    with writing(settings.registry_url) as connection:
        entries = [entry for entry in manifest.read(connection, job_id) if entry.state != manifest.DELETED]
    topics, groups = ([e.name for e in entries if e.kind == kind] for kind in (manifest.TOPIC, manifest.GROUP))
    rights.before_a_collection(Broker(settings), topics, groups)


def _grace_is_over(until: datetime | None, watched: bool) -> bool:
    # While the switch that replaced it is still being watched, a rollback may need it, whatever the clock says.
    return until is not None and until <= now() and not watched


def _check_clock(connection: Connection) -> None:
    """Check that the grace was not ended by a clock that jumped.

    Raises:
        RetryError: This clock is far from that of every living stream.
    """
    skew = leases.clock_skew(connection, now())
    if skew is not None:
        ahead = "ahead of" if skew > timedelta(0) else "behind"
        cure = "Set the clocks right, or declare dead who is no more (`python -m rewind declare-dead`)"
        raise RetryError(f"clock: it is {abs(skew)} {ahead} what every stream wrote last. {cure}, then collect again")


@dataclass(frozen=True)
class _Found:
    """What was found of an entry: whether it is there, or why it is not to be looked for."""

    entry: Entry
    there: bool = False
    refused: RefusedError | None = None


def _look(settings: Settings, generation: Generation, entry: Entry) -> _Found:
    try:
        _check_own(settings, generation, entry)
    except RefusedError as error:
        return _Found(entry, refused=error)
    with _disk_answers():
        return _Found(entry, _there(settings, entry))


@contextmanager
def _disk_answers() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RetryError(f"the disk did not answer: {error}; is it mounted, and may this user write to it?") from error


def _delete(settings: Settings, generation: Generation, found: _Found) -> dict[str, str]:
    entry = found.entry
    try:
        if found.refused is not None:
            raise found.refused
        if entry.state == manifest.WITHDRAWN and found.there:
            with side_effect("delete.begin"), writing(settings.registry_url) as connection:
                manifest.set_state(connection, generation.job_id, entry.kind, entry.name, manifest.GOING)
        with side_effect(f"delete.{entry.kind}"), _disk_answers():
            result, detail = _gone(settings, entry), ""
        if entry.state == manifest.GOING:
            # An attempt before this one found it and began: whoever looks for it now must read who took it.
            result = "deleted"
    except DeniedError:
        raise
    except RefusedError as error:
        result, detail = "refused", str(error)
    with side_effect("delete.record"), writing(settings.registry_url) as connection:
        state = manifest.WITHDRAWN if result == "refused" else manifest.DELETED
        manifest.set_state(connection, generation.job_id, entry.kind, entry.name, state)
        manifest.record(connection, generation.job_id, entry, result, detail)
    return {"kind": entry.kind, "name": entry.name, "result": result}


def _check_own(settings: Settings, generation: Generation, entry: Entry) -> None:
    """Check that a name is one that the generation itself gives: a manifest could have been written by anyone.

    Raises:
        RefusedError: It is not.
    """
    own: dict[str, set[str]] = {
        manifest.TOPIC: {generation.output_topic, generation.dead_letter_topic},
        manifest.TABLE: {generation.output_topic, generation.dead_letter_topic},
        manifest.GROUP: {generation.job_id},
    }
    if entry.kind == manifest.FOLDER:
        # The real path: no part of it may be a link.
        own[manifest.FOLDER] = {str(names.inside(settings.generations, generation.job_id, "manifest"))}
    if entry.name not in own.get(entry.kind, set()):
        problem = f"{entry.kind} {entry.name} is not {generation.job_id}'s own"
        raise RefusedError("manifest", problem, "Look at the manifest: nothing was deleted by this name")


def _there(settings: Settings, entry: Entry) -> bool:
    if entry.kind == manifest.TOPIC:
        return Broker(settings).topic(entry.name) is not None
    if entry.kind == manifest.TABLE:
        return _below(settings.tables, tables.path(settings, entry.name))
    if entry.kind == manifest.GROUP:
        return Broker(settings).group_state(entry.name) is not None
    return _below(settings.generations, Path(entry.name))


def _below(root: Path, place: Path) -> bool:
    """Return whether a folder is there, as only the disk can say that holds it.

    Raises:
        RetryError: The disk is not there.
    """
    if not root.is_dir():
        raise RetryError(f"{root} is not there, so nothing is known of {place.name}: is its disk mounted?")
    return place.exists()


def _gone(settings: Settings, entry: Entry) -> str:
    if entry.kind == manifest.TOPIC:
        if entry.resource_id is None:
            return _unmade_topic(settings, entry.name)
        return "deleted" if Broker(settings).delete_topic(entry.name, entry.resource_id) else "absent"
    if entry.kind == manifest.TABLE:
        there = _below(settings.tables, tables.path(settings, entry.name))
        return "deleted" if there and tables.delete(settings, entry.name, entry.resource_id) else "absent"
    if entry.kind == manifest.GROUP:
        return "deleted" if Broker(settings).delete_group(entry.name) else "absent"
    folder = _within(settings, entry.name)
    if not _below(settings.generations, folder):
        return "absent"
    shutil.rmtree(folder)
    return "deleted"


def _within(settings: Settings, name: str) -> Path:
    # A second look, right before what cannot be undone: one guard alone stood between a manifest's text and `/`.
    folder = names.inside(settings.generations, Path(name).name, "manifest")
    if str(folder) != name:
        problem = f"folder {name} does not lie in {settings.generations}"
        raise RefusedError("manifest", problem, "Look at the manifest: nothing was deleted by this name")
    return folder


def _unmade_topic(settings: Settings, name: str) -> str:
    # Whoever was to make it died before its id was recorded. The name was free when the manifest took it, so an
    # empty topic is what they left; one with records is somebody's.
    broker = Broker(settings)
    found = broker.topic(name)
    if found is None:
        return "absent"
    if any(found.latest.values()):
        problem = f"topic {name} holds records, and its id is not recorded"
        raise RefusedError("manifest", problem, "Delete it by hand if it is yours")
    return "deleted" if broker.delete_topic(name, found.id) else "absent"
