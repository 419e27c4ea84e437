"""A plan is a value: it travels as text, its id is its content, and a dry run reads it out."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

from rewind.core.offsets import OffsetRange
from rewind.core.planning import plan as plans
from rewind.core.planning import stages
from rewind.core.planning.differences import Difference
from rewind.core.planning.plan import Plan, Request, explain, sealed
from tests.support.fakes import PIPELINE

REQUEST = Request("visits_converter", "P9D", overrides={"max_offsets": 5}, reason="a bug", accept_gaps="{}")
MADE = sealed(
    Plan(
        kind=stages.REWIND,
        request=REQUEST,
        job_id="visits_converter-g2",
        live_job_id="visits_converter-g1",
        epoch=4,
        topic="visits",
        topic_id="T",
        start={0: 10, 10: 0},
        end={0: 1_510, 10: 500},
        mirror_version=7,
        records=1_990,
        bytes=199_000,
        chunks=2,
        estimate_seconds=3.6,
        differences=(
            Difference("logic.py", "aaa", "bbb"),
            Difference("new.py", "", "ccc"),
            Difference("x.py", "d", ""),
        ),
        config=PIPELINE.frozen(),
        bundle="b2",
        output_schema="e STRING",
        output_topic="visits_converted-g2",
        dead_letter_topic="visits_converted-g2-dead",
        accepted_gaps={0: (OffsetRange(30, 32), OffsetRange(40, 48))},
        warnings=("partition 10 was added",),
    )
)


def test_a_plan_comes_back_from_its_text():
    assert plans.from_json(MADE.to_json()) == MADE


def test_the_same_content_has_the_same_id_of_twelve_hex_digits():
    assert sealed(replace(MADE, id="")).id == MADE.id == sealed(MADE).id
    assert len(MADE.id) == 12
    assert set(MADE.id) <= set("0123456789abcdef")


CHANGES = {
    "kind": "repair",
    "request": replace(REQUEST, grace_seconds=1),
    "start": {0: 11, 10: 0},
    "end": {0: 1_510, 10: 501},
    "differences": (),
    "config": {},
    "accepted_gaps": {},
    "warnings": (),
    "estimate_seconds": 3.7,
}


@pytest.mark.parametrize("name", [f.name for f in fields(Plan) if f.name != "id"])
def test_any_other_content_has_another_id(name):
    old = getattr(MADE, name)
    new = CHANGES.get(name, old + 1 if isinstance(old, int) else f"{old}x")

    assert sealed(replace(MADE, **{name: new})).id != MADE.id


def test_premises_are_what_must_still_hold():
    assert MADE.premises() == {
        "live_job_id": "visits_converter-g1",
        "epoch": 4,
        "topic_id": "T",
        "partitions": [0, 10],
        "bundle": "b2",
        "job_id": "visits_converter-g2",
    }


def test_ranges_are_never_inverted():
    assert replace(MADE, start={0: 5, 1: 9}, end={0: 8, 1: 7}).ranges() == {0: OffsetRange(5, 8), 1: OffsetRange(7, 7)}


def test_a_dry_run_tells_the_whole_plan():
    assert explain(MADE) == [
        f"Plan {MADE.id}: rewind of visits_converter as visits_converter-g2, beside visits_converter-g1",
        '  from     {"visits":{"0":10,"10":0}}  (asked: P9D)',
        '  to       {"visits":{"0":1510,"10":500}}  (the end of what can be read now; it moves on)',
        "  records  1,990 in 199,000 bytes; offsets 2,000",
        "  backfill 2 chunks, about 4 s",
        "  output   visits_converted-g2, dead letters to visits_converted-g2-dead",
        "  differs  logic.py: aaa -> bbb",
        "  differs  new.py: absent -> ccc",
        "  differs  x.py: d -> absent",
        "  gap      partition 0 [30, 32) accepted",
        "  gap      partition 0 [40, 48) accepted",
        f"  tasks    {', '.join(task for task in stages.TASKS if task not in ('roll_back', 'merge', 'abort'))}",
        "  waits    catch_up until the candidate is at most 5,000 records behind",
        "  waits    approve until a person answers",
        "  waits    observe until 900 s have passed since the switch",
        "  if       a task before the switch fails: abort",
        "  skipped  roll_back, merge",
        "  warning  partition 10 was added",
        f"Apply it with apply_plan={MADE.id} and dry_run off.",
    ]


def test_the_end_of_a_repair_does_not_move_on():
    assert explain(replace(MADE, kind=stages.REPAIR))[2] == '  to       {"visits":{"0":1510,"10":500}}'
