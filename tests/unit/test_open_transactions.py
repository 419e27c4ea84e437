"""Case P08: ten records, a transaction that hangs with five, a hundred plain ones behind it, and what is told of it."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from rich.console import Console

from rewind.cli import render
from rewind.core.errors import RefusedError
from rewind.core.model import Batch
from rewind.core.offsets import OffsetRange
from rewind.core.planning.planner import make_plan
from rewind.registry import generations, progress
from rewind.registry.database import now, writing
from rewind.registry.mirrors import mirror_log
from rewind.registry.mirrors.mirror_log import Commit
from rewind.views import metrics, status
from rewind.views.counters import Totals
from rewind.web.overview import answer, overview
from tests.support.fakes import CODE, PIPELINE, TOPIC, FakeBroker, FakeLifecycle, FakeMirror, World, generation
from tests.support.fakes import installation as made_installation
from tests.support.plans import NOW, request

TOLD = "partition 0 is held back by an open transaction: readable to 10, written to 115"
READ_UNCOMMITTED = replace(PIPELINE, isolation="read_uncommitted")


@pytest.fixture
def kafka():
    broker = FakeBroker()
    broker.make(TOPIC)
    records = [(b"k", 1_757_000_000_000)]
    broker.append(TOPIC, 0, records * 10)
    broker.transaction().append(TOPIC, 0, records * 5)
    broker.append(TOPIC, 0, records * 100)
    return broker


def planned(kafka, asked, pipeline=PIPELINE):
    mirror = FakeMirror(kafka)
    mirror.append(TOPIC, {0: OffsetRange(0, 10)}, {(0, o): datetime(2025, 9, 4, tzinfo=UTC) for o in range(10)})
    live = generation(pipeline, topic_id=kafka.topic(TOPIC).id, start={0: 0}, handoff={0: 10})
    broker = kafka.uncommitted() if pipeline is READ_UNCOMMITTED else kafka
    return make_plan(asked, pipeline, CODE, World(broker, mirror, FakeLifecycle(live), 1 << 40), NOW)


def test_a_plan_ends_at_what_can_be_read_and_says_what_was_written(kafka):
    made = planned(kafka, request())
    assert (made.end, made.warnings) == ({0: 10}, (TOLD,))


def test_a_plan_of_what_reads_uncommitted_records_is_held_back_by_nothing(kafka):
    made = planned(kafka, request(), READ_UNCOMMITTED)
    assert made.end == {0: 115}
    assert TOLD not in made.warnings


def test_a_repair_cannot_end_beyond_what_can_be_read(kafka):
    with pytest.raises(RefusedError) as raised:
        planned(kafka, request(end='{"visits":{"0":11}}'))
    assert raised.value.problem == f"the range ends after Kafka's end (partition 0: 11 after 10; {TOLD})"


def test_what_the_mirror_has_not_read_is_told_of_a_repair_by_time(kafka):
    made = planned(kafka, request(end="2025-09-05T00:00:00Z"))
    left_out = "105 offsets are left out, whatever their time: the mirror has not read partition 0 offset 10-114"
    assert (made.start, made.end, made.warnings) == ({0: 0}, {0: 10}, (TOLD, left_out))


@pytest.fixture
def settings(tmp_path, kafka):
    made = made_installation(tmp_path / "home", REWIND_PIPELINES=str(tmp_path))
    source = kafka.topic(TOPIC).id
    with writing(made.registry_url) as connection:
        for pipeline in (PIPELINE, replace(READ_UNCOMMITTED, name="visits_early", output_topic="visits_early_out")):
            live = generation(pipeline, topic_id=source, start={0: 0}, handoff={0: 0}, state="candidate")
            generations.create(connection, live, None)
            generations.set_first(connection, live.job_id)
            progress.record(connection, live.job_id, 1, Batch(0, {0: 0}, {0: 10}, 10, now()))
        mirror_log.record(connection, TOPIC, Commit(1, source, {0: OffsetRange(0, 10)}, {0: 10}, {}, 1))
    return made


@pytest.mark.shows("truth", p08="readable to 10, written to 115")
def test_status_counts_the_lag_to_what_was_written_and_says_what_holds_it_back(settings, kafka):
    found = status.read(settings, kafka)
    (job,), (early,) = (found.pipeline(name).jobs for name in ("visits_converter", "visits_early"))
    assert (job.lag, job.held, job.note) == (105, {0: OffsetRange(10, 115)}, TOLD)
    assert (early.lag, early.held, early.note) == (105, {}, ""), "it reads what was not committed"
    (mirror,) = found.mirrors
    assert (mirror.lag, mirror.held, mirror.note) == (105, {0: OffsetRange(10, 115)}, TOLD)
    out = io.StringIO()
    Console(file=out, width=200).print(render.page(found))
    assert out.getvalue().count(TOLD) == 2, "of the job, and of the mirror"


def test_the_page_says_it_on_the_card_and_of_the_mirror(settings, kafka):
    found = status.read(settings, kafka)
    card = next(card for card in overview(found)["pipelines"] if card["name"] == "visits_converter")
    assert (card["live"]["note"], card["mirror"]["note"]) == (TOLD, TOLD)
    view = replace(found.pipeline("visits_converter"), problem="")
    live = replace(view.jobs[0], driver=replace(view.jobs[0].driver, state="alive"))
    assert answer(view, live, None) == f"visits_converter-g1 is live; {TOLD}"


def samples(found):
    lines = metrics.exposition(found, Totals()).splitlines()
    return {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in lines if "_offsets{" in line}


def test_metrics_tell_both_ends_apart(settings, kafka):
    found = samples(status.read(settings, kafka))
    labels = 'pipeline="visits_converter",job="visits_converter-g1",state="live"'
    assert found[f"rewind_job_lag_offsets{{{labels}}}"] == "105"
    assert found[f"rewind_job_held_back_offsets{{{labels}}}"] == "105"
    assert found[f"rewind_job_held_back_offsets{{{labels.replace('converter', 'early')}}}"] == "0"
    assert found['rewind_mirror_lag_offsets{topic="visits"}'] == "105"
    assert found['rewind_mirror_held_back_offsets{topic="visits"}'] == "105"
    away = samples(status.read(settings, None))
    assert not [name for name in away if "held_back" in name], "while Kafka is away nothing is known"
