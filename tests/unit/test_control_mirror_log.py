"""What the mirror's commits say, without a scan: coverage, holes, and which holes are legal."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewind.core.offsets import OffsetRange
from rewind.registry.mirrors import mirror_log
from rewind.registry.mirrors.mirror_log import Commit
from tests.support.fakes import TOPIC_ID, topic

R = OffsetRange
PLAIN = topic({0: 0}, {0: 10})
COMPACTED = topic({0: 0}, {0: 10}, **{"cleanup.policy": "compact"})
BOTH = topic({0: 0}, {0: 10}, **{"cleanup.policy": "compact,delete"})


def commit(version, ranges, holes=None, topic_id=TOPIC_ID):
    holes = holes or {}
    counts = {p: len(r) - sum(map(len, holes.get(p, []))) for p, r in ranges.items()}
    return Commit(version, topic_id, ranges, counts, holes, 100 * sum(counts.values()))


# Case C07: records 0, 1, 2, 4, 5 and 8 of ten offsets, over two commits.
COMMITS = [
    commit(3, {0: R(0, 6)}, {0: [R(3, 4)]}),
    commit(4, {0: R(6, 10)}, {0: [R(6, 8), R(9, 10)]}),
]
HOLES = [R(3, 4), R(6, 8), R(9, 10)]


@pytest.mark.parametrize(
    ("source", "transactional", "legal"),
    [(PLAIN, False, []), (PLAIN, True, HOLES), (COMPACTED, False, HOLES), (BOTH, False, HOLES)],
    ids=["plain", "transactional", "compacted", "compacted and deleted"],
)
def test_holes_are_legal_where_compaction_or_transactions_leave_them(source, transactional, legal):
    found = mirror_log.state(COMMITS, {}, source, transactional)

    assert (found.version, found.topic_id, found.records, found.bytes) == (4, TOPIC_ID, 6, 600)
    assert (found.covered, found.holes, found.legal_holes) == ({0: [R(0, 10)]}, {0: HOLES}, {0: legal})
    assert (found.start(), found.end()) == ({0: 0}, {0: 10})


def test_a_recorded_deletion_is_a_legal_hole_of_any_topic():
    found = mirror_log.state(COMMITS, {0: [R(2, 4)]}, PLAIN, transactional=False)
    assert found.holes == {0: [R(2, 4), R(6, 8), R(9, 10)]}
    assert found.legal_holes == {0: [R(2, 4)]}


def test_rows_of_the_old_topic_are_not_mixed_with_the_new_ones():
    """Case C04: the topic was deleted and made anew under the same name."""
    old = commit(2, {0: R(0, 500), 1: R(0, 9)}, topic_id="old")
    found = mirror_log.state([old, commit(3, {0: R(0, 7)})], {}, PLAIN, transactional=False)

    assert (found.covered, found.records, found.start(), found.end()) == ({0: [R(0, 7)]}, 7, {0: 0}, {0: 7})
    assert mirror_log.state([old], {}, PLAIN, transactional=False) is None
    assert mirror_log.state([], {}, PLAIN, transactional=False) is None


def test_what_no_commit_read_stays_open():
    parts = [commit(1, {0: R(0, 4)}), commit(2, {0: R(6, 9), 1: R(5, 5)})]
    found = mirror_log.state(parts, {}, PLAIN, transactional=False)
    assert found.covered == {0: [R(0, 4), R(6, 9)], 1: []}
    assert (found.start(), found.end()) == ({0: 0}, {0: 9})


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_commits_in_a_row_cover_their_sum_without_a_seam(sizes):
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    parts = [commit(n, {0: R(end - size, end)}) for n, (size, end) in enumerate(zip(sizes, ends, strict=True))]
    found = mirror_log.state(parts, {}, PLAIN, transactional=False)
    assert (found.covered, found.records) == ({0: [R(0, sum(sizes))]}, sum(sizes))


def test_a_commit_travels_as_json():
    made = commit(4, {0: R(6, 10), 10: R(0, 3)}, {0: [R(6, 8)]})
    assert mirror_log.from_json(4, json.loads(json.dumps(made.to_json()))) == made
