"""The page's answers for each seeded state, against the same asked of the registry's tables by plain SQL."""

from __future__ import annotations

import json
import sqlite3

import pytest

from rewind.views import status
from rewind.web import overview, rewind_page
from tests.support import page_states
from tests.support.page_states import NAME, REWIND_ID, STATES, Ends


@pytest.fixture
def settings(make_settings, tmp_path):
    made = make_settings(REWIND_PIPELINES=str(tmp_path / "declared"))
    page_states.declare(made)
    return made


class Asked:
    """The registry, asked without any of our own code."""

    def __init__(self, settings):
        self._connection = sqlite3.connect(settings.home / "registry.db")
        self._connection.row_factory = sqlite3.Row

    def one(self, query, *values):
        found = self._connection.execute(query, values).fetchone()
        return None if found is None else found[0] if len(found) == 1 else tuple(found)

    def all(self, query, *values):
        return [tuple(row) for row in self._connection.execute(query, values)]


def shown(settings):
    found = status.read(settings, Ends())
    (card,) = overview.overview(found)["pipelines"]
    if not (card["active"] or card["last"]):
        return card, None
    return card, rewind_page.rewind_page(settings, found, REWIND_ID)


@pytest.mark.parametrize("state", STATES)
def test_what_is_live_and_what_waits_to_be_deleted(settings, state):
    page_states.seed(settings, state)
    card, _ = shown(settings)
    asked = Asked(settings)
    live = asked.one("SELECT job_id, epoch FROM pointers WHERE pipeline = ?", NAME)
    assert (card["live"] and (card["live"]["job_id"], card["epoch"])) == live
    left = asked.all(
        "SELECT g.job_id, count(*) FROM generations g JOIN manifest m ON m.job_id = g.job_id "
        "WHERE g.state IN ('standby', 'retired', 'aborted') AND m.state != 'deleted' GROUP BY g.job_id"
    )
    assert [(g["job_id"], g["things"]) for g in card["garbage"]] == left


@pytest.mark.parametrize("state", STATES)
def test_what_each_night_came_to(settings, state):
    page_states.seed(settings, state)
    card, _ = shown(settings)
    stored = Asked(settings).all("SELECT label, state, reason, fields, counts FROM nights ORDER BY end_at")
    told = [(n["label"], n["state"], n["reason"], n["differing"], n["rows"]) for n in card["nights"]]
    assert told == [
        (label, state, reason, json.loads(fields).get("changed", {}), json.loads(counts).get("rows", 0))
        for label, state, reason, fields, counts in stored
    ]
    last = stored[-1] if stored else None
    told_of = last is not None and last[1] in ("drifted", "error") and not card["active"]
    assert (f"the nightly replay of {last[0]} {last[1]}" in card["answer"] if last else False) == told_of


@pytest.mark.parametrize("state", STATES)
def test_how_far_a_rewind_is_and_how_long_still(settings, state):
    page_states.seed(settings, state)
    _, body = shown(settings)
    asked = Asked(settings)
    begun = asked.one("SELECT count(*) FROM rewinds")
    assert (body is not None) == bool(begun)
    if body is None:
        return
    newest = "SELECT state FROM steps WHERE step = ? ORDER BY attempt DESC LIMIT 1"
    assert all(step["state"] == (asked.one(newest, step["name"]) or "pending") for step in body["steps"])
    chunks = asked.all("SELECT state, ranges, rows FROM chunks")
    if not chunks:
        assert body["backfill"] is None
        return
    spans = [(state == "done", sum(e - s for s, e in json.loads(r).values()), n or 0) for state, r, n in chunks]
    whole, done = sum(n for _, n, _ in spans), sum(n for over, n, _ in spans if over)
    backfill = body["backfill"]
    assert (backfill["offsets_done"], backfill["offsets"]) == (done, whole)
    assert backfill["records_done"] == sum(rows for over, _, rows in spans if over)
    begun, ended = asked.one("SELECT min(julianday(started_at)), max(julianday(ended_at)) FROM chunks")
    if done < whole:
        # Ten seconds and what has gone by since for ten thousand offsets: the rest at that speed.
        least = (whole - done) / done * (ended - begun) * 86_400
        assert least - 0.2 <= backfill["seconds_left"] <= least + 60
    else:
        assert backfill["seconds_left"] == 0


@pytest.mark.parametrize("state", STATES)
def test_why_it_waits_what_differs_and_how_to_undo_it(settings, state):
    page_states.seed(settings, state)
    _, body = shown(settings)
    asked = Asked(settings)
    if body is None:
        assert asked.one("SELECT count(*) FROM rewinds") == 0
        return
    stored = json.loads(asked.one("SELECT body FROM plans"))
    assert body["rewind"]["differences"] == stored["differences"]
    verdict = asked.one("SELECT verdict, reason, counts FROM verdicts ORDER BY attempt DESC LIMIT 1")
    if verdict:
        told = {name: int(count) for name, count in body["verdict"]["counts"].items()}
        assert (body["verdict"]["verdict"], body["verdict"]["reason"], told) == (*verdict[:2], json.loads(verdict[2]))
    over = asked.one("SELECT state FROM rewinds") != "active"
    switched = asked.one("SELECT job_id FROM pointers") == body["rewind"]["job_id"]
    undo = {offer["name"] for offer in body["offers"]} & {"abort", "roll_back"}
    assert undo == ({"roll_back"} if switched else set() if over else {"abort"})
    assert bool(body["rewind"]["waits"]) == _waits(asked)


def _waits(asked):
    """Whether an active rewind cannot go on by itself, by the tables alone."""
    if asked.one("SELECT state FROM rewinds") != "active":
        return False
    running = {step for (step,) in asked.all("SELECT step FROM steps WHERE state = 'running'")}
    failed = asked.one("SELECT count(*) FROM steps WHERE state = 'failed'")
    paused = asked.one("SELECT paused FROM controls")
    return bool(failed or paused or running & {"catch_up", "approve", "observe"})
