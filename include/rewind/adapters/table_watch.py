"""A table that only we write, watched: what others did to it is seen before its write ids are believed.

Each look goes from the last commit that was seen to the newest, so that its cost does not grow with the table's age.
How far it came is kept in the registry. Where that is away, the driver remembers it and goes on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator
from dataclasses import replace

from pyspark.sql import SparkSession

from rewind.adapters import delta_log
from rewind.adapters.delta_log import LogEntry
from rewind.adapters.foreign_commits import Watched, change_of, stated
from rewind.core import table_changes
from rewind.core.errors import QuarantineError, RetryError
from rewind.core.model import Generation
from rewind.core.offsets import OffsetRange
from rewind.core.settings import Settings
from rewind.core.table_changes import ADDED, Change
from rewind.registry.database import reading, writing
from rewind.registry.mirrors import table_log
from rewind.registry.mirrors.table_log import Sight
from rewind.runtime import tables
from rewind.runtime.drivers.guard import RENEW_MILLISECONDS

FIRST_LOOK = 1_000
"""How many of the newest commits are looked at of a table that has never been watched."""

log = logging.getLogger(__name__)


class Watch:
    """Looks at the log of one table.

    Attributes:
        changes: What others did to it, in order, as of the last look.
    """

    def __init__(self, settings: Settings, watched: Watched) -> None:
        """Keep the places; nothing is read yet."""
        self._url = settings.registry_url
        self._table = watched
        self._sight: Sight | None = None
        self._checked = 0
        self._recalled = False
        self.changes: list[Change] = []

    @property
    def version(self) -> int:
        """The newest version that was seen, -1 before the first."""
        return -1 if self._sight is None else self._sight.version

    def look(self, spark: SparkSession) -> None:
        """See what the log tells since the last look.

        Raises:
            QuarantineError: The commit that was seen last is no longer there: this is another table.
        """
        if not self._recalled:
            self._recall()
        before, found = self._sight, []
        for version, text in self._since(spark):
            entry = delta_log.parsed(version, text)
            change = change_of(entry, self._table, self._sight)
            found += [change] if change is not None else []
            self._sight = _seen(entry, text, self._sight)
        for change in found:
            log.warning("%s was changed by somebody else: %s", self._table.name, table_changes.told(change))
        self.changes += found
        if self._sight is not None and self._sight != before:
            self._keep(self._sight)

    def check(self, spark: SparkSession) -> None:
        """Check that all that we ever wrote to the table still stands in it; rows that others added do no harm to that.

        Raises:
            QuarantineError: Somebody restored, emptied or rewrote it, or it is another table.
        """
        self.look(spark)
        if len(self.changes) == self._checked:
            return
        if not self._stands(spark, self.version):
            raise QuarantineError(self._problem(spark))
        self._checked = len(self.changes)

    def _stands(self, spark: SparkSession, version: int) -> bool:
        spans = table_changes.fallen(self.changes, version)
        # Before a change that is no restore nothing is sure, whatever was there.
        if spans and spans[0].start == 0:
            return False
        return next(self._ours_in(spark, spans), None) is None

    def _problem(self, spark: SparkSession) -> str:
        shown = [c for c in table_changes.effective(self.changes, self.version) if c.kind != ADDED]
        what = "; ".join(table_changes.told(change) for change in reversed(shown))
        back = self._version_to_restore(spark)
        cure = self._table.cure if back is None else f"RESTORE it to version {back}, or {self._table.cure}"
        return f"{self._table.name}: {what}. What we wrote before can no longer be believed to be there: {cure}"

    def _version_to_restore(self, spark: SparkSession) -> int | None:
        """Return the newest version that holds all that we ever wrote; None where there is none.

        A restore takes back what we wrote after that version. The table keeps the ids of that, so that it would never
        be written again.
        """
        for change in reversed(self.changes):
            version = change.version - 1
            since = self._ours_in(spark, [OffsetRange(change.version, self.version + 1)])
            if change.kind == ADDED or version < 0 or not self._stands(spark, version):
                continue
            return version if next(since, None) is None else None
        return None

    def _ours_in(self, spark: SparkSession, spans: Iterable[OffsetRange]) -> Iterator[LogEntry]:
        """Give our own commits among some versions, as far as the log still tells of them."""
        foreign = {change.version for change in self.changes}
        for span in spans:
            for version in range(span.start, span.end):
                text = None if version in foreign else delta_log.read(spark, self._table.path, version)
                if text is not None and self._table.ours(entry := delta_log.parsed(version, text)):
                    yield entry

    def _since(self, spark: SparkSession) -> Iterator[tuple[int, str]]:
        path, version = self._table.path, self.version + 1
        if self._sight is None or not self._same(spark, self._sight):
            held = delta_log.versions(spark, path, -1)
            # A table that was there before it was watched may have years of commits, each a file to read.
            begins = held[-FIRST_LOOK:][:1] if self._sight is None else held[:1]
            version = begins[0] if begins else version
        while (text := delta_log.read(spark, path, version)) is not None:
            yield version, text
            version += 1

    def _same(self, spark: SparkSession, sight: Sight) -> bool:
        """Return whether the commit that was seen last is there; False where the log has dropped it as too old."""
        text = delta_log.read(spark, self._table.path, sight.version)
        if text is not None and _mark(text) == sight.mark:
            return True
        oldest = min(delta_log.versions(spark, self._table.path, -1), default=-1)
        if text is None and oldest > sight.version:
            log.warning("%s: versions %d to %d left its log unseen", self._table.name, sight.version + 1, oldest - 1)
            return False
        raise QuarantineError(
            f"{self._table.name}: version {sight.version} of its table is not the commit that was seen there: the "
            f"table was recreated, or its folder was put back from a copy. Put it back as it was, or {self._table.cure}"
        )

    def _recall(self) -> None:
        with reading(self._url) as connection:
            self._sight = table_log.read(connection, self._table.name, self._table.table_id)
            self.changes = table_log.changes(connection, self._table.name, self._table.table_id)
        self._recalled = True

    def _keep(self, sight: Sight) -> None:
        try:
            with writing(self._url, RENEW_MILLISECONDS) as connection:
                table_log.record(connection, self._table.name, self._table.table_id, sight, self.changes)
        except RetryError as away:
            log.warning("%s: what was seen up to version %d is kept back: %s", self._table.name, sight.version, away)


def _seen(entry: LogEntry, text: str, before: Sight | None) -> Sight:
    sight = Sight(entry.version, _mark(text))
    if entry.table is not None:
        return replace(sight, delta_id=entry.table[0], columns=entry.table[1])
    return sight if before is None else replace(sight, delta_id=before.delta_id, columns=before.columns)


def _mark(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def of_output(settings: Settings, generation: Generation, name: str) -> Watch:
    """Return the watch of a table that a generation writes, and repairs of its pipeline."""
    prefixes = (f"{generation.job_id}-", f"{generation.pipeline}-r")

    def ours(entry: LogEntry) -> bool:
        return stated(entry, prefixes) and not entry.removed

    path = str(tables.path(settings, name))
    cure = "rewind the pipeline with same_code from what is lost"
    return Watch(settings, Watched(name, tables.id_of(settings, name) or "", path, ours, cure))


def of_shared(settings: Settings, name: str) -> Watch:
    """Return the watch of a shared table, into which newer versions of a key are merged."""

    def ours(entry: LogEntry) -> bool:
        by_key = "_key" in str(entry.parameters.get("predicate"))
        return entry.operation == "MERGE" and by_key and "_version" in str(entry.parameters.get("matchedPredicates"))

    path = str(tables.path(settings, name))
    cure = "rewind the pipeline: at its cut-over the complete output is merged again"
    return Watch(settings, Watched(name, tables.id_of(settings, name) or "", path, ours, cure))


def of_mirror(settings: Settings, owner: str, path: str) -> Watch:
    """Return the watch of a mirror."""

    def ours(entry: LogEntry) -> bool:
        return stated(entry, ("mirror-",)) and not entry.removed

    return Watch(settings, Watched(owner, "", path, ours, "restore it from a backup", compacts=True))
