"""What the registry holds of mirrors: commits once each, deletions, and which topic was mirrored last."""

from __future__ import annotations

from dataclasses import replace

from rewind.control import mirror_log, mirror_sums
from rewind.control.mirror_log import Commit
from rewind.core.offsets import OffsetRange as R
from tests.support.fakes import TOPIC_ID


def commit(version, end, topic_id=TOPIC_ID):
    return Commit(
        version, topic_id, {0: R(0, end), 10: R(2**53, 2**53 + 1)}, {0: end - 1, 10: 1}, {0: [R(0, 1)]}, 2**40
    )


COMMITS = [commit(3, 6), commit(4, 10)]


def test_commits_are_recorded_once_and_kept_apart_by_topic_and_id(registry):
    assert mirror_log.newest_version(registry, "visits") == -1
    for made in (COMMITS[1], COMMITS[0], COMMITS[1], replace(COMMITS[1], bytes=9)):
        mirror_log.record(registry, "visits", made)
    mirror_log.record(registry, "visits", commit(9, 1, "old"))
    mirror_log.record(registry, "carts", COMMITS[0])

    assert mirror_log.commits(registry, "visits", TOPIC_ID) == COMMITS
    assert mirror_log.newest_version(registry, "visits") == 9
    assert mirror_log.newest_version(registry, "carts") == 3


def test_deletions_are_merged_and_kept_apart_by_topic_id(registry):
    for gone in (R(5, 7), R(0, 2), R(6, 9)):
        mirror_log.record_deletion(registry, "visits", TOPIC_ID, 0, gone, "asked for")
    mirror_log.record_deletion(registry, "visits", "old", 0, R(50, 60), "asked for")
    mirror_log.record_deletion(registry, "visits", TOPIC_ID, 1, R(1, 2), "asked for")

    assert mirror_log.deletions(registry, "visits", TOPIC_ID) == {0: [R(0, 2), R(5, 9)], 1: [R(1, 2)]}
    assert mirror_log.deletions(registry, "carts", TOPIC_ID) == {}


def test_the_newest_id_is_that_of_the_topic_that_was_mirrored_last(registry):
    assert (mirror_log.newest_id(registry, "visits"), mirror_log.topics(registry)) == (None, [])
    for topic, made in (("visits", COMMITS[0]), ("visits", commit(4, 1, "new")), ("carts", commit(9, 1, "c"))):
        mirror_log.record(registry, topic, made)
    assert (mirror_log.newest_id(registry, "visits"), mirror_log.topics(registry)) == ("new", ["carts", "visits"])


def test_what_commits_sum_up_to_is_counted_on(registry, url):
    for made in (*COMMITS, commit(5, 12, "new")):
        mirror_log.record(registry, "visits", made)
        found = mirror_sums.newest(registry, url)["visits"]
    assert (found.topic_id, found.version, found.commits, found.records) == ("new", 5, 1, 12)
    mirror_log.record(registry, "visits", commit(6, 13, "new"))
    found = mirror_sums.newest(registry, url)["visits"]
    assert (found.version, found.commits, found.records, found.position) == (6, 2, 25, {0: 13, 10: 2**53 + 1})
