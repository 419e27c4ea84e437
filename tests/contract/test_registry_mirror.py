"""What the registry holds of mirrors: commits once each, deletions, and the newest proofs."""

from __future__ import annotations

from dataclasses import replace

from rewind.core.mirror_proof import Hole, Proof
from rewind.core.offsets import OffsetRange as R
from rewind.registry.mirrors import mirror_log, mirror_sums, proof_log
from rewind.registry.mirrors.mirror_log import Commit
from tests.support.fakes import TOPIC_ID


def commit(version, end, topic_id=TOPIC_ID):
    return Commit(
        version,
        topic_id,
        {0: R(0, end), 10: R(2**53, 2**53 + 1)},
        {0: end - 1, 10: 1},
        {0: [R(0, 1)]},
        2**40,
        {0: (-1, 2**53 + 1)},
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


def proven(connection, version, *holes, topic_id=TOPIC_ID):
    proof = Proof("visits", topic_id, version, {0: R(0, 120)}, {0: R(60, 120)}, 120, 60, holes)
    proof_log.record(connection, proof, {0: [R(0, 60), R(70, 120)]}, "prove")


def test_the_newest_proof_of_each_mirror(registry):
    assert (proof_log.newest(registry, "visits", TOPIC_ID), proof_log.newest_of_all(registry)) == (None, {})
    proven(registry, 4)
    proven(registry, 5, Hole(0, R(6, 8), "lost"))
    proven(registry, 9, topic_id="old")
    proven(registry, 5, Hole(0, R(6, 9), "lost"))

    found = proof_log.newest(registry, "visits", TOPIC_ID)
    assert (found.version, found.verdict, found.counts["lost"], found.asked_by) == (5, "damaged", 3, "prove")
    assert found.holds_for == {0: [R(0, 60), R(70, 120)]}
    assert proof_log.newest(registry, "visits", TOPIC_ID, "whole").version == 4
    newest = proof_log.newest_of_all(registry)
    assert {key: proof.version for key, proof in newest.items()} == {("visits", TOPIC_ID): 5, ("visits", "old"): 9}
