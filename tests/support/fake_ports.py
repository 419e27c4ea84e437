"""What a planner reads of mirror and registry, in memory.

Both pass the same contracts as the real ones: `tests/contract/test_mirror.py`, `tests/contract/test_lifecycle_port.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime

from rewind.core import names, periods
from rewind.core.errors import RefusedError
from rewind.core.model import Batch, BrokerReader, Generation, MirrorState
from rewind.core.offsets import OffsetRange, Ranges, Vector, merged, missing, reached
from rewind.core.periods import Parts, Period, Span, Spans, Strays, milliseconds
from rewind.registry.mirrors import mirror_log
from rewind.registry.mirrors.mirror_log import Commit

BYTES = 100
"""Size of each record."""


@dataclass
class FakeMirror:
    """The mirrors of a broker's topics, by topic and its id, and the Kafka timestamps of the records in them.

    While it is `older`, commits record no times, as those of older releases.
    """

    broker: BrokerReader
    transactional: bool = False
    states: dict[tuple[str, str], MirrorState] = field(default_factory=dict)
    timestamps: dict[tuple[str, str], dict[tuple[int, int], datetime]] = field(default_factory=dict)
    commits: dict[tuple[str, str], list[Commit]] = field(default_factory=dict)
    deleted: dict[tuple[str, str], dict[int, list[OffsetRange]]] = field(default_factory=dict)
    older: bool = False
    looked: int = 0
    """Records that were read, because what the commits recorded did not decide."""

    def state(self, topic: str) -> MirrorState | None:
        found = self.broker.topic(topic)
        state = None if found is None else self.states.get((topic, found.id))
        explained = self.transactional or (found is not None and found.compacted)
        return replace(state, legal_holes=state.holes) if state and explained else state

    def within(self, topic: str, period: Period) -> Ranges:
        key, spans = self._spans(topic)

        def look(parts: Parts) -> Ranges:
            found = [(p, o) for p, o, at in self._records(key, parts) if period.holds(at)]
            places = {p: [o for q, o in found if q == p] for p, _ in found}
            return {p: OffsetRange(min(offsets), max(offsets) + 1) for p, offsets in places.items()}

        return periods.within(spans, period, look)

    def strays(self, topic: str, ranges: Ranges, period: Period) -> Strays:
        key, spans = self._spans(topic)
        count = lambda parts: sum(not period.holds(at) for _, _, at in self._records(key, parts))  # noqa: E731
        return periods.strays(spans, ranges, period, count)

    def _records(self, key: tuple[str, str], parts: Parts) -> list[tuple[int, int, int]]:
        """Return the records at some offsets, with their timestamps."""
        there = self.timestamps.get(key, {}).items()
        found = [(p, o, milliseconds(at)) for (p, o), at in there if _stands(o, parts.get(p, ()))]
        self.looked += len(found)
        return found

    def _spans(self, topic: str) -> tuple[tuple[str, str], Spans]:
        if self.broker.topic(topic) is None:
            raise RefusedError("source.topic", f"{topic!r} is not on the broker", "Create it, or fix the name")
        state = self.state(topic)
        if state is None:
            raise RefusedError("source.topic", f"{topic!r} has no mirror", f"Start it with the DAG mirror_{topic}")
        key = (topic, state.topic_id)
        if key in self.commits:
            return key, mirror_log.spans(self.commits[key], self.deleted.get(key, {}))
        # A test has said what it holds, and not by which commits.
        return key, {p: [Span(part, len(part), None) for part in parts] for p, parts in state.covered.items()}

    def append(self, topic: str, ranges: Ranges, records: Mapping[tuple[int, int], datetime]) -> None:
        """Mirror a batch that reads these offsets and finds records, with these timestamps, at some of them."""
        found = self.broker.topic(topic)
        assert found is not None
        self.timestamps.setdefault((topic, found.id), {}).update(records)
        there = {p: [OffsetRange(o, o + 1) for q, o in records if q == p] for p in ranges}
        old = self.states.get((topic, found.id)) or MirrorState(0, found.id, {}, {}, {}, 0, 0)
        lacking = {p: missing(r, merged(there[p])) for p, r in ranges.items()}
        self._commit((topic, found.id), ranges, records, lacking)
        self.states[topic, found.id] = replace(
            old,
            version=self._newest_version(topic) + 1,
            covered=_added(old.covered, {p: [r] for p, r in ranges.items()}),
            holes=_added(old.holes, lacking),
            legal_holes=_added(old.legal_holes, {p: [] for p in ranges}),
            records=old.records + len(records),
            bytes=old.bytes + BYTES * len(records),
        )

    def _commit(
        self,
        key: tuple[str, str],
        ranges: Ranges,
        records: Mapping[tuple[int, int], datetime],
        lacking: Mapping[int, list[OffsetRange]],
    ) -> None:
        stamps = {p: sorted(milliseconds(at) for (q, _), at in records.items() if q == p) for p in ranges}
        times = {p: (ats[0], ats[-1]) for p, ats in stamps.items() if ats and not self.older}
        counts = {p: len(ats) for p, ats in stamps.items()}
        made = Commit(self._newest_version(key[0]) + 1, key[1], dict(ranges), counts, lacking, BYTES, times)
        self.commits.setdefault(key, []).append(made)

    def _newest_version(self, topic: str) -> int:
        # Version 0 makes the table; it holds what comes under all ids of the name.
        return max((state.version for (name, _), state in self.states.items() if name == topic), default=0)

    def record_deletion(self, topic: str, partition: int, gone: OffsetRange) -> None:
        """Record that offsets were deleted on purpose."""
        found = self.broker.topic(topic)
        assert found is not None
        old, more = self.states[topic, found.id], {partition: [gone]}
        self.deleted[topic, found.id] = _added(self.deleted.get((topic, found.id), {}), more)
        holes, legal = _added(old.holes, more), _added(old.legal_holes, more)
        self.states[topic, found.id] = replace(old, holes=holes, legal_holes=legal)


def _stands(offset: int, parts: Sequence[OffsetRange]) -> bool:
    return any(part.start <= offset < part.end for part in parts)


def _added(
    old: Mapping[int, Sequence[OffsetRange]], more: Mapping[int, Sequence[OffsetRange]]
) -> dict[int, list[OffsetRange]]:
    return {p: merged([*old.get(p, []), *more.get(p, [])]) for p in sorted({*old, *more})}


@dataclass
class FakeLifecycle:
    """Generations, batches and rewinds: `FakeLifecycle(live, batches=[...])` begins with those of a live generation."""

    first: InitVar[Generation | None] = None
    epoch: InitVar[int] = 1
    batches: InitVar[Sequence[Batch]] = ()
    active: InitVar[str | None] = None
    generations: dict[str, Generation] = field(default_factory=dict)
    pointers: dict[str, tuple[str, int]] = field(default_factory=dict)
    committed: dict[str, dict[int, Batch]] = field(default_factory=dict)
    rewinds: dict[str, str] = field(default_factory=dict)

    def __post_init__(self, first: Generation | None, epoch: int, batches: Sequence[Batch], active: str | None) -> None:
        if first is None:
            return
        self.create(first)
        self.pointers[first.pipeline] = (first.job_id, epoch)
        for batch in batches:
            self.commit(first.job_id, batch)
        if active is not None:
            self.rewinds[first.pipeline] = active

    def live(self, pipeline: str) -> tuple[Generation, int] | None:
        if pipeline not in self.pointers:
            return None
        job_id, epoch = self.pointers[pipeline]
        return self.generations[job_id], epoch

    def position(self, job_id: str) -> Vector:
        if job_id not in self.generations:
            raise RefusedError("job_id", f"{job_id!r} is unknown", "Look at `python -m rewind status`")
        last = self.newest_batch(job_id)
        return {**(self.generations[job_id].handoff or {}), **(last.end if last else {})}

    def newest_batch(self, job_id: str) -> Batch | None:
        return next(reversed(self._in_order(job_id)), None)

    def batch_reaching(self, job_id: str, position: Vector) -> Batch | None:
        return next((batch for batch in self._in_order(job_id) if reached(batch.end, position)), None)

    def last_batch_closing(self, job_id: str, watermark: int) -> Batch | None:
        return next((b for b in reversed(self._in_order(job_id)) if b.closing_watermark <= watermark), None)

    def first_batch_closing_after(self, job_id: str, watermark: int) -> Batch | None:
        return next((batch for batch in self._in_order(job_id) if batch.closing_watermark > watermark), None)

    def active_rewind(self, pipeline: str) -> str | None:
        return self.rewinds.get(pipeline)

    def next_number(self, pipeline: str, kind: str) -> int:
        parsed = [names.parse_job_id(job_id) for job_id in self.generations]
        return max((number for name, of, number in parsed if (name, of) == (pipeline, kind)), default=0) + 1

    def create(self, made: Generation) -> None:
        """Record a generation or a repair."""
        self.generations[made.job_id] = made

    def point(self, job_id: str) -> None:
        """Move the pointer of a pipeline to a generation of it."""
        made = self.generations[job_id]
        old, epoch = self.pointers.get(made.pipeline, (None, 0))
        if old is not None:
            self.generations[old] = replace(self.generations[old], state="standby")
        self.generations[job_id] = replace(made, state="live")
        self.pointers[made.pipeline] = (job_id, epoch + 1)

    def commit(self, job_id: str, batch: Batch) -> None:
        """Record a batch of a stream."""
        self.committed.setdefault(job_id, {})[batch.batch] = batch

    def open_rewind(self, pipeline: str, rewind_id: str) -> None:
        """Make a rewind the active one of a pipeline."""
        self.rewinds[pipeline] = rewind_id

    def close_rewind(self, pipeline: str) -> None:
        """End the active rewind of a pipeline."""
        del self.rewinds[pipeline]

    def _in_order(self, job_id: str) -> list[Batch]:
        return [batch for _, batch in sorted(self.committed.get(job_id, {}).items())]
