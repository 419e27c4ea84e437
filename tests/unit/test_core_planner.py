"""What a plan says, and all that it refuses before anything is done."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from rewind.core.errors import RefusedError, WorldMovedError
from rewind.core.offsets import OffsetRange
from rewind.core.pipeline import ExpectedChange
from rewind.core.planning.differences import Difference
from rewind.core.planning.plan import from_json
from rewind.core.planning.planner import Code, make_plan, still_holds
from rewind.core.planning.resolved_range import unexplained
from tests.support.fakes import CODE, PIPELINE, TOPIC, TOPIC_ID, FakeLifecycle, generation, mirror, topic, world
from tests.support.plans import NOW, request

SAME = Code("b1", CODE.live_files, CODE.live_files, "e STRING")


def planned(asked=None, seen=None, *, pipeline=PIPELINE, code=CODE):
    return make_plan(asked or request(), pipeline, code, seen or world(), NOW)


def refusal(asked=None, seen=None, *, pipeline=PIPELINE, code=CODE):
    with pytest.raises(RefusedError) as raised:
        planned(asked, seen, pipeline=pipeline, code=code)
    return raised.value


# --- what is planned


def test_a_plan_whose_names_were_taken_meanwhile_is_refused():
    made = planned()
    with pytest.raises(RefusedError, match=f"output.topic: {made.output_topic} exists already"):
        still_holds(made, PIPELINE, CODE, world(others=[made.output_topic]))
    seen = world()
    seen.broker.commit(made.job_id, "visits", {0: 5})
    with pytest.raises(RefusedError, match=f"the consumer group {made.job_id} exists already"):
        still_holds(made, PIPELINE, CODE, seen)


def test_a_rewind_from_the_earliest_record():
    made = planned()

    assert (made.kind, made.job_id, made.live_job_id, made.epoch) == (
        "rewind",
        "visits_converter-g2",
        "visits_converter-g1",
        1,
    )
    assert (made.topic, made.topic_id, made.mirror_version) == ("visits", TOPIC_ID, 7)
    assert (made.start, made.end) == ({0: 0, 1: 0}, {0: 100, 1: 60})
    assert (made.records, made.bytes, made.chunks, made.estimate_seconds) == (160, 16_000, 1, 0.0)
    assert made.differences == (Difference("logic.py", "l1", "l2"),)
    assert (made.output_topic, made.dead_letter_topic) == ("visits_converted-g2", "visits_converted-g2-dead")
    assert (made.config, made.bundle, made.output_schema) == (PIPELINE.frozen(), "b2", "e STRING")
    assert (made.accepted_gaps, made.warnings) == ({}, ())
    assert made.id


def test_records_are_estimated_over_the_whole_range_and_chunked():
    seen = world(topic({0: 0}, {0: 1_000_001}), mirror({0: (0, 500_000)}), FakeLifecycle(generation(start={0: 0})))
    made = planned(seen=seen)

    assert (made.records, made.bytes, made.chunks, made.estimate_seconds) == (1_000_001, 100_000_100, 3, 100.0)


INSTANT = datetime(2025, 9, 9, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", {0: 10, 1: 20}),
        ("live", {0: 95, 1: 55}),
        ("shift-by:-30", {0: 65, 1: 25}),
        ("shift-by:-40", {0: 55, 1: 20}),
        ("shift-by:100", {0: 100, 1: 60}),
        ("P1D", {0: 44, 1: 60}),
        ("2025-09-09T12:00:00Z", {0: 44, 1: 60}),
        ('{"visits":{"0":50,"1":60}}', {0: 50, 1: 60}),
        ('{"visits":{"0":-2,"1":-1}}', {0: 10, 1: 60}),
    ],
)
def test_the_asked_start_is_resolved_for_each_partition(text, start):
    seen = world(topic({0: 30, 1: 30}, {0: 100, 1: 60}), mirror({0: (10, 100), 1: (20, 60)}))
    seen.mirror.timestamps[TOPIC, TOPIC_ID] = {(0, 44): INSTANT}

    assert planned(request(text), seen).start == start


def test_live_is_a_release_without_history_that_needs_no_mirror():
    seen = world()
    seen.mirror.states.clear()
    made = planned(request("live"), seen)

    assert (made.kind, made.start, made.mirror_version, made.records, made.bytes) == (
        "release",
        {0: 95, 1: 55},
        -1,
        10,
        0,
    )


def test_an_end_makes_a_repair_that_needs_no_difference():
    made = planned(request('{"visits":{"0":10,"1":0}}', '{"visits":{"0":30,"1":0}}'), code=SAME)

    assert (made.kind, made.job_id, made.output_topic) == ("repair", "visits_converter-r1", "visits_converted-r1")
    assert (made.start, made.end, made.records) == ({0: 10, 1: 0}, {0: 30, 1: 0}, 20)


def test_same_code_goes_on_although_nothing_differs():
    assert planned(request(same_code=True), code=SAME).differences == ()


def test_what_differs_is_every_setting_and_every_file():
    changed = replace(PIPELINE, session_time_zone="Europe/Paris", required=("event_id",))
    code = Code("b2", {"a.py": "1" * 20, "new.py": "2"}, {"a.py": "3" * 20, "old.py": "4"}, "e STRING")

    assert planned(pipeline=changed, code=code).differences == (
        Difference("required", "[]", "['event_id']"),
        Difference("session_time_zone", "UTC", "Europe/Paris"),
        Difference("a.py", "3" * 12, "1" * 12),
        Difference("new.py", "", "2"),
        Difference("old.py", "4", ""),
    )


# --- what is refused


def test_a_repair_of_a_pipeline_with_state_by_offsets():
    error = refusal(request(end='{"visits":{"0":50,"1":50}}'), pipeline=replace(PIPELINE, stateful=True))
    assert (error.field, "is not a timestamp" in error.problem) == ("from", True)


def test_a_pipeline_without_live_generation():
    error = refusal(seen=world(lifecycle=FakeLifecycle(None)))
    assert (error.field, error.problem) == ("pipeline", "visits_converter has no live generation")
    assert "deploy_visits_converter" in error.cure


def test_a_second_rewind():
    error = refusal(seen=world(lifecycle=FakeLifecycle(generation(), active="rw-1")))
    assert (error.field, error.problem) == ("pipeline", "rewind rw-1 of visits_converter is active")


def test_a_topic_that_is_not_there():
    seen = world()
    del seen.broker.described["visits"]
    assert refusal(seen=seen).problem == "'visits' is not on the broker"


@pytest.mark.parametrize("text", ["earliest", "shift-by:-1", "P1D", '{"visits":{"0":0,"1":0}}'])
def test_history_without_a_mirror(text):
    seen = world()
    seen.mirror.states.clear()
    error = refusal(request(text), seen)
    assert (error.field, error.problem) == ("from", "'visits' has no mirror")
    assert "mirror_visits" in error.cure


@pytest.mark.parametrize(
    ("start", "field", "problem"),
    [
        ("abc", "from", "'abc' is not a position"),
        ("2025-02-30T00:00:00Z", "from", "is not an ISO-8601 timestamp"),
        ("2025-09-10T12:00:01Z", "from", "lies in the future"),
        ('{"visits":{"0":101,"1":0}}', "from", "partition 0: from 101 to 100"),
        ('{"visits":{"0":0,"1":61}}', "from", "partition 1: from 61 to 60"),
    ],
)
def test_a_bad_start(start, field, problem):
    error = refusal(request(start))
    assert (error.field, problem in error.problem) == (field, True)


def test_an_instant_that_is_now_has_passed():
    assert planned(request("2025-09-10T12:00:00Z")).start == {0: 100, 1: 60}


@pytest.mark.parametrize(
    ("start", "end", "problem"),
    [
        (
            '{"visits":{"0":9,"1":0}}',
            '{"visits":{"0":8,"1":5}}',
            "inverted or beyond the end (partition 0: from 9 to 8)",
        ),
        ("earliest", '{"visits":{"0":101,"1":60}}', "ends after Kafka's end (partition 0: 101 after 100)"),
        ('{"visits":{"0":9,"1":5}}', '{"visits":{"0":9,"1":5}}', "the range is empty"),
        ("earliest", "xyz", "'xyz' is not a position"),
        ("earliest", '{"visits":{"0":5}}', "partitions [1] are missing"),
    ],
)
def test_a_bad_end_names_the_field_to(start, end, problem):
    error = refusal(request(start, end))
    assert (error.field, problem in error.problem) == ("to", True)


def test_a_start_before_the_mirror():
    error = refusal(request('{"visits":{"0":9,"1":0}}'), world(state=mirror({0: (10, 100), 1: (0, 60)})))
    assert (error.field, error.problem) == ("from", "the mirror begins later (partition 0: 9 before 10)")


@pytest.mark.parametrize("there", [["visits_converted-g2"], ["visits_converted-g2-dead"]])
def test_an_output_that_exists(there):
    error = refusal(seen=world(others=there))
    assert (error.field, error.problem) == ("output.topic", f"{there[0]} exists already")


@pytest.mark.parametrize("there", ["visits.converted-g2", "visits_converted.g2-dead", "visits.converter-g2"])
def test_a_name_that_kafka_folds_onto_another(there):
    if there == "visits_converted.g2-dead":
        assert planned(seen=world(others=[there])).output_topic == "visits_converted-g2"
        return
    error = refusal(seen=world(others=[there]))
    assert (error.field, f"collides with '{there}'" in error.problem) == ("pipeline", True)


@pytest.mark.parametrize("base", ["visits v2", "../live", "v" * 240 + "1234567890"])
def test_a_derived_name_that_is_illegal(base):
    error = refusal(pipeline=replace(PIPELINE, output_topic=base))
    assert error.field == "pipeline"
    assert base[:40] in error.problem


@pytest.mark.parametrize("start", ["earliest", "live"])
def test_nothing_that_differs(start):
    error = refusal(request(start), code=SAME)
    assert (error.field, error.problem) == ("same_code", "nothing differs from visits_converter-g1")


def test_no_pass_by_itself_where_the_pipeline_asks_for_a_second_person():
    error = refusal(request(auto_approve=True), pipeline=replace(PIPELINE, four_eyes=True))
    assert (error.field, error.cure) == ("auto_approve", "Leave it out, and let another person approve")
    assert planned(request(), pipeline=replace(PIPELINE, four_eyes=True)).config["four_eyes"] is True
    assert planned(request(auto_approve=True)).request.auto_approve


# --- case C04: the topic was deleted and made anew under a live checkpoint


@pytest.mark.parametrize("latest", [300, 700], ids=["a: regrown below", "b: regrown beyond the stored offset"])
def test_a_recreated_topic_stops_every_plan(latest):
    lifecycle = FakeLifecycle(generation(start={0: 0}, handoff={0: 500}))
    seen = world(topic({0: 0}, {0: latest}, "newTopicId"), mirror({0: (0, 500)}), lifecycle)

    for asked in (request(), request("live"), request("shift-by:-1"), request("earliest", "live")):
        error = refusal(asked, seen)
        assert error.field == "source.topic"
        assert f"(id {TOPIC_ID}, now newTopicId)" in error.problem
        assert f"partition 0: stored 500, earliest 0, latest {latest}" in error.problem
        assert "Deploy a new generation" in error.cure


def test_the_mirror_of_the_old_topic_is_no_mirror_of_the_new_one():
    seen = world(
        topic({0: 0}, {0: 700}, "newTopicId"),
        mirror({0: (0, 500)}),
        FakeLifecycle(generation(topic_id="newTopicId", start={0: 0}, handoff={0: 10})),
    )
    assert refusal(seen=seen).problem == "'visits' has no mirror"


# --- case C07: gaps of offsets that are not loss

HOLES = {0: [(3, 4), (6, 8), (9, 10)]}


def gappy(legal):
    source = topic({0: 0}, {0: 10})
    state = mirror({0: (0, 10)}, HOLES, legal=legal)
    return world(source, state, FakeLifecycle(generation(start={0: 0}, handoff={0: 10})))


def test_holes_of_compaction_and_transactions_are_complete():
    made = planned(request('{"visits":{"0":0}}'), gappy(legal=True))
    assert (made.records, made.bytes, made.accepted_gaps, made.warnings) == (6, 600, {}, ())


def test_a_range_of_markers_alone_is_complete_with_no_records():
    made = planned(request('{"visits":{"0":6}}', '{"visits":{"0":8}}'), gappy(legal=True))
    assert (made.records, made.chunks, made.start, made.end) == (0, 0, {0: 6}, {0: 8})


def test_holes_of_a_plain_topic_are_listed():
    error = refusal(seen=gappy(legal=False))
    assert (error.field, error.problem) == (
        "accept_gaps",
        "the mirror lacks partition 0 offset 3; partition 0 offset 6-7; partition 0 offset 9",
    )


def test_accepted_gaps_stand_in_the_plan():
    made = planned(request(accept_gaps='{"visits":{"0":[[3,4],[6,8],[9,10]]}}'), gappy(legal=False))

    assert made.accepted_gaps == {0: (OffsetRange(3, 4), OffsetRange(6, 8), OffsetRange(9, 10))}
    assert made.records == 6


def test_a_gap_is_accepted_only_whole():
    error = refusal(request(accept_gaps='{"visits":{"0":[[3,4],[6,7],[9,10]]}}'), gappy(legal=False))
    assert error.problem == "the mirror lacks partition 0 offset 6-7"


def test_what_is_accepted_but_there_does_not_stand_in_the_plan():
    wide = planned(request(accept_gaps='{"visits":{"0":[[0,10]]}}'), gappy(legal=False))
    assert wide.accepted_gaps == {0: (OffsetRange(3, 4), OffsetRange(6, 8), OffsetRange(9, 10))}
    assert planned(request(accept_gaps='{"visits":{"0":[[0,10]]}}'), gappy(legal=True)).accepted_gaps == {}


def test_only_the_gaps_of_the_range_count():
    made = planned(request('{"visits":{"0":4}}', '{"visits":{"0":6}}'), gappy(legal=False))
    assert (made.records, made.accepted_gaps) == (2, {})


@pytest.mark.parametrize(
    "text",
    [
        "3-4",
        "[]",
        '{"carts":{"0":[[3,4]]}}',
        '{"visits":[[3,4]]}',
        '{"visits":{"0":[3,4]}}',
        '{"visits":{"0":[[4,3]]}}',
        '{"visits":{"0":[[3,4,5]]}}',
        '{"visits":{"0":[[3.7,4.2]]}}',
        '{"visits":{"0":[[3,Infinity]]}}',
        '{"visits":{"x":[[3,4]]}}',
    ],
)
def test_accept_gaps_that_cannot_be_read_is_refused_even_where_there_is_no_gap(text):
    error = refusal(request(accept_gaps=text))
    assert (error.field, "names no gaps of 'visits'" in error.problem) == ("accept_gaps", True)


def test_offsets_that_the_mirror_never_read_are_a_gap_whatever_the_topic():
    state = replace(mirror({0: (0, 100)}, legal=True), covered={0: [OffsetRange(0, 40), OffsetRange(50, 100)]})
    assert unexplained(state, 0, OffsetRange(30, 45)) == [OffsetRange(40, 45)]
    assert "partition 0 offset 40-49" in refusal(seen=world(topic({0: 0}, {0: 100}), state)).problem


def test_a_repair_must_be_mirrored_to_its_end_but_a_rewind_need_not():
    behind = mirror({0: (0, 80), 1: (0, 60)})

    assert planned(seen=world(state=behind)).end == {0: 100, 1: 60}
    assert (
        "partition 0 offset 80-99"
        in refusal(request("earliest", '{"visits":{"0":-1,"1":-1}}'), world(state=behind)).problem
    )


# --- cases C15 and C16: partitions


def test_an_added_partition_starts_at_zero_and_is_told():
    seen = world(topic({0: 0, 1: 0, 2: 0}, {0: 100, 1: 60, 2: 5}))
    made = planned(seen=seen)

    assert (made.start, made.end) == ({0: 0, 1: 0, 2: 0}, {0: 100, 1: 60, 2: 5})
    assert made.warnings == (
        "partition 2 was added since visits_converter-g1 began: it starts at 0",
        "partition 2 is not mirrored yet: the candidate reads it from Kafka alone",
    )


@pytest.mark.parametrize("text", ["live", "shift-by:-10"])
def test_a_partition_that_live_never_read_starts_at_its_earliest(text):
    assert (
        planned(request(text), world(topic({0: 0, 1: 0, 2: 3}, {0: 100, 1: 60, 2: 20}))).start[2]
        == {
            "live": 3,
            "shift-by:-10": 0,
        }[text]
    )


@pytest.mark.parametrize(
    ("named", "problem"),
    [
        ('{"0":0}', "partitions [1, 2] are missing"),
        ('{"0":0,"1":0,"2":0,"7":0}', "partitions [7] are unknown"),
        ('{"0":0,"7":0,"8":1}', "partitions [1, 2] are missing; partitions [7, 8] are unknown"),
    ],
)
def test_offsets_must_name_exactly_the_partitions(named, problem):
    seen = world(topic({0: 0, 1: 0, 2: 0}, {0: 100, 1: 60, 2: 5}))
    error = refusal(request(f'{{"visits":{named}}}'), seen)

    assert (error.field, error.problem) == ("from", problem)
    assert error.cure == "Name exactly the partitions [0, 1, 2] of 'visits'"


def test_records_that_kafka_dropped_before_they_were_mirrored_are_told():
    made = planned(seen=world(topic({0: 90, 1: 0}, {0: 100, 1: 60}), mirror({0: (0, 80), 1: (0, 60)})))
    assert made.warnings == ("partition 0: Kafka has dropped records that the mirror has not read",)


TABLE = replace(PIPELINE, output_format="delta")


@pytest.mark.parametrize(("live", "wanted"), [(TABLE, TABLE), (TABLE, PIPELINE), (PIPELINE, TABLE)])
def test_readers_of_a_table_cannot_be_moved_by_the_switch(live, wanted):
    seen = world(lifecycle=FakeLifecycle(generation(live)))
    error = refusal(request(consumer_groups=("shop",)), seen, pipeline=wanted)

    problem = "visits_converter writes to a table, which has no consumer groups"
    assert (error.field, error.problem) == ("consumer_groups", problem)


# --- a plan is applied only while its premises hold


def test_a_stored_plan_holds_while_only_the_ends_move():
    wanted = replace(PIPELINE, required=("event_id",), expected=(ExpectedChange("page"),))
    stored = from_json(planned(pipeline=wanted).to_json())

    still_holds(stored, wanted, CODE, world(topic({0: 0, 1: 0}, {0: 900, 1: 800})))


def test_what_came_to_be_told_since_a_plan_was_made():
    made = planned()
    assert still_holds(made, PIPELINE, CODE, world()) == []
    short = world(topic({0: 0, 1: 0}, {0: 100, 1: 60}, **{"retention.ms": "60000"}))
    (line,) = still_holds(made, PIPELINE, CODE, short)
    assert line.startswith("visits keeps records for 60 s")
    assert still_holds(planned(seen=short), PIPELINE, CODE, short) == [], "it stands in the plan already"


def moved_worlds():
    yield "epoch was 1, is 2", {"seen": world(lifecycle=FakeLifecycle(generation(), epoch=2))}
    live, own = "live_job_id was visits_converter-g1, is {0}-g5", "job_id was visits_converter-g2, is {0}-g6"
    moved = {"seen": world(lifecycle=FakeLifecycle(generation(number=5)))}
    yield f"{live}; {own}".format(PIPELINE.name), moved
    new = FakeLifecycle(generation(topic_id="newTopicId"))
    yield (
        f"topic_id was {TOPIC_ID}, is newTopicId",
        {"seen": world(topic({0: 0, 1: 0}, {0: 9, 1: 9}, "newTopicId"), None, new)},
    )
    yield "partitions was [0, 1], is [0, 1, 2]", {"seen": world(topic({0: 0, 1: 0, 2: 0}, {0: 9, 1: 9, 2: 9}))}
    yield "bundle was b2, is b3", {"code": replace(CODE, bundle="b3")}
    third = FakeLifecycle(generation())
    third.create(generation(number=2, state="aborted"))
    yield "job_id was visits_converter-g2, is visits_converter-g3", {"seen": world(lifecycle=third)}
    yield "the configuration has changed", {"pipeline": replace(PIPELINE, lag_gate=1)}


@pytest.mark.parametrize(
    ("told", "moved"), list(moved_worlds()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_a_plan_is_refused_when_a_premise_moved(told, moved):
    made = planned()

    with pytest.raises(WorldMovedError) as raised:
        still_holds(made, moved.get("pipeline", PIPELINE), moved.get("code", CODE), moved.get("seen", world()))

    assert raised.value.field == "apply_plan"
    assert raised.value.problem == f"the plan is stale, since what it assumes has changed: {told}"
    assert raised.value.cure == "Make a new plan"


def test_a_plan_is_refused_while_another_rewind_is_active_or_the_topic_is_another():
    made = planned()
    with pytest.raises(RefusedError, match="rewind rw-9"):
        still_holds(made, PIPELINE, CODE, world(lifecycle=FakeLifecycle(generation(), active="rw-9")))
    with pytest.raises(RefusedError, match="was recreated"):
        still_holds(made, PIPELINE, CODE, world(topic({0: 0, 1: 0}, {0: 9, 1: 9}, "newTopicId")))


def test_the_estimate_assumes_ten_thousand_records_a_second():
    seen = world(topic({0: 0}, {0: 80_000}), mirror({0: (0, 80_000)}), FakeLifecycle(generation(start={0: 0})))
    assert planned(seen=seen).estimate_seconds == timedelta(seconds=8).total_seconds()


# --- a live job of an older release


def test_a_rewind_of_a_job_that_read_leniently_says_so_and_its_repair_reads_as_it_did():
    config = {name: value for name, value in PIPELINE.frozen().items() if name != "exact"}
    older = generation(frozen={"config": config, "versions": {}})
    seen = world(lifecycle=FakeLifecycle(older))
    made = planned(seen=seen)
    assert Difference("exact", "False", "True") in made.differences
    assert any("was made before values were read exactly" in line for line in made.warnings)
    assert made.config["exact"] is True

    repair = planned(request(end='{"visits":{"0":50,"1":50}}'), seen)
    assert repair.config["exact"] is False
    assert not any("read exactly" in line for line in repair.warnings)
    assert still_holds(repair, PIPELINE, CODE, seen) == []
    assert not any("read exactly" in line for line in planned().warnings)
