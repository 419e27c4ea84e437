"""The proof of a mirror: each offset of a range once, or rightly not at all, and the bytes that Kafka still holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from rewind.adapters import mirror as table
from rewind.core import mirror_proof
from rewind.core.errors import RetryError
from rewind.core.mirror_proof import COMPACTED, TRANSACTION, Explained, Hole, Proof, Repeats, Unlike
from rewind.core.model import MirrorState, Topic
from rewind.core.offsets import OffsetRange, Ranges, between, merged, missing, within, without
from rewind.core.settings import Settings
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log
from rewind.steps.mirroring.mirror import holes_in
from rewind.transforms.records import mirror_checks as checks

Parts = dict[int, list[OffsetRange]]
KafkaRows = Callable[[Ranges], DataFrame]
"""Gives the records that Kafka holds in some ranges, as source records."""
MOST_BUCKETS = 100_000
"""Buckets that are looked at one by one; a mirror with more bad ones is not proven a little, but restored."""


@dataclass(frozen=True)
class Source:
    """What is proven, and against what.

    Attributes:
        topic: The topic as the broker describes it.
        transactional: Whether its writers are known to use transactions.
        rows: Kafka's records.
    """

    topic: Topic
    transactional: bool
    rows: KafkaRows


class Prover:
    """One proof: a pass over what is not proven yet, and a closer look at buckets that are not as they should be."""

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        source: Source,
        state: MirrorState,
        ranges: Ranges,
        standing: Mapping[int, Sequence[OffsetRange]],
        again: bool,
    ) -> None:
        """Work out what is to be read: what no proof stands for, and if asked `again` all that Kafka still holds."""
        self._spark = spark
        self._source = source
        self._state = state
        self._ranges = ranges
        self._path = table.table_path(settings, source.topic.name)
        kept = between(source.topic.earliest, source.topic.latest)
        self._overlap = {p: r.overlap(kept.get(p, OffsetRange(0, 0))) for p, r in ranges.items()}
        self._compared = self._overlap if again else self._unproven(standing)
        done = {p: [*standing.get(p, ()), self._compared[p]] for p in ranges}
        self._fresh = {p: missing(r, done[p]) for p, r in ranges.items()}
        self._read = {p: merged([*self._fresh[p], self._compared[p]]) for p in ranges}
        with writing(settings.registry_url) as connection:
            self._deleted = mirror_log.deletions(connection, source.topic.name, source.topic.id)

    def proof(self, before: Sequence[Hole]) -> Proof:
        """Return what is found; `before` are asked offsets that the mirror begins after."""
        absent = self._absent()
        due = checks.expected(self._spark, self._read, absent)
        found = checks.buckets(self._rows()).persist()
        theirs = checks.buckets(_hashed(self._source.rows(self._compared))).persist()
        try:
            read, compared = self._totals(found)
            bad = self._suspects(checks.suspects(found, due, theirs))
        finally:
            found.unpersist()
            theirs.unpersist()
        unlike = self._unlike(bad["differ"])
        holes = [*before, *self._holes(absent, _joined(bad["lack"], bad["repeat"]), unlike)]
        return Proof(
            topic=self._source.topic.name,
            topic_id=self._state.topic_id,
            version=self._state.version,
            ranges=self._ranges,
            overlap=self._compared,
            read=read,
            compared=compared,
            holes=tuple(sorted(holes)),
            repeats=self._repeats(bad["repeat"]),
            unlike=unlike,
        )

    def _rows(self) -> DataFrame:
        # Content is read only where Kafka can be asked: elsewhere two narrow columns tell all.
        narrow = self._mirrored(self._fresh).select("partition", "offset", F.lit(None).cast("long").alias("hash"))
        return narrow.unionByName(_hashed(self._mirrored({p: [r] for p, r in self._compared.items()})))

    def _mirrored(self, parts: Mapping[int, Sequence[OffsetRange]]) -> DataFrame:
        rows = table.read(self._spark, self._path, self._state.version)
        asked = {p: [r for r in rs if len(r)] for p, rs in parts.items()}
        return rows.where(table.at_any(asked) & (F.col("topic_id") == self._state.topic_id))

    def _unproven(self, standing: Mapping[int, Sequence[OffsetRange]]) -> Ranges:
        """Return what of the overlap no proof stands for, from the first to the last of it."""
        left = _spanned({p: missing(r, standing.get(p, ())) for p, r in self._overlap.items()})
        return {p: left.get(p, OffsetRange(r.end, r.end)) for p, r in self._overlap.items()}

    def _absent(self) -> Parts:
        """Return where there is rightly no record, as far as that is known beforehand."""
        recorded = self._state.holes if self._leaves() else {}
        known = {p: merged([*self._deleted.get(p, ()), *recorded.get(p, ())]) for p in self._read}
        return {p: within(parts, known[p]) for p, parts in self._read.items()}

    def _leaves(self) -> str:
        if self._source.topic.compacted:
            return COMPACTED
        return TRANSACTION if self._source.transactional else ""

    def _totals(self, found: DataFrame) -> tuple[int, int]:
        sums = found.agg(F.sum("rows").alias("rows"), F.sum("compared").alias("compared")).first()
        assert sums is not None
        return sums["rows"] or 0, sums["compared"] or 0

    def _suspects(self, bad: DataFrame) -> dict[str, Parts]:
        """Return the offsets of the buckets that are to be looked at, by what seems wrong."""
        rows = bad.orderBy(*checks.KEY).limit(MOST_BUCKETS + 1).collect()
        if len(rows) > MOST_BUCKETS:
            raise RetryError(f"mirror of {self._source.topic.name}: more than {MOST_BUCKETS:,} buckets are damaged")
        return {name: self._spans([row for row in rows if row[name]]) for name in ("lack", "repeat", "differ")}

    def _spans(self, rows: Sequence[Row]) -> Parts:
        spans: Parts = {}
        for row in rows:
            start = row["bucket"] * checks.BUCKET
            spans.setdefault(row["partition"], []).append(OffsetRange(start, start + checks.BUCKET))
        return {p: merged(parts) for p, parts in spans.items()}

    def _holes(self, absent: Parts, lacking: Parts, unlike: Unlike) -> list[Hole]:
        """Return the holes of what was read: those known beforehand, and those found where these do not tell all."""
        asked = {p: within(self._read[p], parts) for p, parts in lacking.items()}
        whole = _spanned(asked)
        real = holes_in(self._spark, self._path, self._state.version, whole, self._state.topic_id) if whole else {}
        found = []
        for p in self._ranges:
            seen = within(real.get(p, []), asked.get(p, []))
            known = without(absent[p], asked.get(p, []))
            held = list(unlike.held.get(p, ()))
            parts = merged([*seen, *known, *held])
            known_here = self._explained(p, held)
            found += [hole for part in parts for hole in mirror_proof.explained(p, part, known_here)]
        return found

    def _explained(self, p: int, held: Sequence[OffsetRange]) -> Explained:
        return Explained(
            deleted=self._deleted.get(p, ()),
            recorded=self._state.holes.get(p, ()),
            covered=self._state.covered.get(p, ()),
            readable=self._overlap[p],
            held=held,
            leaves=self._leaves(),
        )

    def _repeats(self, parts: Parts) -> Repeats:
        if not parts:
            return Repeats()
        asked = {p: within(self._read[p], spans) for p, spans in parts.items()}
        twice = checks.repeated(_hashed(self._mirrored(asked))).persist()
        try:
            different = F.col("contents") > 1
            equal = F.sum(F.when(~different, F.col("copies") - 1)).alias("equal")
            sums = twice.agg(equal, F.count_if(different).alias("different")).first()
            assert sums is not None
            first = _first(twice.where(different))
        finally:
            twice.unpersist()
        return Repeats(sums["equal"] or 0, sums["different"], first)

    def _unlike(self, parts: Parts) -> Unlike:
        if not parts:
            return Unlike()
        asked = {p: within([self._compared[p]], spans) for p, spans in parts.items()}
        whole = _spanned(asked)
        theirs = _hashed(self._source.rows(whole).where(table.at_any(asked)))
        places = checks.unlike(_hashed(self._mirrored(asked)), theirs).persist()
        try:
            counts = {row["kind"]: row["count"] for row in places.groupBy("kind").count().collect()}
            held: Parts = {}
            for row in checks.runs(places.where("kind = 'held'")).orderBy("partition", "start").collect():
                held.setdefault(row["partition"], []).append(OffsetRange(row["start"], row["end"]))
            # What a compaction took from Kafka since is no fault of the mirror, which keeps it.
            bad = ["changed"] if self._source.topic.compacted else ["changed", "extra"]
            first = _first(places.where(F.col("kind").isin(*bad)))
        finally:
            places.unpersist()
        return Unlike(counts.get("changed", 0), counts.get("extra", 0) if "extra" in bad else 0, first, held)


def _spanned(parts: Parts) -> Ranges:
    """Return per partition what lies from the first to the last of some offsets; a partition without any is absent."""
    return {p: OffsetRange(rs[0].start, rs[-1].end) for p, rs in parts.items() if rs}


def _joined(left: Parts, right: Parts) -> Parts:
    return {p: merged([*left.get(p, ()), *right.get(p, ())]) for p in {*left, *right}}


def _hashed(records: DataFrame) -> DataFrame:
    return records.select("partition", "offset", checks.content().alias("hash"))


def _first(places: DataFrame) -> tuple[tuple[int, int], ...]:
    rows = places.orderBy("partition", "offset").limit(mirror_proof.SHOWN).collect()
    return tuple((row["partition"], row["offset"]) for row in rows)
