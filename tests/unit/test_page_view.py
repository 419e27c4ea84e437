"""What the page says of each seeded state: how it is, what it waits for, what can be done, and what that does."""

from __future__ import annotations

import json
from datetime import datetime, timedelta

import pytest

from rewind.core.errors import RefusedError
from rewind.core.model import Batch
from rewind.core.settings import from_environment
from rewind.registry import database, generations, rewinds, schema, streams
from rewind.registry.snapshot import snapshot
from rewind.runtime import evidence
from rewind.views import rewind_rows, status, throughput
from rewind.views.lag_history import BATCHES, POINTS, lag_history
from rewind.web import compare_page, files, generation_page, history, overview, rewind_page
from rewind.web.state import State
from rewind.web.wire import encoded, wire
from tests.support import page_states
from tests.support.page_states import BIG, CANDIDATE, HOSTILE, LIVE, REWIND_ID, STATES, Ends


@pytest.fixture
def settings(tmp_path):
    places = {"REWIND_HOME": str(tmp_path / "home"), "REWIND_PIPELINES": str(tmp_path / "pipelines")}
    made = from_environment({**places, "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1"})
    made.home.mkdir()
    page_states.declare(made)
    return made


@pytest.fixture
def in_state(settings):
    def make(state):
        page_states.seed(settings, state)
        return status.read(settings, Ends())

    return make


def of_rewind(settings, found):
    return rewind_page.rewind_page(settings, found, REWIND_ID)


DEAD = f"the driver of {LIVE} is dead: no failure is known"
PAUSED = (
    "the DAG stream_visits is paused, so nobody starts the driver when it ends: switch it on in Airflow's list of "
    "DAGs, or run `airflow dags unpause stream_visits`"
)
ANSWERS = {
    "nothing deployed": ("nothing is deployed", None, None, []),
    "deployed": (DEAD, None, None, []),
    "running": (f"{LIVE} is live", None, None, []),
    "orphan": (f"the driver of {LIVE} is orphan: no failure is known", None, None, []),
    "stuck watermark": (..., None, None, []),
    "paused": (
        f"the backfill is paused; `python -m rewind resume {REWIND_ID}` lets it go on",
        "backfill",
        f"the backfill is paused; `python -m rewind resume {REWIND_ID}` lets it go on",
        ["resume", "throttle", "abort"],
    ),
    "planned": (DEAD, "backfill", "", ["abort"]),
    "backfilling": (DEAD, "backfill", "", ["pause", "throttle", "abort"]),
    "catching up": (
        DEAD,
        "catch_up",
        f"the driver of {CANDIDATE} is dead: it has not started",
        ["abort"],
    ),
    "quarantined": (DEAD, "catch_up", f"the driver of {CANDIDATE} is quarantined: exit code 1", ["abort"]),
    "passed": (DEAD, "approve", "verdict pass: answer its approve task in Airflow", ["approve", "reject", "abort"]),
    "failed verdict": (
        DEAD,
        "approve",
        "verdict fail: answer its approve task in Airflow",
        ["approve", "reject", "abort"],
    ),
    "error verdict": (
        DEAD,
        "approve",
        "the verdict is an error (nothing was compared): fix the cause and clear validate",
        ["reject", "abort"],
    ),
    "nothing compared": (
        DEAD,
        "approve",
        "verdict none (nothing was compared): answer its approve task in Airflow",
        ["approve", "reject", "abort"],
    ),
    "paused DAG": (f"the driver of {LIVE} is dead: {PAUSED}", None, None, []),
    "failed step": (
        DEAD,
        "backfill",
        "backfill failed (attempt 1): a gap at offset 7; abort_visits takes it back",
        ["abort"],
    ),
    "standby": (f"the driver of {CANDIDATE} is dead: no failure is known", "observe", ..., ["finish", "roll_back"]),
    "drifted night": (
        f"{LIVE} is live; the nightly replay of 2025-09-06 drifted in visited_page: 3 changed {HOSTILE}",
        None,
        None,
        [],
    ),
    "night without an answer": (f"{LIVE} is live; the nightly replay of 2025-09-06 error: {HOSTILE}", None, None, []),
    "running night": (f"{LIVE} is live", None, None, []),
    "aborted": (DEAD, None, "", []),
}


@pytest.mark.parametrize("state", STATES)
def test_the_answers_of_each_state(settings, in_state, state):
    answer, step, waits, offered = ANSWERS[state]
    found = in_state(state)
    (card,) = overview.overview(found)["pipelines"]
    if answer is not ...:
        assert card["answer"] == answer
    assert (card["active"] or {}).get("step") == step
    if waits is None:
        return
    body = of_rewind(settings, found)
    assert [offer["name"] for offer in body["offers"]] == offered
    if waits is not ...:
        assert body["rewind"]["waits"] == waits
    assert body["live"] == (CANDIDATE if state == "standby" else LIVE)


def test_a_stuck_watermark_is_the_answer_with_its_cure(in_state):
    (card,) = overview.overview(in_state("stuck watermark"))["pipelines"]
    assert card["answer"].startswith(f"{LIVE} is live; watermark stuck since ")
    assert card["answer"].endswith(
        "Records come in, but none of later event time: fix the producers' clocks, or what logic.py takes as event time"
    )
    assert card["live"]["note"] in card["answer"]


def test_states_that_differ_differ_in_their_text(settings):
    told = {}
    for state in STATES:
        (settings.home / "registry.db").unlink(missing_ok=True)
        page_states.seed(settings, state)
        found = status.read(settings, Ends())
        card = overview.overview(found)["pipelines"][0]
        rewind = of_rewind(settings, found) if card["active"] or card["last"] else {}
        parts = ("rewind", "verdict", "offers", "backfill")
        shown = {part: rewind.get(part) for part in parts} | {"card": card["answer"], "active": card["active"]}
        shown["nights"] = [(night["label"], night["state"]) for night in card["nights"]]
        told[state] = json.dumps(shown, sort_keys=True)
    assert len(set(told.values())) == len(STATES)


def test_what_the_actions_say_and_ask(settings, in_state):
    failed = of_rewind(settings, in_state("failed verdict"))["offers"]
    assert [(offer["label"], offer["asks"], offer["consequence"]) for offer in failed] == [
        (
            "Approve",
            "reason needed",
            (
                "visits-g2 becomes live instead of visits-g1, which has no driver (dead): it is not standby, and a "
                "rollback is refused until it runs. Readers go to visits_out-g2."
            ),
        ),
        ("Reject", "reason", "The rewind is aborted and visits-g2 deleted. Live is untouched."),
        (
            "Abort",
            "reason",
            "visits-g2 is stopped and all that this rewind made is deleted. Live is untouched.",
        ),
    ]


def test_a_standby_with_a_driver_stands_by(settings, in_state):
    in_state("failed verdict")
    with database.writing(settings.registry_url) as connection:
        page_states.alive(connection)
    (approve, *_) = of_rewind(settings, status.read(settings, Ends()))["offers"]
    assert approve["consequence"] == (
        "visits-g2 becomes live instead of visits-g1, which is standby for 3600 s. Readers go to visits_out-g2."
    )


def test_what_compared_nothing_says_so_wherever_its_verdict_stands(settings, in_state):
    found = in_state("nothing compared")
    body = of_rewind(settings, found)
    assert (body["verdict"]["verdict"], body["verdict"]["counts"]) == ("none", {"rows": 0})
    (approve, *_) = body["offers"]
    assert (approve["asks"], approve["consequence"][:21]) == ("reason needed", "Nothing was compared.")
    (line,) = history.history(settings, found)["rewinds"]
    assert (line["verdict"], line["told"]) == ("none", "nothing was compared")


def test_a_paused_dag_stands_in_the_note_of_its_job(settings, in_state):
    (card,) = overview.overview(in_state("paused DAG"))["pipelines"]
    assert card["live"]["note"] == PAUSED
    with database.writing(settings.registry_url) as connection:
        streams.wish(connection, LIVE, streams.GENERATION, streams.DRAIN)
    (card,) = overview.overview(status.read(settings, Ends()))["pipelines"]
    assert card["live"]["note"] == "", "it is not to run"


def test_a_paused_backfill_offers_to_go_on(settings, in_state):
    in_state("backfilling")
    with database.writing(settings.registry_url) as connection:
        rewinds.set_controls(connection, REWIND_ID, paused=True, records_per_second=None)
    body = of_rewind(settings, status.read(settings, Ends()))
    assert [offer["name"] for offer in body["offers"]] == ["resume", "throttle", "abort"]


def test_backfill_by_partition_and_its_end(settings, in_state):
    backfill = of_rewind(settings, in_state("backfilling"))["backfill"]
    assert backfill["partitions"] == {"0": [6_000, 12_000], "1": [4_000, 4_000]}
    assert (backfill["offsets_done"], backfill["offsets"], backfill["chunks_done"]) == (10_000, 16_000, 1)


def test_the_race_with_its_gate_and_handoff(settings, in_state):
    race = of_rewind(settings, in_state("catching up"))["race"]
    assert race["gate"] == 500
    assert race["handoff_at"] is not None
    offsets = [point["offsets"] for point in race["points"]]
    # Live had a lead of five batches, and wins 20 offsets in each partition while the candidate wins 22.
    assert (len(offsets), offsets[-1]) == (25, 100)
    assert offsets == sorted(offsets, reverse=True)


def test_a_long_race_is_thinned_and_keeps_its_newest_point(settings, in_state):
    in_state("deployed")
    with database.writing(settings.registry_url) as connection:
        page_states.ran(connection, LIVE, 1_200, 10)
        page_states.ran(connection, CANDIDATE, 1_200, 9)
        found = lag_history(connection, CANDIDATE, LIVE, {0: 0, 1: 0})
    assert len(found) <= POINTS
    assert found[-1].offsets == 2 * 1_200
    assert BATCHES < 1_200


def test_numbers_beyond_a_browsers_travel_as_text(settings, in_state):
    body = of_rewind(settings, in_state("passed"))
    assert body["verdict"]["counts"] == {"equal": str(BIG), "changed": 0}
    assert body["verdict"]["ceiling"] == {"0": str(BIG), "1": 9}
    assert wire([2**53 - 1, 2**53, -(2**53), True]) == [2**53 - 1, str(2**53), str(-(2**53)), True]


def test_the_tag_changes_with_the_state_but_not_with_the_clock():
    body = {"at": "1", "mirror": [{"age_seconds": 1.0, "lag": 3}]}
    later = {"at": "2", "mirror": [{"age_seconds": 9.0, "lag": 3}]}
    assert encoded(body)[1] == encoded(later)[1]
    assert encoded(body)[1] != encoded({**body, "mirror": [{"age_seconds": 1.0, "lag": 4}]})[1]


def test_what_was_and_will_be_deleted(settings, in_state):
    kept = of_rewind(settings, in_state("standby"))
    (garbage,) = kept["garbage"]
    assert (garbage["job_id"], garbage["things"]) == (LIVE, [["group", LIVE], ["topic", "visits_out-g1"]])
    assert garbage["waits"].startswith("kept for a rollback until ")
    assert kept["deletions"] == []


def test_the_ledger_of_an_aborted_rewind(settings, in_state):
    gone = of_rewind(settings, in_state("aborted"))["deletions"]
    assert [(d["kind"], d["name"], d["result"]) for d in gone] == [
        ("group", CANDIDATE, "deleted"),
        ("topic", "visits_out-g2", "deleted"),
    ]


def test_a_generation_and_what_differs_from_live(settings, in_state):
    found = in_state("standby")
    body = generation_page.generation_page(settings, found, LIVE)
    assert (body["live"], body["job"]["state"], body["differences"]) == (CANDIDATE, "standby", [])
    assert [(e["kind"], e["name"], e["state"]) for e in body["manifest"]] == [
        ("group", LIVE, "named"),
        ("topic", "visits_out-g1", "made"),
    ]
    assert body["problems"] == [f"the frozen code of {LIVE} is not there: it was collected, or not yet frozen"]
    assert len(body["batches"]) == 30


def test_a_generation_with_a_setting_of_a_newer_release_is_shown_without_what_differs(settings, in_state):
    found = in_state("standby")
    table = schema.generations
    with database.writing(settings.registry_url) as connection:
        frozen = generations.read(connection, LIVE).frozen
        newer = {**frozen, "config": {**frozen["config"], "surprise": 1}}
        connection.execute(table.update().where(table.c.job_id == LIVE).values(frozen=newer))
    body = generation_page.generation_page(settings, found, LIVE)
    assert body["differences"] == []
    assert "holds surprise, which this release does not know" in body["problems"][1]


def test_the_history_tells_verdict_and_answer(settings, in_state):
    found = in_state("standby")
    (line,) = history.history(settings, found)["rewinds"]
    assert (line["rewind"]["id"], line["verdict"], line["answer"]) == (REWIND_ID, "pass", "approve by ada")
    assert line["evidence"] == 0
    folder = evidence.folder_of(settings, REWIND_ID)
    folder.mkdir(parents=True)
    (folder / "verdict-1.json").write_text("{}")
    assert history.history(settings, found)["rewinds"][0]["evidence"] == 1


def test_the_active_rewind_is_shown_however_few_ended_ones_are_asked_for(settings, in_state):
    in_state("backfilling")
    with snapshot(settings.registry_url) as connection:
        assert [rewind.id for rewind in rewind_rows.shown(connection, 0)["visits"]] == [REWIND_ID]


def test_two_rewinds_side_by_side(settings, in_state):
    in_state("aborted")
    with database.writing(settings.registry_url) as connection:
        made = page_states.plan(reason="again")
        rewinds.open_rewind(connection, "rw-other", made)
    state = State(lambda: settings, lambda _: Ends())
    body = compare_page.compare_page(settings, state, (REWIND_ID, "rw-other"))
    with pytest.raises(RefusedError, match="'rw-none' is unknown"):
        compare_page.compare_page(settings, state, (REWIND_ID, "rw-none"))
    lines = {(line["section"], line["name"]): line["values"] for line in body["lines"]}
    assert lines["rewind", "state"] == ["aborted", "active"]
    assert lines["rewind", "reason"] == ["", "again"]
    assert lines["plan", "end"] == [{"0": str(BIG), "1": 8_000}] * 2
    assert lines["changed", "max_offsets"] == ["200000 → 50000"] * 2
    assert lines["seconds", "backfill"][1] is None
    assert [rewind["id"] for rewind in body["sides"]] == [REWIND_ID, "rw-other"]


def test_two_nights_side_by_side(settings, in_state):
    in_state("drifted night")
    state = State(lambda: settings, lambda _: Ends())
    body = compare_page.compare_page(settings, state, ("visits-n2", "visits-n3"))
    lines = {(line["section"], line["name"]): line["values"] for line in body["lines"]}
    assert lines["night", "state"] == ["consistent", "drifted"]
    assert lines["offsets", "partition 0"] == ["5 to 90", "90 to 100"]
    assert lines["rows", "changed"] == [None, 3]
    assert lines["changed", "visited_page"] == [None, 3]
    assert (body["page"], [night["id"] for night in body["sides"]]) == ("", ["visits-n2", "visits-n3"])


@pytest.mark.parametrize(
    "path", ["../x", "data-docs-1/../../x", "verdict-1.json", "data-docs-1/out", "data-docs-2/index.html", ""]
)
def test_pages_of_expectations_come_from_their_folders_alone(tmp_path, path):
    folder = tmp_path / "rw-1"
    (folder / "data-docs-1").mkdir(parents=True)
    for name in ("verdict-1.json", "data-docs-1/index.html"):
        (folder / name).write_text("x")
    (tmp_path / "x").write_text("secret")
    (folder / "data-docs-1" / "out").symlink_to(tmp_path / "x")
    assert files.page_below(folder, "data-docs-1/index.html") == (b"x", "html")
    assert files.docs_of(folder) == ["data-docs-1"]
    with pytest.raises(RefusedError):
        files.page_below(folder, path)


def test_the_size_of_a_state(tmp_path):
    assert files.bytes_below(tmp_path / "state", 0) is None
    (tmp_path / "state" / "0").mkdir(parents=True)
    (tmp_path / "state" / "0" / "1.zip").write_bytes(b"12345")
    # Within one time that is asked for, the files are looked at once.
    assert [files.bytes_below(tmp_path / "state", n) for n in (0, 1)] == [None, 5]


def test_throughput_over_time_is_thinned_and_loses_no_record():
    at = datetime.fromisoformat("2025-09-04T12:00")
    made = [Batch(n, {}, {}, n, at + timedelta(seconds=2 * n)) for n in range(301)]
    found = throughput.of(made)
    assert len(found) == 100
    assert found[-1] == throughput.Throughput(made[-1].at, round((298 + 299 + 300) / 6, 1))
    assert sum(point.rate * 6 for point in found) == pytest.approx(sum(range(1, 301)))
    assert throughput.of(made[:1]) == []
    assert throughput.of([]) == []
    assert throughput.of(made[:2]) == [throughput.Throughput(made[1].at, 0.5)]


@pytest.mark.parametrize("name", ["../verdict-1.json", "..", ".hidden", "a/b", "link.json", "nothing.json", ""])
def test_evidence_comes_from_its_folder_alone(settings, name):
    folder = evidence.folder_of(settings, REWIND_ID)
    folder.mkdir(parents=True)
    (folder.parent / "verdict-1.json").write_text("outside")
    (folder / ".hidden").write_text("hidden")
    (folder / "link.json").symlink_to(folder.parent / "verdict-1.json")
    (folder / "verdict-1.json").write_text(HOSTILE)
    assert [file.name for file in files.listed(folder)] == ["verdict-1.json"]
    assert files.tail(folder, "verdict-1.json", 4) == HOSTILE[-4:].encode()
    with pytest.raises(RefusedError):
        files.tail(folder, name, 100)


def test_a_folder_that_is_a_link_is_refused(settings, tmp_path):
    settings.evidence.mkdir(parents=True)
    (settings.evidence / REWIND_ID).symlink_to(tmp_path)
    with pytest.raises(RefusedError, match="is a link"):
        evidence.folder_of(settings, REWIND_ID)
