"""Why offsets of a mirror have no record, and what a proof says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rewind.core import mirror_proof
from rewind.core.errors import RefusedError
from rewind.core.mirror_proof import Explained, Hole, Proof, Repeats, Unlike
from rewind.core.offsets import OffsetRange, near

R = OffsetRange
WHOLE = Proof("visits", "id", 7, {0: R(0, 100)}, {0: R(50, 100)}, read=100, compared=50)
READ = Explained(covered=[R(0, 100)])


def parts(part, known):
    return [(hole.part.start, hole.part.end, hole.reason) for hole in mirror_proof.explained(0, part, known)]


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (READ, [(10, 20, "lost")]),
        (replace(READ, deleted=[R(0, 12), R(15, 16), R(90, 95)]),
         [(10, 12, "deletion"), (12, 15, "lost"), (15, 16, "deletion"), (16, 20, "lost")]),
        (replace(READ, recorded=[R(10, 20)], leaves="compaction"), [(10, 20, "compaction")]),
        (replace(READ, recorded=[R(8, 12), R(14, 40)], leaves="transaction"),
         [(10, 12, "transaction"), (12, 14, "lost"), (14, 20, "transaction")]),
        # Kafka shows no record where the mirror found none: a marker; it proves nothing where the mirror had one.
        (replace(READ, recorded=[R(10, 20)], readable=R(15, 100)), [(10, 15, "lost"), (15, 20, "transaction")]),
        (replace(READ, readable=R(0, 100)), [(10, 20, "lost")]),
        (Explained(readable=R(0, 100)), [(10, 20, "transaction")]),
        (Explained(readable=R(0, 100), leaves="compaction"), [(10, 20, "lost")]),
        # What Kafka holds was lost, whatever the topic leaves; a deletion was on purpose.
        (replace(READ, recorded=[R(10, 20)], leaves="compaction", held=[R(11, 12)]),
         [(10, 11, "compaction"), (11, 12, "lost"), (12, 20, "compaction")]),
        (replace(READ, deleted=[R(10, 20)], held=[R(10, 20)]), [(10, 20, "deletion")]),
    ],
)  # fmt: skip
def test_each_part_of_a_hole_has_its_reason(known, expected):
    assert parts(R(10, 20), known) == expected


def test_of_many_ranges_those_near_are_found():
    many = [R(n * 10, n * 10 + 5) for n in range(1_000)]
    assert list(near(many, R(5_003, 5_021))) == [R(5_000, 5_005), R(5_010, 5_015), R(5_020, 5_025)]
    assert list(near(many, R(5_005, 5_010))) == []


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "whole"),
        ({"holes": (Hole(0, R(1, 2), "deletion"), Hole(0, R(2, 3), "before_mirror"))}, "whole"),
        ({"repeats": Repeats(equal=9)}, "whole"),
        ({"holes": (Hole(0, R(1, 2), "lost"),)}, "damaged"),
        ({"repeats": Repeats(different=1, first=((0, 4),))}, "damaged"),
        ({"unlike": Unlike(changed=1, first=((0, 4),))}, "damaged"),
        ({"unlike": Unlike(extra=1, first=((0, 4),))}, "damaged"),
    ],
)
def test_a_verdict_and_what_it_refuses(changes, verdict):
    proof = replace(WHOLE, **changes)
    assert proof.verdict == verdict
    if verdict == "whole":
        mirror_proof.refuse(proof, {})
        assert mirror_proof.faults(proof) == []
    else:
        with pytest.raises(RefusedError, match=r"partition 0 offset [14]"):
            mirror_proof.refuse(proof, {})


def test_many_losses_are_told_by_their_first():
    proof = replace(WHOLE, holes=tuple(Hole(0, R(n, n + 1), "lost") for n in range(0, 14, 2)))
    places = "; ".join(f"partition 0 offset {n}" for n in range(0, 10, 2))
    assert mirror_proof.faults(proof) == [f"lost: {places}; and 2 more"]
    assert proof.counts()["lost"] == 7


def test_evidence_lists_lost_holes_first_and_counts_all():
    legal = [Hole(0, R(n, n + 1), "transaction") for n in range(0, 4_000, 2)]
    body = mirror_proof.to_json(replace(WHOLE, holes=(*legal, Hole(1, R(5, 7), "lost"))))
    assert (len(body["holes"]), body["holes"][0]) == (1_000, [1, 5, 7, "lost"])
    assert (body["counts"]["transaction"], body["counts"]["lost"]) == (2_000, 2)
