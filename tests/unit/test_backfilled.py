"""What the evidence of a backfill tells."""

from __future__ import annotations

from rewind.core import lifecycle
from rewind.core.offsets import OffsetRange
from rewind.registry import chunk_log, generations, rewinds
from rewind.registry.database import writing
from rewind.registry.mirrors import mirror_log
from rewind.steps.feed.backfill_summary import evidence
from tests.support import fakes


def test_c24_what_was_deleted_on_purpose_stands_beside_what_was_read(tmp_path):
    settings, plan = fakes.installation(tmp_path), fakes.plan(accepted_gaps={1: (OffsetRange(3, 5),)})
    made = fakes.generation(number=2, state=lifecycle.CANDIDATE, handoff=None)
    with writing(settings.registry_url) as connection:
        generations.create(connection, made, None)
        rewinds.store_plan(connection, plan)
        chunk_log.add_wave(connection, "rw-1", 0, [{0: OffsetRange(0, 5), 1: OffsetRange(0, 5)}])
        chunk_log.finish(connection, "rw-1", 0, 7, 1)
        mirror_log.record_deletion(connection, plan.topic, plan.topic_id, 0, OffsetRange(2, 3), "asked for")
        generations.set_handoff(connection, plan.job_id, {0: 5, 1: 5})
    assert evidence(settings, "rw-1", plan) == {
        "chunks": 1,
        "records": 7,
        "repeats": 1,
        "handoff": '{"visits":{"0":5,"1":5}}',
        "accepted_gaps": {"1": [[3, 5]]},
        "deleted": {"0": [[2, 3]]},
    }
