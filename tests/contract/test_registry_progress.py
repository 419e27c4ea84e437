"""What was done so far: chunks, batches of streams, manifests and the deletions ledger."""

from __future__ import annotations

from rewind.core.model import Batch
from rewind.core.offsets import OffsetRange
from rewind.registry import chunk_log, manifest, progress
from rewind.registry.database import now
from rewind.registry.manifest import Entry
from tests.support.registry import G1, G2

# --- chunks and batches


def test_chunks_are_cut_once_a_wave_and_numbered_through(registry):
    first = [{0: OffsetRange(0, 5), 1: OffsetRange(0, 2)}, {0: OffsetRange(5, 9)}]
    chunk_log.add_wave(registry, "rw-1", 0, first)
    chunk_log.add_wave(registry, "rw-1", 0, [{0: OffsetRange(0, 1)}])
    chunk_log.add_wave(registry, "rw-1", 1, [{0: OffsetRange(9, 12)}])
    chunk_log.begin(registry, "rw-1", 0)
    for _ in range(2):
        chunk_log.finish(registry, "rw-1", 0, rows=6, repeats=1)

    assert [(c.number, c.wave, c.ranges, c.state, c.rows, c.repeats) for c in chunk_log.read(registry, "rw-1")] == [
        (0, 0, first[0], "done", 6, 1),
        (1, 0, first[1], "planned", None, None),
        (2, 1, {0: OffsetRange(9, 12)}, "planned", None, None),
    ]
    assert chunk_log.read(registry, "rw-2") == []


def test_a_feed_has_the_chunks_that_hold_records_alone(registry):
    chunk_log.add_wave(registry, "rw-1", 0, [{0: OffsetRange(n, n + 2)} for n in range(0, 8, 2)])
    for number, rows in enumerate((2, 0, 1)):
        chunk_log.count(registry, "rw-1", number, rows, 0)
    assert [chunk.number for chunk in chunk_log.fed(registry, "rw-1")] == [0, 2]


def test_position_is_the_end_of_the_last_batch_else_the_handoff(registry):
    assert progress.position(registry, G1, None) == {}
    assert progress.position(registry, G1, {0: 5, 1: 6}) == {0: 5, 1: 6}
    for number, end in ((2, 7), (10, 9)):
        progress.record(registry, G1, 1, Batch(number, {0: 5}, {0: end}, 2, now()))

    assert progress.position(registry, G1, {0: 5, 1: 6}) == {0: 9, 1: 6}
    assert progress.position(registry, G2, {0: 1}) == {0: 1}
    assert [b.batch for b in progress.recent(registry, G1, 5)] == [10, 2]
    assert [b.batch for b in progress.recent(registry, G1, 1)] == [10]


def test_a_batch_recorded_again_is_one_batch(registry):
    for rows in (2, 3):
        progress.record(registry, G1, 1, Batch(4, {0: 5}, {0: 9}, rows, now()))
    assert [(b.batch, b.rows) for b in progress.recent(registry, G1, 5)] == [(4, 3)]
    assert progress.newest(registry, G2) is None


# --- the manifest and the ledger


def test_the_manifest_names_before_it_is_made_with_topics_last(registry):
    for kind, name in ((manifest.TOPIC, "out-g2"), (manifest.GROUP, G2), (manifest.FOLDER, "/data/g2")):
        for _ in range(2):
            manifest.name(registry, G2, kind, name)
    manifest.made(registry, G2, manifest.TOPIC, "out-g2", "T1")
    manifest.name(registry, G2, manifest.TOPIC, "out-g2")

    assert manifest.read(registry, G2) == [
        Entry("folder", "/data/g2", None, "named"),
        Entry("group", G2, None, "named"),
        Entry("topic", "out-g2", "T1", "made"),
    ]
    assert manifest.read(registry, G1) == []


def test_the_ledger_keeps_every_line(registry):
    entry = Entry("topic", "out-g2", "T1", "made")
    manifest.record(registry, G2, entry, "refused", "another id")
    manifest.record(registry, G2, entry, "deleted", "")
    manifest.set_state(registry, G2, "topic", "out-g2", manifest.DELETED)

    assert [(d.name, d.resource_id, d.result, d.detail) for d in manifest.ledger(registry, G2)] == [
        ("out-g2", "T1", "refused", "another id"),
        ("out-g2", "T1", "deleted", ""),
    ]
    assert manifest.ledger(registry, G1) == []
