"""What a proof of a mirror says: which offsets have no record and why, what stands twice, what Kafka says otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rewind.core.errors import RefusedError
from rewind.core.offsets import OffsetRange, Ranges, merged, missing, near, told, total, within, without

BEFORE, DELETED, COMPACTED, TRANSACTION = "before_mirror", "deletion", "compaction", "transaction"
LOST = "lost"
"""Why a hole is one: legal, but for `LOST`."""
WHOLE, DAMAGED = "whole", "damaged"
"""Verdicts."""
SHOWN = 5
MOST_TOLD = 1_000
"""Holes that the evidence lists, lost ones first; all are counted."""


@dataclass(frozen=True)
class Explained:
    """What is known of the holes of one partition.

    Attributes:
        deleted: Offsets whose records were deleted on purpose.
        recorded: Offsets at which the mirror's commits found no record when they read them.
        covered: Offsets that its commits have read.
        readable: Offsets that Kafka still answers for.
        held: Offsets in holes at which Kafka holds a record.
        leaves: What leaves holes in the topic by its nature: `COMPACTED`, `TRANSACTION`, or nothing.
    """

    deleted: Sequence[OffsetRange] = ()
    recorded: Sequence[OffsetRange] = ()
    covered: Sequence[OffsetRange] = ()
    readable: OffsetRange = field(default_factory=lambda: OffsetRange(0, 0))
    held: Sequence[OffsetRange] = ()
    leaves: str = ""


@dataclass(frozen=True, order=True)
class Hole:
    """Offsets of a partition without a record, and why."""

    partition: int
    part: OffsetRange
    reason: str


@dataclass(frozen=True)
class Repeats:
    """Offsets that stand more than once.

    Attributes:
        equal: Records beyond the first of their offset, all of the same bytes.
        different: Offsets whose records differ.
        first: The first of those, as partition and offset.
    """

    equal: int = 0
    different: int = 0
    first: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Unlike:
    """Records that Kafka says otherwise.

    Attributes:
        changed: Offsets whose key, value, timestamp or headers differ.
        extra: Offsets at which only the mirror has a record, of a topic that is not compacted.
        first: The first of both, as partition and offset.
        held: Per partition the offsets at which only Kafka has a record.
    """

    changed: int = 0
    extra: int = 0
    first: tuple[tuple[int, int], ...] = ()
    held: Mapping[int, Sequence[OffsetRange]] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """A proof of a range of a mirror.

    Attributes:
        topic: The topic.
        topic_id: Its id.
        version: Version of the mirror's table.
        ranges: What was asked.
        overlap: Which of it was held against Kafka.
        read: Records of the mirror that were read; what an earlier proof holds for is not read again.
        compared: Those of them that were held against Kafka.
        holes: Offsets without a record, in order.
        repeats: Offsets that stand more than once.
        unlike: What Kafka says otherwise.
    """

    topic: str
    topic_id: str
    version: int
    ranges: Ranges
    overlap: Ranges
    read: int
    compared: int
    holes: tuple[Hole, ...] = ()
    repeats: Repeats = Repeats()
    unlike: Unlike = Unlike()

    @property
    def lost(self) -> list[Hole]:
        """The holes that nothing explains."""
        return [hole for hole in self.holes if hole.reason == LOST]

    @property
    def verdict(self) -> str:
        """`WHOLE`, or `DAMAGED`: equal repeats alone do no harm."""
        bad = self.lost or self.repeats.different or self.unlike.changed or self.unlike.extra
        return DAMAGED if bad else WHOLE

    def counts(self) -> dict[str, int]:
        """Return what was found, in numbers: offsets by reason of their hole, repeats and differences."""
        holes = {
            reason: sum(len(hole.part) for hole in self.holes if hole.reason == reason)
            for reason in (BEFORE, DELETED, COMPACTED, TRANSACTION, LOST)
        }
        return {
            "offsets": total(self.ranges),
            "read": self.read,
            "compared": self.compared,
            **holes,
            "repeats_equal": self.repeats.equal,
            "repeats_different": self.repeats.different,
            "changed": self.unlike.changed,
            "extra": self.unlike.extra,
        }


def explained(partition: int, part: OffsetRange, known: Explained) -> list[Hole]:
    """Return the parts of a hole, each with its reason.

    Of `known` each list is in order and disjoint. Where Kafka holds a record the mirror lost it, unless that was on
    purpose. A hole that the commits did not find when they read the offsets came later, so that neither compaction nor
    a transaction of the topic explains it.
    """
    deleted, held, recorded, covered = (
        near(parts, part) for parts in (known.deleted, known.held, known.recorded, known.covered)
    )
    rest = missing(part, deleted)
    gone = within(rest, held)
    rest = without(rest, held)
    read_empty = merged([*within(rest, recorded), *without(rest, covered)])
    by_nature = within(read_empty, recorded) if known.leaves else []
    unsure = without(read_empty, by_nature)
    # Of a topic that is not compacted Kafka keeps what it had until all before it is gone: where it shows none now, it
    # never showed one.
    marker = [] if known.leaves == COMPACTED else within(unsure, [known.readable])
    reasons = {
        DELETED: within([part], deleted),
        LOST: [*gone, *without(rest, read_empty), *without(unsure, marker)],
        known.leaves: by_nature,
    }
    reasons[TRANSACTION] = merged([*reasons.get(TRANSACTION, []), *marker])
    return sorted(Hole(partition, hole, reason) for reason, holes in reasons.items() for hole in merged(holes))


def summary(proof: Proof) -> list[str]:
    """Return a proof as lines, what is wrong with it last."""
    told_counts = ", ".join(f"{name} {n:,}" for name, n in proof.counts().items() if n)
    head = f"mirror of {proof.topic}, version {proof.version}: {proof.verdict} ({told_counts or 'nothing to verify'})"
    return [head, *faults(proof)]


def faults(proof: Proof) -> list[str]:
    """Return what is wrong, a line a kind, with the first places."""
    lost = proof.lost
    lines = {
        f"lost: {_some([told(hole.partition, hole.part) for hole in lost])}": len(lost),
        f"different records at one offset: {_places(proof.repeats.first)}": proof.repeats.different,
        f"not as in Kafka: {_places(proof.unlike.first)}": proof.unlike.changed + proof.unlike.extra,
    }
    return [line for line, count in lines.items() if count]


def _places(first: Iterable[tuple[int, int]]) -> str:
    return _some([told(p, OffsetRange(o, o + 1)) for p, o in first])


def _some(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more


def refuse(proof: Proof, accepted: Mapping[int, Sequence[OffsetRange]]) -> None:
    """Check that a rewind may read the range.

    Args:
        proof: Of the range.
        accepted: Gaps that the request accepts.

    Raises:
        RefusedError: The mirror lost records, or holds other ones than were written.
    """
    unaccepted = [hole for hole in proof.lost if missing(hole.part, accepted.get(hole.partition, []))]
    if unaccepted:
        cure = (
            "Restore the mirror's table, or choose a range without them; if they were deleted on purpose, say so with "
            f"`rewind record-deletion {proof.topic}`"
        )
        raise RefusedError(
            "from", f"the mirror has lost {_some([told(hole.partition, hole.part) for hole in unaccepted])}", cure
        )
    wrong = [line for line in faults(proof) if not line.startswith("lost: ")]
    if wrong:
        cure = "Restore the mirror's table, or choose a range without them. Was the topic recreated?"
        raise RefusedError("from", f"the mirror of {proof.topic} holds {'; '.join(wrong)}", cure)


def to_json(proof: Proof) -> dict[str, Any]:
    """Return a proof as the body of its evidence."""
    listed = sorted(proof.holes, key=lambda hole: hole.reason != LOST)[:MOST_TOLD]
    return {
        "topic": proof.topic,
        "topic_id": proof.topic_id,
        "version": proof.version,
        "verdict": proof.verdict,
        "ranges": plain(proof.ranges),
        "overlap": plain(proof.overlap),
        "counts": proof.counts(),
        "holes": [[h.partition, h.part.start, h.part.end, h.reason] for h in listed],
        "first_different_repeats": [list(place) for place in proof.repeats.first],
        "first_unlike_kafka": [list(place) for place in proof.unlike.first],
    }


def plain(ranges: Mapping[int, OffsetRange]) -> dict[str, list[int]]:
    """Return ranges as JSON has them."""
    return {str(p): [r.start, r.end] for p, r in sorted(ranges.items())}
