"""Coordinates, times, lifecycle moves, crash points, settings and errors."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rewind.core import coordinates, crash, errors, lifecycle, pipeline, times
from rewind.core.coordinates import Coordinate
from rewind.core.errors import RefusedError
from rewind.core.horizon import horizon
from rewind.core.offsets import OffsetRange
from rewind.core.settings import from_environment
from tests.support.fakes import PIPELINE

# --- coordinates


def test_a_coordinate_has_its_row_only_where_a_record_gave_several():
    assert str(Coordinate("t-_A", 3, 1_000_000)) == "t-_A:3:1000000"
    assert str(Coordinate("t-_A", 3, 7, 2)) == "t-_A:3:7:2"


@given(st.text("abcXYZ09-_", min_size=22, max_size=22), st.integers(0), st.integers(0), st.integers(0))
def test_a_coordinate_is_read_as_it_was_written(topic_id, partition, offset, row):
    written = Coordinate(topic_id, partition, offset, row)
    assert coordinates.parse(str(written)) == written


@pytest.mark.parametrize("text", ["", "t:1", "t:1:2:3:4", "t:x:2", "t:1:y", "t:1:2:z"])
def test_other_text_is_no_coordinate(text):
    with pytest.raises(ValueError, match=r".+"):
        coordinates.parse(text)


def test_the_headers_readers_rely_on():
    assert (coordinates.JOB, coordinates.TOKEN, coordinates.SOURCE, coordinates.REPAIR) == (
        "rewind-job",
        "rewind-token",
        "rewind-source",
        "rewind-repair",
    )


# --- times


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2025-09-04T07:00:00Z", datetime(2025, 9, 4, 7, tzinfo=UTC)),
        ("2025-09-04T07:00:00+02:00", datetime(2025, 9, 4, 5, tzinfo=UTC)),
        ("2025-10-26T02:30:00+01:00", datetime(2025, 10, 26, 1, 30, tzinfo=UTC)),
        ("2025-10-26T02:30:00+02:00", datetime(2025, 10, 26, 0, 30, tzinfo=UTC)),
    ],
)
def test_an_instant_is_read_as_utc(text, instant):
    assert times.parse_instant(text, "from") == instant
    assert times.parse_instant(text, "from").tzinfo is UTC


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("2025-02-30T00:00:00Z", "is not an ISO-8601 timestamp"),
        ("2025-09-04T25:00:00Z", "is not an ISO-8601 timestamp"),
        ("yesterday", "is not an ISO-8601 timestamp"),
        ("2025-09-04T07:00:00", "has no time zone"),
        ("2025-09-04", "has no time zone"),
        ("0001-01-01T00:00:00+14:00", "is not a date of the calendar"),
    ],
)
def test_an_instant_that_does_not_exist_or_is_two_is_refused(text, why):
    with pytest.raises(RefusedError) as raised:
        times.parse_instant(text, "to")

    assert (raised.value.field, why in raised.value.problem) == ("to", True)
    assert "2025-09-04T07:00:00Z" in raised.value.cure


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("P9D", timedelta(days=9)),
        ("PT1H", timedelta(hours=1)),
        ("PT90S", timedelta(seconds=90)),
        ("P1DT12H", timedelta(hours=36)),
        ("PT1H2M3S", timedelta(seconds=3723)),
        ("PT0S", timedelta(0)),
        ("P36525D", timedelta(days=36_525)),
    ],
)
def test_a_duration_is_read(text, length):
    assert times.parse_duration(text, "grace") == length


@pytest.mark.parametrize(
    "text", ["", "P", "PT", "P1DT", "9D", "P9", "P1M", "P1W", "P-1D", "PT1.5S", "1h", "p9d", "P9D "]
)
def test_another_form_is_no_duration(text):
    with pytest.raises(RefusedError) as raised:
        times.parse_duration(text, "grace")

    assert (raised.value.field, raised.value.problem) == ("grace", f"{text!r} is not an ISO-8601 duration")


@pytest.mark.parametrize("text", ["P36526D", "PT3155760001S", "P999999999999D", "PT" + "9" * 30 + "S"])
def test_a_duration_of_more_than_a_century_is_refused(text):
    with pytest.raises(RefusedError, match="longer than a century"):
        times.parse_duration(text, "grace")


def test_an_instant_is_written_in_utc_with_milliseconds():
    zoned = datetime.fromisoformat("2025-09-04T07:00:00.123456+02:00")
    assert times.format_instant(zoned) == "2025-09-04T05:00:00.123Z"


# --- horizon: case C12


def test_the_horizon_ends_at_the_lower_position():
    assert horizon({0: 0}, {0: 0}, {}, {0: 100}, {0: 120}) == {0: OffsetRange(0, 100)}
    assert horizon({0: 0}, {0: 0}, {}, {0: 120}, {0: 100}) == {0: OffsetRange(0, 100)}


def test_the_horizon_begins_at_the_highest_of_the_starts():
    assert horizon({0: 30}, {0: 10}, {0: 20}, {0: 90}, {0: 95}) == {0: OffsetRange(30, 90)}
    assert horizon({0: 10}, {0: 30}, {0: 20}, {0: 90}, {0: 95}) == {0: OffsetRange(30, 90)}
    assert horizon({0: 10}, {0: 20}, {0: 30}, {0: 90}, {0: 95}) == {0: OffsetRange(30, 90)}


def test_a_partition_that_one_side_does_not_know_is_not_compared():
    assert horizon({0: 0, 1: 0}, {0: 0}, {}, {0: 9, 1: 9}, {0: 9}) == {0: OffsetRange(0, 9)}


vectors = st.dictionaries(st.integers(0, 3), st.integers(0, 50))


@given(vectors, vectors, vectors, vectors, vectors)
def test_the_horizon_holds_only_what_both_outputs_must_hold(start, live_start, whole, candidate, live):
    found = horizon(start, live_start, whole, candidate, live)

    assert found.keys() == candidate.keys() & live.keys()
    for p, part in found.items():
        for offset in range(51):
            in_both = max(start.get(p, 0), live_start.get(p, 0)) <= offset < min(candidate[p], live[p])
            assert (part.start <= offset < part.end) == (in_both and offset >= whole.get(p, 0))


# --- lifecycle

ALLOWED = {
    "candidate": {"live", "aborted"},
    # Never retired: the pointer names it.
    "live": {"standby"},
    "standby": {"live", "retired"},
    "retired": {"collected"},
    "aborted": {"collected"},
    "staging": {"merged", "aborted"},
    "merged": {"collected"},
    "collected": set(),
}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(ALLOWED, ALLOWED)))
def test_a_generation_moves_only_as_the_lifecycle_allows(old, new):
    if new in ALLOWED[old]:
        lifecycle.check_move("visits-g1", old, new)
        return
    with pytest.raises(RefusedError, match=f"visits-g1 is {old} and cannot become {new}"):
        lifecycle.check_move("visits-g1", old, new)


# --- crash points

RUN = """
from pathlib import Path
import sys
from rewind.core.crash import side_effect
with side_effect("step"):
    Path(sys.argv[1]).write_text("done")
print("survived")
"""


@pytest.mark.parametrize(
    ("point", "code", "happened"),
    [("before:step", -signal.SIGKILL, False), ("after:step", -signal.SIGKILL, True), ("before:other", 0, True)],
)
def test_a_process_really_ends_at_its_crash_point(tmp_path, project, point, code, happened):
    mark = tmp_path / "mark"
    environment = {"PYTHONPATH": str(project / "include"), crash.VARIABLE: point}
    ended = subprocess.run([sys.executable, "-c", RUN, str(mark)], env=environment, capture_output=True, check=False)

    assert (ended.returncode, mark.exists(), b"survived" in ended.stdout) == (code, happened, code == 0)


def test_a_side_effect_that_fails_has_not_happened(monkeypatch):
    monkeypatch.setenv(crash.VARIABLE, "after:step")

    with pytest.raises(ValueError, match="no"), crash.side_effect("step"):
        raise ValueError("no")


# --- settings

LEAST = {"REWIND_HOME": "/srv/project/.rewind", "REWIND_KAFKA_BOOTSTRAP": "k1:9092,k2:9092"}


def test_two_variables_are_enough():
    made = from_environment(LEAST)

    assert made.data == Path("/srv/project/.rewind/data")
    assert made.registry_url == "sqlite:////srv/project/.rewind/registry.db"
    assert (made.pipelines, made.jobs) == (Path("/srv/project/include/pipelines"), Path("/srv/project/jobs"))
    assert made.jars == Path("/srv/project/.rewind/jars")
    assert (made.spark_master, made.driver_memory, made.kafka_options_file) == ("local[2]", "1g", None)
    assert made.mirrors == Path("/srv/project/.rewind/data/mirror")
    assert made.generations == Path("/srv/project/.rewind/data/generations")


@pytest.mark.parametrize("key", LEAST)
@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_variable_is_named_with_its_cure(key, value):
    with pytest.raises(RefusedError) as raised:
        from_environment({**LEAST, key: value} if value is not None else {k: v for k, v in LEAST.items() if k != key})

    assert (raised.value.field, raised.value.problem) == (key, "is not set")
    assert "make up" in raised.value.cure


@pytest.mark.parametrize("place", ["s3a://bucket/data", "file:///data", "hdfs://name/data"])
@pytest.mark.parametrize("key", ["REWIND_HOME", "REWIND_DATA", "REWIND_PIPELINES", "REWIND_JOBS", "REWIND_JARS"])
def test_f23_a_folder_with_a_scheme_is_refused(key, place):
    with pytest.raises(RefusedError, match=f"^{key}: {place} is no folder. Name a folder that all hosts have"):
        from_environment({**LEAST, key: place})


def test_settings_come_back_from_the_environment_they_give():
    chosen = {
        "REWIND_DATA": "/data",
        "REWIND_REGISTRY_URL": "postgresql://u:p@db/rewind",
        "REWIND_KAFKA_OPTIONS_FILE": "/etc/options.json",
        "REWIND_PIPELINES": "/p",
        "REWIND_JOBS": "/j",
        "REWIND_JARS": "/jars",
        "REWIND_SPARK_MASTER": "yarn",
        "REWIND_DRIVER_MEMORY": "2g",
    }
    made = from_environment(LEAST | chosen)

    assert made.environment() == LEAST | chosen
    assert from_environment(made.environment()) == made
    assert from_environment(from_environment(LEAST).environment()) == from_environment(LEAST)


# --- errors

CODES = {
    "RewindError": 1,
    "RefusedError": 64,
    "DeniedError": 64,
    "WorldMovedError": 65,
    "IntegrityError": 70,
    "QuarantineError": 71,
    "LeaseHeldError": 73,
    "LeaseLostError": 74,
    "RetryError": 75,
}


def test_each_reaction_has_an_exit_code_of_its_own():
    found = {
        n: e.exit_code for n, e in vars(errors).items() if isinstance(e, type) and issubclass(e, errors.RewindError)
    }

    assert found == CODES
    # A right that the broker denies is a refusal too.
    assert len(set(CODES.values())) == len(CODES) - 1


def test_a_refusal_says_field_problem_and_cure():
    error = RefusedError("from", "is not a position", "Write earliest")

    assert (error.field, error.problem, error.cure) == ("from", "is not a position", "Write earliest")
    assert str(error) == "from: is not a position. Write earliest"


def test_a_moved_world_is_a_refusal_too():
    assert issubclass(errors.WorldMovedError, RefusedError)


# --- pipeline


def test_a_setting_of_a_newer_release_is_named():
    newer = {**PIPELINE.frozen(), "surprise": 1}
    with pytest.raises(RefusedError, match="holds surprise, which this release does not know"):
        pipeline.Pipeline.from_frozen(newer)


def test_a_frozen_pipeline_is_the_same_after_json_and_comes_back_as_itself():
    changed = pipeline.Pipeline(
        **{**vars(PIPELINE), "required": ("a",), "expected": (pipeline.ExpectedChange("page", "live.page is null"),)}
    )
    assert json.loads(json.dumps(changed.frozen())) == changed.frozen()
    assert pipeline.Pipeline.from_frozen(changed.frozen()) == changed
