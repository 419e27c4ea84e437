"""What the demo plants, and the independent check that judges what became of it."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime

import pytest

from examples.demo import check, follow, pipelines, producer, proof, visits, world
from examples.demo.world import Names
from rewind.declared import pipelines as declared
from rewind.local.stack import PROJECT
from rewind.registry.verdicts import Verdict

AT = datetime.fromisoformat("2025-09-04T12:00")
SEED, COUNT = visits.SEED, 20_000
RECORDS = list(visits.many(SEED, 0, COUNT))


@dataclass(frozen=True)
class Record:
    """What a Kafka client gives."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: list = field(default_factory=list)


def source(records=RECORDS[:2_000]):
    offsets = Counter()
    made = []
    for planted in records:
        header = (visits.SEQUENCE, str(planted.sequence).encode())
        made.append(
            Record("visits", planted.partition, offsets[planted.partition], planted.key, planted.value, [header])
        )
        offsets[planted.partition] += 1
    return made


def outputs(records, job="g2", topic_id="id"):
    """Return the output and dead letters that a right pipeline writes, from what was planted alone."""
    output, dead = [], []
    for record in records:
        planted = visits.planted(SEED, int(dict(record.headers)[visits.SEQUENCE]))
        place = f"{topic_id}:{record.partition}:{record.offset}".encode()
        headers = [("rewind-job", job.encode()), ("rewind-token", b"1"), ("rewind-source", place)]
        if planted.kind in visits.BAD:
            dead.append(replace(record, topic="dead", headers=[*headers, ("rewind-reason", b"bad")]))
            continue
        value = None if planted.event is None else converted(planted.event)
        output.append(replace(record, topic="out", value=value, headers=headers))
    return output, dead


def converted(event):
    time = f"{event.time:%Y-%m-%dT%H:%M:%S}.{event.time.microsecond // 1000:03d}+02:00"
    page = json.dumps(event.page, ensure_ascii=False)
    head = f'{{"event_identifier":"{event.id}","visit_identifier":{event.visit_id}'
    return f'{head},"event_time":"{time}","visited_page":{page}}}'.encode()


def findings(output, dead, records=None):
    records = source() if records is None else records
    expected = check.expectations(records, "Europe/Paris", {})
    return check.compare(expected, "id", "g2", output, dead)


def test_a_record_is_a_function_of_seed_and_number():
    assert visits.planted(SEED, 1_234) == RECORDS[1_234]
    assert visits.planted(SEED + 1, 1_234) != RECORDS[1_234]


def test_the_first_records_are_these():
    first = visits.planted(SEED, 0)
    assert (first.sequence, first.kind) == (0, "good")
    assert json.loads(first.value)["event_id"] == "visit-0"


def test_every_kind_is_planted_in_about_its_share():
    kinds = Counter(record.kind for record in RECORDS)
    assert set(kinds) == {visits.GOOD, visits.REPEAT, visits.TOMBSTONE, *visits.BAD}
    for kind in visits.BAD:
        assert 50 < kinds[kind] < 160
    assert 120 < kinds[visits.TOMBSTONE] < 290
    assert 500 < kinds[visits.REPEAT] < 700


def test_a_repeat_is_the_same_event_at_another_offset():
    repeats = [record for record in RECORDS if record.kind == visits.REPEAT]
    by_number = {record.event.number: record for record in RECORDS if record.kind == visits.GOOD}
    for repeat in repeats:
        first = by_number[repeat.event.number]
        assert (first.key, first.value, first.partition) == (repeat.key, repeat.value, repeat.partition)
        assert first.sequence != repeat.sequence


def test_a_key_has_one_partition_and_tombstones_have_keys():
    partitions = {}
    for record in RECORDS:
        if record.key is not None:
            assert partitions.setdefault(record.key, record.partition) == record.partition
    assert all(record.key for record in RECORDS if record.kind == visits.TOMBSTONE)
    assert set(partitions.values()) == {0, 1, 2}
    assert 200 < sum(record.key is None for record in RECORDS) < 600


def test_event_times_are_out_of_order_and_some_ids_are_beyond_doubles():
    events = [record.event for record in RECORDS if record.kind == visits.GOOD]
    assert sum(later.time < earlier.time for earlier, later in itertools.pairwise(events)) > 1_000
    big = [event.visit_id for event in events if event.visit_id > 2**53]
    assert len(big) > 1_000
    assert any(int(float(number)) != number for number in big)


@pytest.mark.parametrize("kind", visits.BAD)
def test_each_bad_kind_is_bad_in_its_own_way(kind):
    value = next(record for record in RECORDS if record.kind == kind).value
    if kind == visits.EMPTY:
        assert value == b""
    elif kind == visits.NOT_UTF8:
        with pytest.raises(UnicodeDecodeError):
            value.decode()
        assert json.loads(value.decode(errors="replace"))["event_id"].startswith("visit-")
    elif kind in (visits.NOT_JSON, visits.TRUNCATED):
        with pytest.raises(ValueError, match=r"Expecting|Unterminated"):
            json.loads(value)
    elif kind == visits.WRONG_TYPE:
        assert json.loads(value)["visit_id"] == "a-word"
    else:
        assert "event_id" not in json.loads(value)


def test_the_check_takes_each_record_for_what_was_planted():
    expected = check.expectations(source(RECORDS), "Europe/Paris", {})
    numbers = check.planted_numbers(source(RECORDS), visits.SEQUENCE)
    for place, want in expected.items():
        kind = RECORDS[numbers[place]].kind
        assert want.dead == (kind in visits.BAD)
        assert (want.value is None) == (kind == visits.TOMBSTONE)


def test_a_right_output_is_clean():
    records = source()
    found = findings(*outputs(records))
    assert found.clean
    kinds = Counter(record.kind for record in RECORDS[:2_000])
    assert found.bad == sum(kinds[kind] for kind in visits.BAD)
    assert found.tombstones == kinds[visits.TOMBSTONE]
    assert (found.records, found.good) == (2_000, kinds[visits.GOOD] + kinds[visits.REPEAT])


def fault_of(output, dead):
    found = findings(output, dead)
    return {kind: number for kind, number in found.counts.items() if number}


def test_each_fault_is_found_and_counted():
    output, dead = outputs(source())
    value = next(i for i, record in enumerate(output) if record.value)
    wrong = replace(output[value], value=output[value].value.replace(b'"visit-', b'"VISIT-'))
    assert fault_of(output[1:], dead) == {"missing": 1}
    assert fault_of(output, dead[1:]) == {"missing": 1}
    assert fault_of([*output[:value], wrong, *output[value + 1 :]], dead) == {"changed": 1}
    assert fault_of([*output, wrong], dead) == {"repeated_differently": 1}
    assert fault_of([*output, dead[0]], dead[1:]) == {"misplaced": 1}
    assert fault_of([*output, replace(output[0], headers=[])], dead) == {"unmarked": 1}


def test_a_record_of_no_source_record_is_extra():
    output, dead = outputs(source())
    headers = [("rewind-job", b"g2"), ("rewind-source", b"id:0:999999")]
    assert fault_of([*output, replace(output[0], key=None, headers=headers)], dead) == {"extra": 1}


def test_a_dead_letter_without_reason_is_unmarked():
    output, dead = outputs(source())
    assert fault_of(output, [replace(dead[0], headers=dead[0].headers[:-1]), *dead[1:]]) == {"unmarked": 1}


def test_marks_of_another_job_or_topic_are_found():
    output, dead = outputs(source())
    others, _ = outputs(source(), job="g1")
    assert fault_of([others[0], *output[1:]], dead) == {"unmarked": 1, "missing": 1}
    others, _ = outputs(source(), topic_id="other")
    assert fault_of([others[0], *output[1:]], dead) == {"unmarked": 1, "missing": 1}


def test_exact_repeats_are_allowed_wherever_they_come():
    output, dead = outputs(source())
    found = findings([*output, *output[:50]], [*dead, dead[0]])
    assert found.clean
    assert found.repeats == 51


def test_records_of_a_key_that_overtake_each_other_are_found():
    output, dead = outputs(source())
    keys = Counter(record.key for record in output if record.key)
    key = keys.most_common(1)[0][0]
    first, second = [i for i, record in enumerate(output) if record.key == key][:2]
    output[first], output[second] = output[second], output[first]
    found = findings(output, dead)
    assert found.counts["out_of_order"] >= 1
    assert sum(found.counts.values()) == found.counts["out_of_order"]


def test_what_lies_before_the_start_is_not_expected():
    records = source()
    expected = check.expectations(records, "Europe/Paris", {0: 100, 1: 0, 2: 0})
    assert len(expected) == len(records) - 100
    assert (0, 99) not in expected


def test_a_missing_value_of_the_time_zone_shows():
    planted = next(record for record in RECORDS if record.kind == visits.GOOD)
    want = check.wanted(planted.key, planted.value, check.ZoneInfo("UTC"))
    assert b"+00:00" in want.value
    assert b"+02:00" in check.wanted(planted.key, planted.value, check.ZoneInfo("Europe/Paris")).value


def verdict(**counts):
    return Verdict(1, 1, "pass", {0: 0, 1: 0, 2: 0}, {0: 300, 1: 200, 2: 0}, counts, [], "", AT)


def test_expected_changes_are_counted_in_the_horizon_alone():
    records = source()
    numbers = check.planted_numbers(records, visits.SEQUENCE)
    wanted = 0
    for record in records:
        planted = visits.planted(SEED, int(dict(record.headers)[visits.SEQUENCE]))
        inside = record.offset < {0: 300, 1: 200, 2: 0}[record.partition]
        wanted += inside and planted.event is not None and planted.event.number % 100 < 7
    assert proof.touched_within(numbers, SEED, verdict()) == wanted
    assert 20 < wanted < 50


def test_the_share_of_touched_records_is_seven_percent():
    events = [record.event for record in RECORDS if record.event is not None]
    assert 0.065 < sum(visits.touched(event.number) for event in events) / len(events) < 0.075
    assert sum(visits.touched(number) for number in range(100)) == 7
    assert all(page != page.lower() for page in visits.PAGES)


def test_faults_of_a_verdict():
    sums = {"rows": 9, "equal": 5, "expected": 4, "dead_letters": 2}
    assert proof.faults(verdict(**sums, missing=0, open=7, repeated=3), 4) == []
    assert proof.faults(verdict(**sums, missing=1, repeated_differently=2), 4) == [
        "missing is 1",
        "repeated_differently is 2",
    ]
    assert proof.faults(verdict(**sums), 5) == ["expected is 4, planted were 5"]


def test_the_copy_has_the_bug_and_declares_how_its_mending_may_show(tmp_path):
    original = PROJECT / "include" / "pipelines"
    pipelines.copy_with_bug(original, tmp_path / "own", "visits_converter_2", "visits_2", "visits_converted_2")
    copied = declared.load(tmp_path / "own", "visits_converter_2")
    assert (copied.source_topic, copied.output_topic) == ("visits_2", "visits_converted_2")
    assert [(change.column, change.rule) for change in copied.expected] == [("visited_page", pipelines.RULE)]
    logic = tmp_path / "own" / "visits_converter_2" / "logic.py"
    assert 'F.lower("page")' in logic.read_text()
    compile(logic.read_text(), "logic.py", "exec")
    pipelines.install_mended(original, tmp_path / "own", "visits_converter_2")
    assert logic.read_text() == (original / "visits_converter" / "logic.py").read_text()


def test_a_logic_that_the_bug_is_not_made_for_is_refused():
    with pytest.raises(ValueError, match="not exactly one"):
        pipelines.with_bug("def transform(visits): return visits")


def test_a_second_demo_takes_other_names():
    assert world.free_names(set(), set()) == Names("visits_converter", "visits", "visits_converted")
    second = Names("visits_converter_2", "visits_2", "visits_converted_2")
    assert world.free_names({"visits_converter"}, set()) == second
    assert world.free_names(set(), {"visits"}) == second
    assert world.free_names(set(), {"visits_converted-g1-dead"}) == second
    assert world.free_names({"visits_converter"}, {"visits_2"}).topic == "visits_3"


def test_the_task_of_a_question_is_found_in_either_form():
    assert follow.task_of({"task_instance": {"task_id": "approve"}}) == "approve"
    assert follow.task_of({"task_id": "approve"}) == "approve"


class FakeClient:
    def __init__(self):
        self.sent = []

    def send(self, topic, value, key, headers, partition):
        self.sent.append((topic, key, value, partition, headers))
        return self

    def add_errback(self, function):
        return self

    def flush(self):
        return None


def test_the_producer_sends_the_history_in_order_and_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(producer.signal, "signal", lambda *_: None)
    client, state = FakeClient(), tmp_path / "state.json"
    made = producer.Producer(client, "visits", state, producer.Progress(SEED, 0, 30, None, 650, None, False))
    made._on_signal()
    made.run()
    assert [sent[1:4] for sent in client.sent] == [(r.key, r.value, r.partition) for r in RECORDS[:30]]
    assert [int(sent[4][0][1]) for sent in client.sent] == list(range(30))
    said = producer.read(state)
    assert (said.stored, said.ended, said.slowest) == (30, True, None)


def test_a_record_that_was_not_stored_ends_the_producer(tmp_path, monkeypatch):
    monkeypatch.setattr(producer.signal, "signal", lambda *_: None)
    made = producer.Producer(
        FakeClient(), "visits", tmp_path / "s.json", producer.Progress(SEED, 0, 5, None, 1, None, False)
    )
    made._on_error(RuntimeError("not stored"))
    with pytest.raises(RuntimeError, match="not stored"):
        made.run()
    assert producer.read(tmp_path / "s.json") is None
