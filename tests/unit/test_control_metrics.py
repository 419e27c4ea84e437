"""The metrics: their values, Prometheus' text format, the route, and the dashboard that reads them."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import delete

from rewind.cli import pointer_server
from rewind.core import lifecycle
from rewind.core.nights import Night, Sample
from rewind.core.offsets import OffsetRange
from rewind.registry import (
    chunk_log,
    database,
    generations,
    leases,
    manifest,
    nightly_replays,
    rewinds,
    schema,
)
from rewind.views import counters, metrics, status
from rewind.views.counters import Totals
from rewind.views.status import PipelineView, Status
from tests.support import installed
from tests.support.installed import BIG, CANDIDATE, LIVE, OVER, REWIND_ID

PROJECT = Path(__file__).resolve().parents[2]
DASHBOARD = PROJECT / "deploy" / "grafana" / "rewind.json"
NOW = datetime.fromisoformat("2025-09-04")
START = NOW.replace(tzinfo=UTC)
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\["\\n])*)"(?:,|$)')


def parsed(text):
    """Return the samples of a text as the format defines it, refusing what it does not allow."""
    assert text.endswith("\n")
    found, declared, current = {}, {}, ""
    for line in text[:-1].split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ", 3)[2]
            assert current not in declared, "all lines of a metric stand together"
            declared[current] = ""
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert (name, kind in ("gauge", "counter")) == (current, True)
            declared[name] = kind
        else:
            key, value = sample(line)
            assert (key[0], key not in found) == (current, True)
            found[key] = value
    assert all(declared.values())
    return found


def sample(line):
    name, labels, value = re.fullmatch(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)", line).groups()
    pairs = LABEL.findall(labels or "")
    assert "".join(f'{key}="{text}",' for key, text in pairs).rstrip(",") == (labels or "")
    decode = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
    plain = {key: re.sub(r'\\[\\"n]', lambda found: decode[found[0]], text) for key, text in pairs}
    return (name, frozenset(plain.items())), (int(value) if re.fullmatch(r"-?\d+", value) else float(value))


def key(name, **labels):
    return name, frozenset((label.removesuffix("_"), text) for label, text in labels.items())


@pytest.fixture
def settings(tmp_path):
    return installed.seed(tmp_path, "fail", "1 changed")


def of(settings):
    return parsed(metrics.read(settings, None))


def drifted(settings):
    night = Night("visits_converter", START, START + timedelta(days=1), "2025-09-04", Sample())
    with database.writing(settings.registry_url) as connection:
        begun = nightly_replays.begin(connection, night, {0: OffsetRange(0, 9)}, "r1", LIVE)
        nightly_replays.finish(
            connection,
            begun.replay_id,
            "drifted",
            "3 changed",
            {"rows": 9, "equal": 6, "changed": 3},
            {"changed": {"page": 3}},
            None,
        )
        missed = replace(night, start=START + timedelta(days=1), end=START + timedelta(days=2), label="2025-09-05")
        nightly_replays.miss(connection, missed, {}, "r2", "no run came")


def test_the_newest_night_that_was_tried(settings):
    drifted(settings)
    found, of_night = of(settings), {"pipeline": "visits_converter", "night": "2025-09-04"}
    assert found[key("rewind_night_state", **of_night, state="drifted")] == 1
    assert found[key("rewind_night_different_rows", **of_night)] == 3
    assert len([name for name, _ in found if name == "rewind_night_state"]) == 1


def test_the_state_as_metrics(settings):
    found = of(settings)
    live = {"pipeline": "visits_converter", "job": LIVE, "state": "live"}
    rewind = {"pipeline": "visits_converter", "rewind": REWIND_ID}
    assert found[key("rewind_registry_up")] == 1
    assert found[key("rewind_problems")] == 1
    assert found[key("rewind_epoch", pipeline="visits_converter")] == 1
    assert found[key("rewind_pipeline_broken", pipeline="visits_converter")] == 0
    assert found[key("rewind_job_position_offsets", **live)] == BIG + 2
    assert found[key("rewind_driver_state", owner=LIVE, state="elsewhere")] == 1
    assert found[key("rewind_driver_state", owner="mirror-visits", state="dead")] == 1
    assert found[key("rewind_step_state", **rewind, step="validate", state="done")] == 1
    assert found[key("rewind_step_state", **rewind, step="approve", state="pending")] == 1
    assert found[key("rewind_waits", **rewind)] == 1
    assert found[key("rewind_verdict_rows", **rewind, class_="equal")] == BIG - 1
    assert found[key("rewind_verdicts_total", pipeline="visits_converter", verdict="fail")] == 1
    assert found[key("rewind_rewinds", pipeline="visits_converter", state="active")] == 1
    assert found[key("rewind_garbage_things", pipeline="visits_converter", job=OVER)] == 1


def test_a_backfill_at_work_is_nothing_to_be_alerted_of(settings):
    with database.writing(settings.registry_url) as connection:
        connection.execute(delete(schema.streams).where(schema.streams.c.owner == CANDIDATE))
        connection.execute(delete(schema.leases).where(schema.leases.c.owner == CANDIDATE))
        leases.take(connection, CANDIDATE, replace(leases.this_driver(), step="backfill"))
    states = [dict(labels) for name, labels in of(settings) if name == "rewind_driver_state"]
    assert [seen["state"] for seen in states if seen["owner"] == CANDIDATE] == ["backfilling"]


def test_what_is_unknown_has_no_sample(settings):
    names = {name for name, _ in of(settings)}
    # Kafka is away: a lag of 0 would be a lie.
    assert not names & {"rewind_job_lag_offsets", "rewind_mirror_lag_offsets", "rewind_backfill_offsets"}


def test_a_job_that_is_over_leaves_the_metrics(settings):
    jobs = {dict(labels).get("job") for name, labels in of(settings) if name == "rewind_job_position_offsets"}
    assert jobs == {LIVE, CANDIDATE}


def test_deletions_are_counted_over_the_whole_history(settings):
    entry = manifest.Entry(manifest.TOPIC, "visits_converted-g1", None, manifest.DELETED)
    with database.writing(settings.registry_url) as connection:
        for result in ("deleted", "deleted", "refused"):
            manifest.record(connection, OVER, entry, result, "")
    found = of(settings)
    topics = {"pipeline": "visits_converter", "kind": "topic"}
    assert found[key("rewind_deletions_total", **topics, result="deleted")] == 2
    assert found[key("rewind_deletions_total", **topics, result="refused")] == 1


def test_a_backfill_and_times(settings):
    with database.writing(settings.registry_url) as connection:
        chunk_log.add_wave(connection, REWIND_ID, 1, [{0: OffsetRange(0, 60)}, {0: OffsetRange(60, 100)}])
        generations.switch(connection, "visits_converter", LIVE, CANDIDATE, 1, timedelta(0))
        generations.set_grace(connection, LIVE, datetime.fromisoformat("2030-01-01"))
    found = of(settings)
    rewind = {"pipeline": "visits_converter", "rewind": REWIND_ID}
    assert found[key("rewind_backfill_offsets", **rewind)] == 100
    assert found[key("rewind_backfill_done_offsets", **rewind)] == 0
    due = found[key("rewind_garbage_due_timestamp_seconds", pipeline="visits_converter", job=LIVE)]
    assert due == datetime(2030, 1, 1, tzinfo=UTC).timestamp()


def test_ended_rewinds_are_no_active_ones(settings):
    with database.writing(settings.registry_url) as connection:
        rewinds.close(connection, REWIND_ID, lifecycle.FINISHED)
    found = of(settings)
    assert found[key("rewind_rewinds", pipeline="visits_converter", state="finished")] == 1
    assert "rewind_waits" not in {name for name, _ in found}


def test_label_values_are_escaped():
    name = 'a "quoted" \\ name\nof two lines'
    found = Status(NOW, True, (), (PipelineView(name, True, live="x", epoch=3),), ())
    text = metrics.exposition(found, Totals())
    assert 'rewind_epoch{pipeline="a \\"quoted\\" \\\\ name\\nof two lines"} 3\n' in text
    assert parsed(text)[key("rewind_epoch", pipeline=name)] == 3


def test_help_texts_are_escaped(monkeypatch):
    odd = replace(metrics.METRICS[0], text='of "two"\nlines \\')
    monkeypatch.setattr(metrics, "METRICS", (odd,))
    found = Status(NOW, True, (), (), ())
    assert metrics.exposition(found, Totals()).splitlines()[0] == '# HELP rewind_registry_up of "two"\\nlines \\\\'


def test_a_registry_that_is_away_is_a_metric(settings, monkeypatch):
    (settings.home / "registry.db").write_text("this is no database, but long enough to look like one" * 20)
    found = of(settings)
    assert found[key("rewind_registry_up")] == 0
    assert not any(name == "rewind_rewinds" for name, _ in found)


def test_the_route_serves_them_and_only_reads(settings, monkeypatch):
    for name, value in installed.environment(settings.home.parent).items():
        monkeypatch.setenv(name, value)
    made = pointer_server.server(settings, "127.0.0.1", 0)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{made.server_address[1]}/metrics", timeout=20) as answer:
            assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
            assert parsed(answer.read().decode())[key("rewind_registry_up")] == 1
    finally:
        made.shutdown()
        thread.join()
        made.server_close()


def test_totals_of_an_empty_history(tmp_path):
    url = f"sqlite:///{tmp_path}/registry.db"
    database.upgrade(url)
    with database.writing(url) as connection:
        assert counters.read(connection) == Totals()


def expressions():
    body = json.loads(DASHBOARD.read_text())
    targets = [target for panel in body["panels"] for target in panel.get("targets", ())]
    return [target["expr"] for target in targets] + [v["query"] for v in body["templating"]["list"] if "query" in v]


def test_the_dashboard_shows_only_metrics_that_are_exported():
    exported = {metric.name for metric in metrics.METRICS}
    shown = {name for text in expressions() for name in re.findall(r"rewind_\w+", text)}
    assert shown
    assert shown <= exported


def test_the_dashboard_asks_for_labels_that_there_are(settings):
    with database.writing(settings.registry_url) as connection:
        entry = manifest.Entry(manifest.TOPIC, "visits_converted-g1", None, manifest.DELETED)
        manifest.record(connection, OVER, entry, "deleted", "")
    drifted(settings)
    known = {label for _, labels in of(settings) for label, _ in labels} | {"topic"}
    body = json.loads(DASHBOARD.read_text())
    targets = [target for panel in body["panels"] for target in panel.get("targets", ())]
    legends = {name for target in targets for name in re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))}
    matched = {name for text in expressions() for name in re.findall(r"[{,]\s*(\w+)\s*=~?", text)}
    grouped = {n.strip() for text in expressions() for by in re.findall(r"by \(([^)]*)\)", text) for n in by.split(",")}
    assert legends | matched | grouped <= known


def test_panels_do_not_overlap_and_all_have_a_source():
    taken = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        assert panel["datasource"]["uid"] == "${source}"
        taken |= cells


def test_metrics_read_the_same_view_as_status(settings):
    found = status.read(settings, None)
    assert metrics.exposition(found, Totals()).startswith("# HELP rewind_registry_up")
