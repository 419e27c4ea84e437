"""Who owns each name: one owner a name, whatever its letter case, recorded before anything of that name is made.

A name is known by its space and its key, which is the name as disks and brokers may fold it. What makes things claims
their names in the transaction that names them, and the primary key of the table holds that two owners never come to be.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from rewind.core import lifecycle, names
from rewind.core.errors import RefusedError
from rewind.registry import manifest, schema
from rewind.registry.database import now

PIPELINE, BASE, JOB, OUTPUT = "pipeline", "base", "job", "output"
"""Spaces: declared pipelines; declared outputs; what has a stream, lease, group, log or folder; topics and tables."""
SPACES = {manifest.TOPIC: OUTPUT, manifest.TABLE: OUTPUT, manifest.GROUP: JOB, manifest.FOLDER: JOB}
"""By the kind of a manifest's entry."""
FIELDS = {PIPELINE: "pipeline", BASE: "output.topic", JOB: "job_id", OUTPUT: "output.topic"}

_table = schema.owners


@dataclass(frozen=True)
class Claim:
    """A name and its owner.

    Attributes:
        space: One of the spaces.
        name: The name.
        owner: Who owns it, as messages tell it: `pipeline visits`, `generation visits-g1`, `mirror of visits`.
    """

    space: str
    name: str
    owner: str

    @property
    def key(self) -> str:
        """The name as it is told apart from others."""
        return names.fold(self.name)


@dataclass(frozen=True)
class Contested:
    """A name that several owners list: one that an older release let come to be."""

    space: str
    key: str
    owners: tuple[str, ...]

    def told(self) -> str:
        """Return one line for a log."""
        return f"{self.key} ({self.space}) belongs to {' and to '.join(self.owners)}: nothing of that name is deleted"


def of_job(pipeline: str, job_id: str, config: Mapping[str, Any], outputs: Iterable[str]) -> list[Claim]:
    """Return all that a job and its pipeline own by name.

    Args:
        pipeline: The pipeline.
        job_id: The generation or repair.
        config: Its frozen settings.
        outputs: Its topics or tables.
    """
    base, whole = str(config["output_topic"]), f"pipeline {pipeline}"
    shared = [Claim(OUTPUT, names.shared_output(base), whole)] if config.get("shared") else []
    return [
        Claim(PIPELINE, pipeline, whole),
        Claim(JOB, names.night_owner(pipeline), whole),
        Claim(BASE, base, whole),
        *shared,
        Claim(JOB, job_id, generation(job_id)),
        *(Claim(OUTPUT, name, generation(job_id)) for name in outputs),
    ]


def of_mirror(owner: str) -> Claim:
    """Return what the mirror of a topic owns by name, given as its stream's name."""
    return Claim(JOB, owner, f"mirror of {names.mirrored_topic(owner)}")


def generation(job_id: str) -> str:
    """Return how the owner of a generation's things is told."""
    return f"generation {job_id}"


def check(connection: Connection, claims: Iterable[Claim]) -> None:
    """Check that no other owner has any of these names.

    Raises:
        RefusedError: One has.
    """
    for claim in claims:
        found = _owner(connection, claim)
        if found is not None and found.owner != claim.owner:
            problem = f"{claim.name!r} of {claim.owner} is {found.name!r} of {found.owner} already"
            cure = "Choose another name, one that differs by more than letter case, '.' and '_'"
            raise RefusedError(FIELDS[claim.space], problem, cure)


def claim(connection: Connection, claims: Iterable[Claim]) -> None:
    """Record the owner of names before anything of them is made; again is harmless.

    Raises:
        RefusedError: Another owner has one of them; then none is recorded.
    """
    wanted = list(claims)
    check(connection, wanted)
    for each in wanted:
        if _owner(connection, each) is None:
            values = {"space": each.space, "key": each.key, "name": each.name, "owner": each.owner, "at": now()}
            connection.execute(insert(_table).values(**values))


def may_delete(connection: Connection, job_id: str, kind: str, name: str) -> bool:
    """Return whether no other owner has the name of a generation's thing."""
    wanted = Claim(SPACES[kind], name, generation(job_id))
    found = _owner(connection, wanted)
    return found is None or found.owner == wanted.owner


def release(connection: Connection, job_id: str) -> None:
    """Let go of the outputs of a collected generation, and of their base with the last one that wrote below it.

    Its job id stays its own for ever: progress, leases and the ledger go by it.
    """
    mine = (_table.c.owner == generation(job_id)) & (_table.c.space == OUTPUT)
    connection.execute(delete(_table).where(mine))
    jobs = schema.generations
    rows = connection.execute(select(jobs.c.job_id, jobs.c.pipeline, jobs.c.state, jobs.c.frozen)).all()
    gone = next(row for row in rows if row.job_id == job_id)
    base = names.fold(_base(gone.frozen))
    kept = (row for row in rows if row.pipeline == gone.pipeline and row.state != lifecycle.COLLECTED)
    if base not in {names.fold(_base(row.frozen)) for row in kept}:
        whole = (_table.c.owner == f"pipeline {gone.pipeline}") & (_table.c.space == BASE) & (_table.c.key == base)
        connection.execute(delete(_table).where(whole))


def contested(connection: Connection) -> list[Contested]:
    """Return the names that several owners list or were recorded with, in order."""
    return _contested([*_recorded(connection), *_listed(connection), *_ranked(connection)])


def refuse_contested(connection: Connection, job_id: str) -> None:
    """Check that nothing that a generation lists is listed by another owner.

    Raises:
        RefusedError: Something is.
    """
    listed = _listed(connection)
    mine = {(each.space, each.key) for each in listed if each.owner == generation(job_id)}
    for each in _contested([*_recorded(connection), *listed]):
        if (each.space, each.key) in mine:
            cure = "Find out whose it is, and strike it from the other's manifest; nothing was deleted"
            raise RefusedError("manifest", each.told(), cure)


def adopt(connection: Connection) -> None:
    """Record the owners of all that a registry lists that knew of none; the others of a contested name go without.

    What lives comes first, then what was made, then what is oldest.
    """
    for each in [*_ranked(connection), *_of_mirrors(connection)]:
        if _owner(connection, each) is None:
            claim(connection, [each])


def _contested(claims: Iterable[Claim]) -> list[Contested]:
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for each in claims:
        found[each.space, each.key].add(each.owner)
    return [Contested(*place, tuple(sorted(who))) for place, who in sorted(found.items()) if len(who) > 1]


def _ranked(connection: Connection) -> list[Claim]:
    # Only columns that a registry has had from its first release on: this runs amid the migrations.
    jobs, things = schema.generations, schema.manifest
    columns = (jobs.c.job_id, jobs.c.pipeline, jobs.c.state, jobs.c.frozen, jobs.c.output_topic)
    rows = connection.execute(select(*columns, jobs.c.dead_letter_topic, jobs.c.created_at)).all()
    made = set(connection.execute(select(things.c.job_id).where(things.c.resource_id.is_not(None))).scalars())
    rank = {row.job_id: (row.state != lifecycle.LIVE, row.job_id not in made, row.created_at) for row in rows}
    found: list[Claim] = []
    for row in sorted(rows, key=lambda row: rank[row.job_id]):
        claims = of_job(row.pipeline, row.job_id, row.frozen["config"], (row.output_topic, row.dead_letter_topic))
        over = row.state == lifecycle.COLLECTED
        found += [each for each in claims if each.space in (PIPELINE, JOB) or not over]
    return found


def _of_mirrors(connection: Connection) -> list[Claim]:
    query = select(schema.streams.c.owner).where(schema.streams.c.kind == "mirror").order_by(schema.streams.c.owner)
    return [of_mirror(owner) for owner in connection.execute(query).scalars()]


def _recorded(connection: Connection) -> list[Claim]:
    return [Claim(row.space, row.name, row.owner) for row in connection.execute(select(_table))]


def _listed(connection: Connection) -> list[Claim]:
    """Return what manifests and shared outputs list and what mirrors stream by, as claims of those who list it."""
    things, shared = schema.manifest, schema.shared_outputs
    rows = connection.execute(
        select(things.c.job_id, things.c.kind, things.c.name).where(things.c.state != manifest.DELETED)
    )
    # All folders lie side by side: the last part of a path is what tells them apart.
    entries = [
        Claim(
            SPACES[row.kind],
            PurePath(row.name).name if row.kind == manifest.FOLDER else row.name,
            generation(row.job_id),
        )
        for row in rows
    ]
    whole = connection.execute(select(shared.c.pipeline, shared.c.name))
    return [
        *entries,
        *(Claim(OUTPUT, row.name, f"pipeline {row.pipeline}") for row in whole),
        *_of_mirrors(connection),
    ]


def _owner(connection: Connection, wanted: Claim) -> Any:
    one = (_table.c.space == wanted.space) & (_table.c.key == wanted.key)
    return connection.execute(select(_table.c.name, _table.c.owner).where(one)).one_or_none()


def _base(frozen: Mapping[str, Any]) -> str:
    return str(frozen["config"]["output_topic"])
