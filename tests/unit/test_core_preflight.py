"""What a plan tells beforehand: each finding in its words, and silence where all is well."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rewind.core.errors import RefusedError
from rewind.core.planning.preflight import Facts, told
from tests.support.fakes import FakeBroker, generation, mirror, topic

LIVE = generation()
JOB = "visits_converter-g2"


@pytest.fixture
def broker():
    """Live's output, with the limits of the source."""
    made = FakeBroker()
    made.make(LIVE.output_topic, 2)
    return made


def facts(**changes):
    """All is well: a source whose mirror is level, and a disk that is empty."""
    source = topic({0: 0, 1: 0}, {0: 100, 1: 60})
    seen = mirror({0: (0, 100), 1: (0, 60)})
    well = Facts(LIVE, source, seen, {0: 0, 1: 0}, JOB, 160, 1.0, (), 1 << 40)
    return replace(well, **changes)


def source(**config):
    return replace(facts().topic, config=config)


def test_where_all_is_well_nothing_is_told(broker):
    assert told(facts(), broker) == []
    assert told(facts(mirror=None), broker) == []


@pytest.mark.parametrize(("seconds", "tells"), [(4_300, False), (4_299, True), (-0.001, False)])
def test_a_retention_that_passes_before_the_candidate_reads(broker, seconds, tells):
    found = told(facts(topic=source(**{"retention.ms": str(round(seconds * 1000))}), estimate_seconds=4_000.0), broker)
    text = (
        "visits keeps records for 4,299 s, and the candidate reads it after about 4,300 s: what the mirror has not "
        "read by then is lost. Raise retention.ms meanwhile, or keep an eye on the mirror"
    )
    assert found == ([text] if tells else [])
    compacted = source(**{"retention.ms": "1000", "cleanup.policy": "compact"})
    assert told(facts(topic=compacted), broker) == []


def test_a_retention_by_size(broker):
    found = told(facts(topic=source(**{"retention.bytes": "1048576"})), broker)
    assert found == ["visits keeps 1,048,576 bytes a partition, however fast records come: keep an eye on the mirror"]


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (90, None),
        (41, None),
        (35, "partition 0: the mirror is 5 offsets ahead of what Kafka drops next"),
        (29, "partition 0: Kafka has dropped records that the mirror has not read"),
    ],
)
def test_a_mirror_that_is_close_to_what_kafka_drops(broker, end, text):
    behind = topic({0: 30, 1: 0}, {0: 100, 1: 60})
    found = told(facts(topic=behind, mirror=mirror({0: (0, end), 1: (0, 60)})), broker)
    assert found == ([text] if text else [])


def test_an_output_that_takes_less_than_the_source(broker):
    text = (
        "visits takes messages of up to 2,000,000 bytes, visits_converted-g1 of 1,048,588: a row larger than that "
        "would stop the job. Raise max.message.bytes of visits_converted-g1, the new output takes it over"
    )
    assert told(facts(topic=source(**{"max.message.bytes": "2000000"})), broker) == [text]
    assert told(facts(topic=source(**{"max.message.bytes": "1048588"})), broker) == []


def test_a_group_in_use_is_refused_and_one_that_is_shared_is_told(broker):
    broker.make("visits", 1)
    broker.commit(LIVE.job_id, "visits", {0: 5})
    assert told(facts(), broker) == []
    with broker.member(LIVE.job_id, "visits"):
        text = f"the consumer group {LIVE.job_id} has members (Stable): somebody else commits as the live job"
        assert told(facts(), broker) == [text]
    broker.commit(JOB, "visits", {0: 5})
    with pytest.raises(RefusedError, match=rf"pipeline: the consumer group {JOB} exists already \(Empty\)"):
        told(facts(), broker)


def test_readers_that_the_switch_will_move(broker):
    broker.commit("shop", LIVE.output_topic, {0: 5})
    assert told(facts(readers=("shop",)), broker) == []
    with broker.member("shop", LIVE.output_topic):
        text = "the consumer group shop has members (Stable): stop them before the cut-over"
        assert told(facts(readers=("shop",)), broker) == [text]
    with pytest.raises(RefusedError, match=f"consumer_groups: bank has no position on {LIVE.output_topic}"):
        told(facts(readers=("shop", "bank")), broker)


@pytest.mark.parametrize(("records", "free", "needed"), [(0, 1 << 30, 0), (0, (1 << 30) - 1, 1 << 30)])
def test_a_disk_that_may_not_do(broker, records, free, needed):
    found = told(facts(records=records, free_bytes=free), broker)
    text = f"{free:,} bytes are free on the data's disk, {needed:,} may be needed"
    assert found == ([text] if needed else [])
    assert told(facts(records=10_000_000, free_bytes=1_999_999_999), broker) == [
        "1,999,999,999 bytes are free on the data's disk, 2,000,000,000 may be needed"
    ]


@pytest.mark.parametrize(("keeps", "tells"), [(4_000.0, False), (3_999.0, True)])
def test_c24_a_mirror_that_keeps_replaced_files_for_less_than_the_backfill_takes(broker, keeps, tells):
    found = told(facts(estimate_seconds=4_000.0, mirror_keeps_seconds=keeps), broker)
    text = (
        "the mirror keeps replaced files for 3,999 s, and the backfill takes about 4,000 s: a VACUUM by anyone but the "
        "mirror's own job would take what it still reads. Raise REWIND_MIRROR_RETAIN_HOURS"
    )
    assert found == ([text] if tells else [])
    assert told(facts(estimate_seconds=4_000.0, mirror_keeps_seconds=keeps, mirror=None), broker) == []


def test_c37_fields_that_nobody_declared(broker):
    text = (
        "newest records of visits hold fields that source.schema does not declare: lang, os. They are left out until "
        "it does"
    )
    assert told(facts(undeclared=("lang", "os")), broker) == [text]
