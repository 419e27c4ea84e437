"""What users hand in: the form's parameters, and declared pipelines."""

from __future__ import annotations

import re

import pytest
import yaml

from rewind.core.errors import RefusedError
from rewind.core.nearest import meant
from rewind.core.pipeline import ColumnRule, ExpectedChange, Pipeline, RowRule
from rewind.core.planning.plan import Request
from rewind.declared import forms, pipelines
from tests.support.fakes import PIPELINE

# --- the form


def test_an_empty_form_asks_for_a_dry_run_from_the_earliest_record():
    assert forms.parse("visits", {}) == Request("visits", "earliest", observe_seconds=900, grace_seconds=3600)
    assert forms.PARAMETERS["dry_run"]["default"] is True
    assert forms.PARAMETERS["auto_approve"]["default"] is False


def test_every_field_reaches_the_request():
    form = {
        "from": " P9D ",
        "to": ' {"visits":{"0":5}} ',
        "overrides": {"max_offsets": 5},
        "reason": "a bug",
        "accept_gaps": '{"visits":{"0":[[3,4]]}}',
        "same_code": True,
        "auto_approve": True,
        "observe": "PT1M",
        "grace": "P1DT1S",
        "repair_into": "beside",
        "consumer_groups": ["shop"],
        "only_new": "replay",
        "replay_from": " 2025-09-04T07:00:00Z ",
        "on_difference": "roll_back",
        "compare_every": "PT5M",
        "compare": "rows",
        "dry_run": False,
        "apply_plan": "0123456789ab",
    }
    assert form.keys() == forms.PARAMETERS.keys()
    with pytest.raises(RefusedError, match="consumer_groups: are given with a repair"):
        forms.parse("visits", form)
    form["consumer_groups"] = []
    assert forms.parse("visits", form) == Request(
        pipeline="visits",
        start="P9D",
        end='{"visits":{"0":5}}',
        overrides={"max_offsets": 5},
        reason="a bug",
        accept_gaps='{"visits":{"0":[[3,4]]}}',
        same_code=True,
        auto_approve=True,
        observe_seconds=60,
        grace_seconds=86_401,
        repair_into="beside",
        only_new="replay",
        replay_from="2025-09-04T07:00:00Z",
        on_difference="roll_back",
        compare_every_seconds=300,
    )
    assert forms.parse("visits", {"consumer_groups": ["shop"]}).consumer_groups == ("shop",)


@pytest.mark.parametrize(
    "position",
    [
        "earliest",
        "live",
        "shift-by:-5",
        "P9D",
        "PT1H",
        "P1DT12H",
        "2025-09-04T07:00:00Z",
        '{"visits":{"0":1}}',
        "\n live ",
    ],
)
def test_a_position_of_each_form_passes_the_form(position):
    assert forms.parse("visits", {"from": position, "to": position}).start == position.strip()


BAD = [
    *[("from", value) for value in ("abc", "", "latest", "P", "PT", "P1DT", "-P1D", "shift-by:x", "[1]", 5, None)],
    *[("to", value) for value in ("", " ", "abc", "P", 5)],
    *[("observe", value) for value in ("", "15", "PT", "P1W", "PT-1S", 900, None)],
    *[("grace", value) for value in ("", "1h", "P999999999999D", None)],
    *[("apply_plan", value) for value in ("xyz", "0123456789AB", "0123456789a", "../plan", "", 1)],
    *[(name, value) for name in ("same_code", "auto_approve", "dry_run") for value in ("yes", 1, None)],
    *[("repair_into", value) for value in ("", "both", None)],
    *[("on_difference", value) for value in ("", "abort", None)],
    *[("compare", value) for value in ("", "some", True, None)],
    *[("compare_every", value) for value in ("", "5m", "PT29S", 300)],
    *[("reason", value) for value in ("", "\n", 5, "x" * 2_001)],
    *[("accept_gaps", value) for value in ("", [], {}, "x" * 10_001)],
    ("from", "{" + "x" * 10_000 + "}"),
    ("overrides", "max_offsets=5"),
    ("overrides", [1]),
]


@pytest.mark.parametrize(("field", "value"), BAD, ids=[f"{f}={str(v)[:20]}" for f, v in BAD])
def test_a_bad_value_names_its_field(field, value):
    with pytest.raises(RefusedError) as raised:
        forms.parse("visits", {field: value})
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("overrides", "field", "problem"),
    [
        ({"max_offsets": 0}, "overrides.max_offsets", "0 is less than the minimum of 1"),
        ({"max_offsets": "many"}, "overrides.max_offsets", "is not of type 'integer'"),
        ({"trigger_seconds": 0}, "overrides.trigger_seconds", "0 is less than or equal to the minimum of 0"),
        ({"output_key": ["a", "a"]}, "overrides.output_key", "non-unique"),
        ({"source_topic": "other"}, "overrides", "'source_topic' was unexpected"),
        ({"stateful": True}, "overrides", "'stateful' was unexpected"),
    ],
)
def test_a_bad_override_names_its_path(overrides, field, problem):
    with pytest.raises(RefusedError) as raised:
        forms.parse("visits", {"overrides": overrides})
    assert (raised.value.field, problem in raised.value.problem) == (field, True)


def test_an_unknown_parameter_is_refused():
    with pytest.raises(RefusedError) as raised:
        forms.parse("visits", {"form": "earliest"})
    assert (raised.value.field, raised.value.problem) == ("form", 'rewind_visits does not know "form"')
    assert raised.value.cure.startswith('Did you mean "from"? Known: from, to, overrides, ')


LEFT_OUT = [name for name, schema in forms.PARAMETERS.items() if "null" in schema["type"]]


def test_what_is_null_was_left_out():
    assert forms.parse("visits", dict.fromkeys(LEFT_OUT)) == forms.parse("visits", {})


@pytest.mark.parametrize("kind", forms.FORMS)
def test_what_was_checked_is_the_same_when_it_is_checked_again(kind):
    form = forms.FORMS[kind]
    given = {"rewind_id": "rw-0123456789"} if kind == "abort" else {}
    once = forms.checked(given, form, kind)
    assert once.keys() == form.keys()
    assert forms.checked(once, form, kind) == once


def test_a_parameter_without_default_must_be_given():
    with pytest.raises(RefusedError, match=r"^rewind_id: None is not of type 'string'\. Give the id of a rewind"):
        forms.checked({}, forms.ABORT, "abort_visits")


@pytest.mark.parametrize(
    ("name", "known", "cure"),
    [
        ("form", ("from", "to"), 'Did you mean "from"? Known: from, to'),
        ("dryrun", ("dry_run",), 'Did you mean "dry_run"? Known: dry_run'),
        ("zzz", ("from", "to"), "Known: from, to"),
        ("from", (), "Known: nothing"),
    ],
)
def test_the_nearest_name_is_told(name, known, cure):
    assert meant(name, known) == cure


def test_an_unknown_override_is_told_with_the_nearest():
    with pytest.raises(RefusedError) as raised:
        forms.parse("visits", {"overrides": {"max_ofsets": 5}})
    assert raised.value.field == "overrides"
    assert "'max_ofsets' was unexpected" in raised.value.problem
    assert raised.value.cure.startswith('Did you mean "max_offsets"? Known: session_time_zone, ')


@pytest.mark.parametrize(
    ("dag_id", "form"),
    [
        ("rewind_collect_garbage", forms.PARAMETERS),
        ("collect_garbage", forms.COLLECT),
        ("nightly_replay_a", forms.NIGHTLY),
        ("mirror_rewind_a", forms.NOTHING),
    ],
)
def test_a_dag_has_the_form_of_its_kind(dag_id, form):
    assert forms.form_of(dag_id) is form


def test_another_dag_has_no_form():
    with pytest.raises(RefusedError, match="dag_id: backup is no DAG of Rewind"):
        forms.form_of("backup")


POSITIONS = [("rewind", "from"), ("rewind", "to"), ("consumers", "replay_from"), ("rollback", "replay_from")]
DURATIONS = [("rewind", "observe"), ("rewind", "grace"), ("rewind", "compare_every"), ("rollback", "grace")]
INSTANT = "Write it with its zone, as 2025-09-04T07:00:00Z"


@pytest.mark.parametrize(("kind", "name"), POSITIONS)
@pytest.mark.parametrize(
    ("text", "problem", "cure"),
    [
        ("2014-01-01", "'2014-01-01' has no time zone", INSTANT),
        ("2014-01-01T07:00:00", "'2014-01-01T07:00:00' has no time zone", INSTANT),
        ("2025-02-30T00:00:00Z", "is not an ISO-8601 timestamp (day is out of range for month)", INSTANT),
        ("2025-09-04T25:00:00Z", "is not an ISO-8601 timestamp (hour must be in 0..23)", INSTANT),
        ("yesterday", "'yesterday' is not a position", "Write earliest, "),
        ('{"visits":{"0":-3}}', "-3 is no partition or offset", "Write integers, as in "),
        ("{visits", "'{visits' is not JSON", 'Write offsets as {"<topic>":{"0":23,"1":0}}'),
    ],
)
def test_a_position_that_is_none_is_refused_without_the_world(kind, name, text, problem, cure):
    with pytest.raises(RefusedError) as raised:
        forms.checked({name: text}, forms.FORMS[kind], kind)
    assert raised.value.field == name
    assert problem in raised.value.problem
    assert raised.value.cure.startswith(cure)


@pytest.mark.parametrize(("kind", "name"), DURATIONS)
@pytest.mark.parametrize("text", ["P", "PT", "P1DT", "P1W", "1h", "PT1H\n"])
def test_a_duration_that_is_none_is_refused_in_every_form(kind, name, text):
    with pytest.raises(RefusedError) as raised:
        forms.checked({name: text}, forms.FORMS[kind], kind)
    assert (raised.value.field, raised.value.problem) == (name, f"{text!r} is not an ISO-8601 duration")
    assert raised.value.cure == "Write P9D, PT1H, PT90S or P1DT12H"


@pytest.mark.parametrize("text", ["live", "P1D", "shift-by:-1"])
def test_consumer_groups_read_again_from_no_other_position(text):
    with pytest.raises(RefusedError) as raised:
        forms.checked({"replay_from": text}, forms.CONSUMERS, "consumers_visits")
    assert raised.value.problem == f"{text!r} is not a position of a consumer group"
    assert raised.value.cure == "Write earliest, 2025-09-04T07:00:00Z, or offsets JSON"


@pytest.mark.parametrize("text", ["yesterday", "Earliest", "group:", "group:../x", "checkpoint:", "earliest\n"])
def test_a_start_of_a_deploy_that_is_none_is_refused(text):
    with pytest.raises(RefusedError) as raised:
        forms.checked({"from": text}, forms.DEPLOY, "deploy_visits")
    assert (raised.value.field, raised.value.problem) == ("from", f"{text!r} is no start")
    assert raised.value.cure == "Write earliest, latest, group:NAME or checkpoint:PATH"


@pytest.mark.parametrize(
    ("kind", "name", "text", "cure"),
    [
        ("abort", "rewind_id", "rw-1", "Give the id of a rewind, as rw-0123456789"),
        ("rollback", "to", "visits-r1", "Give the id of a job, as visits_converter-g1"),
        ("stream", "owner", "../live-g1", "Give the id of a job, as visits_converter-g1"),
        ("rewind", "apply_plan", "zz", "Give the id of a plan, as 0123456789ab"),
    ],
)
def test_an_id_that_is_none_is_told_with_an_example(kind, name, text, cure):
    with pytest.raises(RefusedError) as raised:
        forms.checked({name: text}, forms.FORMS[kind], kind)
    assert (raised.value.field, raised.value.problem, raised.value.cure) == (name, f"{text!r} is no such text", cure)


def test_the_old_job_must_outlive_the_watch():
    with pytest.raises(RefusedError) as raised:
        forms.parse("visits", {"observe": "PT2M", "grace": "PT119S"})
    assert (raised.value.field, raised.value.problem) == ("grace", "is shorter than observe")
    assert forms.parse("visits", {"observe": "PT2M", "grace": "PT120S"}).grace_seconds == 120


def test_a_run_is_the_same_rewind_through_retries_and_another_run_another():
    assert forms.rewind_id("rewind_visits", "manual__1") == forms.rewind_id("rewind_visits", "manual__1")
    ids = {forms.rewind_id(dag, run) for dag in ("rewind_a", "rewind_b") for run in ("r1", "r2")}
    assert len(ids) == 4
    assert all(i.startswith("rw-") and len(i) == 13 for i in ids)


# --- pipelines

LEAST = "source: {topic: visits, schema: 'a STRING'}\noutput: {topic: out}\n"
WHOLE = """\
source: {topic: visits, schema: "a STRING", required: [a], transactional: true, isolation: read_uncommitted}
output: {topic: out, key: [a]}
session_time_zone: Europe/Paris
several_rows: true
functions: [cleaned]
approval: {four_eyes: true, auto_approve_by: [ada]}
stream: {trigger: PT1M30S, max_offsets: 7}
backfill: {chunk_records: 8}
gates: {lag_records: 9}
compare: {expected: [{column: b}, {column: c, rule: "live.c <> candidate.c"}]}
"""


@pytest.fixture
def declare(tmp_path):
    def make(name, yaml=LEAST):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "logic.py").write_text("")
        (folder / "pipeline.yaml").write_bytes(yaml if isinstance(yaml, bytes) else yaml.encode())
        return tmp_path

    return make


def test_the_least_that_can_be_declared(declare):
    assert pipelines.load(declare("visits"), "visits") == Pipeline("visits", "visits", "a STRING", "out")


def test_everything_that_can_be_declared(declare):
    assert pipelines.load(declare("visits", WHOLE), "visits") == Pipeline(
        name="visits",
        source_topic="visits",
        schema="a STRING",
        output_topic="out",
        required=("a",),
        transactional=True,
        isolation="read_uncommitted",
        output_key=("a",),
        session_time_zone="Europe/Paris",
        several_rows=True,
        four_eyes=True,
        auto_approve_by=("ada",),
        functions=("cleaned",),
        trigger_seconds=90.0,
        max_offsets=7,
        chunk_records=8,
        lag_gate=9,
        expected=(ExpectedChange("b"), ExpectedChange("c", "live.c <> candidate.c")),
    )


STATE = """\
source: {topic: visits, schema: "a STRING, at TIMESTAMP"}
output: {topic: out, key: [a], mode: update, starts: b, ends: c}
stateful: true
state_horizon: PT30M
closes_at: at
"""


def test_everything_of_a_pipeline_with_state(declare):
    assert pipelines.load(declare("visits", STATE), "visits") == Pipeline(
        name="visits",
        source_topic="visits",
        schema="a STRING, at TIMESTAMP",
        output_topic="out",
        output_key=("a",),
        stateful=True,
        state_horizon="PT30M",
        closes_at="at",
        output_mode="update",
        result_starts="b",
        result_ends="c",
    )


def test_a_horizon_may_be_unbounded_and_results_are_appended_unless_said_otherwise(declare):
    body = STATE.replace("PT30M", "unbounded").replace("mode: update, ", "")
    found = pipelines.load(declare("visits", body), "visits")
    assert (found.state_horizon, found.output_mode) == ("unbounded", "append")


SHARED = STATE.replace("ends: c", "ends: c, shared: true")


def test_a_shared_output_keeps_what_vanished_unless_said_otherwise(declare):
    found = pipelines.load(declare("visits", SHARED), "visits")
    assert (found.shared, found.vanished) == (True, "keep")
    body = SHARED.replace("shared: true", "shared: true, vanished: tombstone")
    assert pipelines.load(declare("other", body), "other").vanished == "tombstone"
    assert pipelines.overridden(found, {"vanished": "tombstone"}).vanished == "tombstone"


FAULTS = [
    (LEAST.replace("topic: out", "topic: out, shared: true"), "pipeline.yaml.output.shared", "versions of keys"),
    (
        LEAST.replace("topic: out", "topic: out, key: [a], shared: true"),
        "pipeline.yaml.output.shared",
        "which only a pipeline with state writes",
    ),
    (STATE.replace("ends: c", "ends: c, vanished: keep"), "pipeline.yaml.output.vanished", "only for a shared output"),
    (SHARED.replace("true}", "true, vanished: drop}"), "pipeline.yaml.output.vanished", "is not one of"),
    *(
        (STATE.replace(text, ""), f"pipeline.yaml.{field}", "is required of a stateful pipeline")
        for field, text in {
            "state_horizon": "state_horizon: PT30M\n",
            "closes_at": "closes_at: at\n",
            "output.key": "key: [a], ",
            "output.starts": "starts: b, ",
            "output.ends": ", ends: c",
        }.items()
    ),
    (STATE.replace("stateful: true\n", ""), "pipeline.yaml.state_horizon", "is only for a pipeline with state"),
    (LEAST + "closes_at: at", "pipeline.yaml.closes_at", "is only for a pipeline with state"),
    (LEAST.replace("topic: out", "topic: out, mode: append"), "pipeline.yaml.output.mode", "is only for a pipeline"),
    (LEAST.replace("topic: out", "topic: out, ends: c"), "pipeline.yaml.output.ends", "is only for a pipeline"),
    (STATE.replace("PT30M", "30 minutes"), "state_horizon", "'30 minutes' is not an ISO-8601 duration"),
    (STATE + "several_rows: true\n", "pipeline.yaml.several_rows", "matched by their key"),
    (STATE.replace("mode: update", "mode: complete"), "pipeline.yaml.output.mode", "is not one of"),
    ("", "pipeline.yaml", "is not of type 'object'"),
    ("output: {topic: out}", "pipeline.yaml", "'source' is a required property"),
    ("source: {topic: t}\noutput: {topic: o}", "pipeline.yaml.source", "'schema' is a required property"),
    (LEAST + "spring: {}", "pipeline.yaml", "'spring' was unexpected"),
    (LEAST + "1: x", "pipeline.yaml", "was unexpected"),
    (LEAST + "stateful: maybe", "pipeline.yaml.stateful", "is not of type 'boolean'"),
    (LEAST + "stream: {max_offsets: 0}", "pipeline.yaml.stream.max_offsets", "minimum of 1"),
    (LEAST + "stream: {trigger: 5s}", "stream.trigger", "'5s' is not an ISO-8601 duration"),
    (LEAST + "compare: {expected: [{rule: x}]}", "pipeline.yaml.compare.expected.0", "'column' is a required"),
    (LEAST + "compare: {tolerance: [{column: a}]}", "pipeline.yaml.compare.tolerance.0", "is not valid under any"),
    (
        LEAST + "compare: {tolerance: [{column: a, relative: 2}]}",
        "pipeline.yaml.compare.tolerance.0.relative",
        "maximum",
    ),
    (
        LEAST + "compare: {rows: [{change: move, rule: x}]}",
        "pipeline.yaml.compare.rows.0.change",
        "'move' is not one of",
    ),
    (LEAST + "compare: {rows: [{change: appear}]}", "pipeline.yaml.compare.rows.0", "'rule' is a required property"),
    (
        LEAST + "compare: {rows: [{change: appear, rule: x, least: 2, most: 1}]}",
        "pipeline.yaml.compare.rows.0",
        "most 1 is below least 2",
    ),
    (
        LEAST + "compare: {rows: [{change: appear, rule: x}, {change: appear, rule: x, least: 2}]}",
        "pipeline.yaml.compare.rows.1",
        "appear: x stands twice",
    ),
    (LEAST + "compare: {volatile: [a], instant: [a]}", "pipeline.yaml.compare", "a has more than one rule"),
    (LEAST + "compare: {volatile: [a], expected: [{column: a}]}", "pipeline.yaml.compare", "a has more than one rule"),
    (
        "source: {topic: t, schema: s}\noutput: {topic: o, key: [a]}\ncompare: {volatile: [a]}",
        "pipeline.yaml.compare.volatile",
        "a is of the key, which tells rows apart",
    ),
    (
        "source: {topic: t, schema: s, isolation: dirty}\noutput: {topic: o}",
        "pipeline.yaml.source.isolation",
        "'dirty'",
    ),
    ("source: {topic: 'a b', schema: s}\noutput: {topic: o}", "source.topic", "a b"),
    ("source: {topic: .., schema: s}\noutput: {topic: o}", "source.topic", "'..' is no legal name"),
    (
        "source: {topic: t, schema: s}\noutput: {topic: ../live}",
        "output.topic",
        "'../live-g99999-dead' is no legal name",
    ),
    ("source: {topic: t, schema: s}\noutput: {topic: " + "o" * 240 + "}", "output.topic", "has 252 characters"),
    ("source: {topic: " + "t" * 240 + ", schema: s}\noutput: {topic: o}", "source.topic", "has 252 characters"),
    ("source: {topic: ", "visits", "is not valid YAML"),
    ("source: {topic: 2025-02-30, schema: s}", "visits", "is not valid YAML"),
    (b"source: {topic: \xff}", "visits", "is not valid YAML"),
]


def test_rules_of_columns_are_read_and_frozen():
    rules = {"volatile": ["a"], "unordered": ["b"], "instant": ["c"], "tolerance": [{"column": "d", "absolute": 1}]}
    made = pipelines.parse("visits", {**yaml.safe_load(LEAST), "compare": rules})
    assert made.rules == (
        ColumnRule("a", "volatile"),
        ColumnRule("b", "unordered"),
        ColumnRule("c", "instant"),
        ColumnRule("d", "tolerance", 0.0, 1.0),
    )
    assert Pipeline.from_frozen(made.frozen()) == made
    older = {name: value for name, value in made.frozen().items() if name not in ("rules", "expectations")}
    assert Pipeline.from_frozen(older).rules == ()


def test_rules_of_rows_are_read_and_frozen():
    rules = [{"change": "vanish", "rule": "live.a = 'x'", "least": 1, "most": 9}, {"change": "appear", "rule": "true"}]
    made = pipelines.parse("visits", {**yaml.safe_load(LEAST), "compare": {"rows": rules}})
    assert made.row_rules == (RowRule("vanish", "live.a = 'x'", 1, 9), RowRule("appear", "true", 0, None))
    assert Pipeline.from_frozen(made.frozen()) == made
    older = {name: value for name, value in made.frozen().items() if name != "row_rules"}
    assert Pipeline.from_frozen(older).row_rules == ()


@pytest.mark.parametrize(("yaml", "field", "problem"), FAULTS, ids=[str(fault[0])[-30:] for fault in FAULTS])
def test_a_faulty_declaration_names_its_field_and_takes_away_only_itself(declare, yaml, field, problem):
    declare("carts")
    folder = declare("visits", yaml)

    with pytest.raises(RefusedError) as raised:
        pipelines.load(folder, "visits")
    place, _, named = raised.value.field.partition(": ")
    assert re.fullmatch(r"visits/pipeline\.yaml(:\d+(:\d+)?)?", place)
    wanted = field.removeprefix("pipeline.yaml").removeprefix("visits").removeprefix(".")
    assert (named, problem in raised.value.problem) == (wanted, True), str(raised.value)
    assert "\n" not in str(raised.value)

    good, broken = pipelines.load_all(folder)
    assert ([p.name for p in good], [b.name for b in broken]) == (["carts"], ["visits"])
    assert broken[0].problem == str(raised.value)


LINES = """\
source:
  topic: visits
  schema: a STRING
  required: [a]
output:
  topic: out
stream:
  trigger: PT1S
compare:
  expected:
  - column: a
  - column: b
    rule: "true"
"""
DEEP = "[" * 3_000
PLACES = [
    (("topic: visits", "topic: 5"), "visits/pipeline.yaml:2: source.topic: 5 is not of type 'string'. Expected a text"),
    (
        ("required: [a]", "transactional: maybe"),
        "visits/pipeline.yaml:4: source.transactional: 'maybe' is not of type 'boolean'. Expected true or false",
    ),
    (
        ("required: [a]", "required: [[]]"),
        "visits/pipeline.yaml:4: source.required.0: [] is not of type 'string'. Expected a text",
    ),
    (
        ("  schema: a STRING\n", ""),
        (
            "visits/pipeline.yaml:1: source: 'schema' is a required property. Expected the fields topic (required), "
            "schema (required), required, transactional, isolation"
        ),
    ),
    (
        ("  topic: out", "  mode: append"),
        (
            "visits/pipeline.yaml:5: output: {'mode': 'append'} is not valid under any of the given schemas. Expected "
            "the fields topic (topic or table), table (topic or table), key, mode, starts, ends, shared, vanished"
        ),
    ),
    (
        ("  trigger: PT1S", "  max_offsets: 0"),
        "visits/pipeline.yaml:8: stream.max_offsets: 0 is less than the minimum of 1. Expected an integer from 1",
    ),
    (
        ("stream:\n  trigger: PT1S", "gates:\n  late_share: 2"),
        "visits/pipeline.yaml:8: gates.late_share: 2 is greater than the maximum of 1. Expected a number",
    ),
    (
        ("  required: [a]", "  isolation: dirty"),
        (
            "visits/pipeline.yaml:4: source.isolation: 'dirty' is not one of ['read_committed', 'read_uncommitted']. "
            "Expected one of read_committed, read_uncommitted"
        ),
    ),
    (
        ('  - column: b\n    rule: "true"', "  - rule: x"),
        (
            "visits/pipeline.yaml:12: compare.expected.1: 'column' is a required property. Expected the fields column "
            "(required), rule"
        ),
    ),
    (
        ('expected:\n  - column: a\n  - column: b\n    rule: "true"', "volatile: a"),
        "visits/pipeline.yaml:10: compare.volatile: 'a' is not of type 'array'. Expected a list, each of it a text",
    ),
    (("trigger: PT1S", "trigger: soon"), "visits/pipeline.yaml:8: stream.trigger: "),
    (("topic: visits", "topic: a b"), "visits/pipeline.yaml:2: source.topic: "),
    (("compare:", "spring: 1\ncompare:"), "visits/pipeline.yaml:9: Additional properties are not allowed ('spring' "),
    (("  trigger", "  max_ofsets: 5\n  trigger"), "visits/pipeline.yaml:8: stream: Additional properties are not "),
    (
        ("a STRING", "a ARRAY<STRUCT<b: INT>>"),
        (
            "visits/pipeline.yaml:3:27: is not valid YAML "
            "(mapping values are not allowed here). Quote the text if it has a "
            "': ' of its own"
        ),
    ),
    (
        ("  topic: out", " topic: [out"),
        (
            "visits/pipeline.yaml:7:7: is not valid YAML "
            "(while parsing a flow sequence from line 6 on, expected ',' or ']', "
            "but got ':'). Fix it"
        ),
    ),
    (
        ("topic: visits", "topic: 2025-02-30"),
        "visits/pipeline.yaml:2: is not valid YAML (day is out of range for month). Fix it",
    ),
    (
        ("topic: visits", "topic: \a"),
        "visits/pipeline.yaml:2: is not valid YAML (special characters are not allowed). Fix it",
    ),
    (("topic: visits", f"topic: {DEEP}"), "visits/pipeline.yaml: is not valid YAML (it is nested too deeply). Fix it"),
]


@pytest.mark.parametrize(("change", "told"), PLACES, ids=[told[:40] for _, told in PLACES])
def test_a_fault_is_told_with_file_line_field_and_what_is_expected(declare, change, told):
    assert change[0] in LINES
    with pytest.raises(RefusedError) as raised:
        pipelines.load(declare("visits", LINES.replace(*change, 1)), "visits")
    found = str(raised.value)
    assert found.startswith(told), found


def test_an_unreadable_byte_has_its_line(declare):
    with pytest.raises(
        RefusedError, match=r"^visits/pipeline\.yaml:2: is not valid YAML \(a byte is no UTF-8\)\. Fix it$"
    ):
        pipelines.load(declare("visits", b"source:\n  topic: \xff"), "visits")


def test_an_unknown_pipeline_is_told_what_there_is(declare):
    declare("visits")
    with pytest.raises(RefusedError) as raised:
        pipelines.load(declare("carts"), "orders")
    assert (raised.value.field, raised.value.problem) == ("pipeline", "'orders' is unknown")
    assert raised.value.cure == "Declared are ['carts', 'visits']"


def test_a_pipeline_without_logic_is_refused(declare):
    folder = declare("visits")
    (folder / "visits" / "logic.py").unlink()
    with pytest.raises(RefusedError, match=r"visits has no logic\.py"):
        pipelines.load(folder, "visits")


# --- case C45, as far as names are declared


@pytest.mark.parametrize("name", ["visits v2", "visité", "..", "../live", "v" * 240, "v" * 300, "", "-v2"])
def test_a_pipeline_name_that_makes_bad_names_is_refused(tmp_path, name):
    (tmp_path / "live").mkdir()
    (tmp_path / "declared").mkdir()
    with pytest.raises(RefusedError) as raised:
        pipelines.load(tmp_path / "declared", name)
    assert raised.value.field == "pipeline"


@pytest.mark.parametrize("name", ["visits v2", "-v2", "v" * 240])
def test_a_folder_with_a_bad_name_takes_away_only_itself(declare, name):
    declare("visits-v2")
    good, broken = pipelines.load_all(declare(name))
    assert ([p.name for p in good], [b.name for b in broken]) == (["visits-v2"], [name])


def test_the_longest_derived_name_of_a_pipeline_is_checked(declare):
    with pytest.raises(RefusedError, match="has 252 characters, 249 at most"):
        pipelines.load(declare("v" * 240), "v" * 240)
    assert pipelines.load(declare("w" * 237), "w" * 237).name == "w" * 237


def test_a_name_that_folds_onto_another_takes_away_only_itself(declare):
    declare("visits_v2")
    folder = declare("visits.v2")
    with pytest.raises(RefusedError, match=r"'visits\.v2' collides with 'visits_v2'"):
        pipelines.load(folder, "visits.v2")
    assert pipelines.load(folder, "visits_v2").name == "visits_v2"


def test_a_dot_is_no_part_of_a_package(declare):
    with pytest.raises(RefusedError, match=r"'visits\.v3' has a '\.'"):
        pipelines.load(declare("visits.v3"), "visits.v3")


def test_a_dash_is_fine(declare):
    assert pipelines.load(declare("visits-v2"), "visits-v2").name == "visits-v2"


def test_a_linked_folder_is_refused(declare, tmp_path):
    folder = declare("visits")
    (folder / "linked").symlink_to("visits")
    with pytest.raises(RefusedError, match="is a link"):
        pipelines.load(folder, "linked")


# --- overrides


def test_an_override_replaces_its_setting_alone():
    made = pipelines.overridden(PIPELINE, {"max_offsets": 5, "output_key": ["a"]})
    assert (made.max_offsets, made.output_key, made.lag_gate) == (5, ("a",), PIPELINE.lag_gate)
    assert pipelines.overridden(PIPELINE, {}) == PIPELINE


def test_what_becomes_of_vanished_keys_is_overridden_of_a_shared_output_alone():
    with pytest.raises(RefusedError, match=r"overrides\.vanished: visits_converter has no shared output"):
        pipelines.overridden(PIPELINE, {"vanished": "tombstone"})


def test_what_may_not_be_overridden_is_refused():
    with pytest.raises(RefusedError, match="'output_topic' was unexpected"):
        pipelines.overridden(PIPELINE, {"output_topic": "live"})


def test_the_pipelines_of_the_checkout_are_sound(project):
    good, broken = pipelines.load_all(project / "include" / "pipelines")
    assert broken == []
    assert "visits_converter" in [p.name for p in good]


def test_the_share_of_nulls_is_a_gate():
    body = {"source": {"topic": "visits", "schema": "a STRING"}, "output": {"topic": "out"}}
    assert pipelines.parse("visits", body).null_share == 0.01
    assert pipelines.parse("visits", {**body, "gates": {"null_share": 0.25}}).null_share == 0.25
    with pytest.raises(RefusedError, match=r"pipeline.yaml.gates.null_share: 2 is greater than the maximum of 1"):
        pipelines.parse("visits", {**body, "gates": {"null_share": 2}})
