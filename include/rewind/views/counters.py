"""Counts over the whole history of an installation, by pipeline."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from sqlalchemy import ColumnElement, Connection, FromClause, func, select

from rewind.registry import schema


@dataclass(frozen=True)
class Totals:
    """How often what has happened.

    Attributes:
        rewinds: Rewinds by pipeline and state.
        verdicts: Verdicts by pipeline and verdict.
        deletions: Lines of the deletions ledger by pipeline, kind of thing and result.
    """

    rewinds: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    verdicts: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    deletions: Mapping[tuple[str, ...], int] = field(default_factory=dict)

    def of(self, pipelines: Collection[str]) -> Totals:
        """Return the counts of some pipelines alone."""
        counts = (self.rewinds, self.verdicts, self.deletions)
        return Totals(*({by: n for by, n in counted.items() if by[0] in pipelines} for counted in counts))


def read(connection: Connection) -> Totals:
    """Return the counts as they are now."""
    rewinds, verdicts, deletions, generations = schema.rewinds, schema.verdicts, schema.deletions, schema.generations
    judged = rewinds.join(verdicts, verdicts.c.rewind_id == rewinds.c.id)
    deleted = generations.join(deletions, deletions.c.job_id == generations.c.job_id)
    return Totals(
        rewinds=_counted(connection, rewinds, rewinds.c.pipeline, rewinds.c.state),
        verdicts=_counted(connection, judged, rewinds.c.pipeline, verdicts.c.verdict),
        deletions=_counted(connection, deleted, generations.c.pipeline, deletions.c.kind, deletions.c.result),
    )


def _counted(connection: Connection, source: FromClause, *by: ColumnElement[str]) -> dict[tuple[str, ...], int]:
    rows = connection.execute(select(*by, func.count()).select_from(source).group_by(*by).order_by(*by))
    return {tuple(row[:-1]): int(row[-1]) for row in rows}
