"""Who sees what on the page: Airflow's right to read a DAG, for each route and each of two pipelines."""

from __future__ import annotations

import asyncio
import itertools
import re

import pytest
from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser

from rewind.web import offers
from rewind.web.guard import LONGEST_BODY, Guard
from tests.support import page_rights
from tests.support.page_rights import OF_ONE, TRICKS, renamed
from tests.support.page_states import NAME, REWIND_ID, TOPIC

PERSONS = ("read visits", "read orders", "run visits", "run orders", "admin", "nothing at all")


@pytest.fixture(autouse=True)
def rights(monkeypatch):
    """Rights by user name: `read orders` may read the DAGs of orders alone, `run orders` may run them too."""

    def is_authorized_dag(_manager, *, method, user, details=None, **_entity):
        may, _, pipeline = user.username.partition(" ")
        # Whether there is any DAG that one may read says nothing of ours.
        any_dag = details is None or details.id is None
        methods = {"read": ("GET",), "run": ("GET", "POST")}.get(may, ())
        return may == "admin" or any_dag or (details.id.endswith(f"_{pipeline}") and method in methods)

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", is_authorized_dag)


@pytest.fixture
def night(site):
    """Two pipelines of which each has a rewind, nights, evidence and logs; id of a night of the first."""
    return page_rights.seed(site)


@pytest.fixture
def asked(client):
    """A client of a person, or of nobody."""

    def make(person=None):
        made = client()
        if person:
            from airflow.api_fastapi.app import get_auth_manager

            token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=person, role="viewer"))
            made.headers["Authorization"] = f"Bearer {token}"
        return made

    return make


def expected(person, pipeline):
    if person is None:
        return 401
    return 200 if person == "admin" or person.endswith(f" {pipeline}") else 403


@pytest.mark.shows("secure", routes_of_one_pipeline="11 x 7 persons x 2 pipelines as the table says")
def test_what_is_one_pipelines_is_shown_to_its_readers_alone(asked, night):
    paths = [path.replace("NIGHT", night) for path in OF_ONE]
    found = {
        (person, pipeline, path): asked(person).get(f"/rewind/{path}").status_code
        for person in (None, *PERSONS)
        for pipeline, of in ((NAME, paths), ("orders", list(map(renamed, paths))))
        for path in of
    }
    assert found == {(person, pipeline, path): expected(person, pipeline) for person, pipeline, path in found}


@pytest.mark.shows("secure", lists="overview, history and metrics: 0 names of hidden pipelines")
def test_lists_hold_what_their_reader_sees(asked, night):
    for person, path in itertools.product(PERSONS, ("api/overview", "api/history", "metrics")):
        answer = asked(person).get(f"/rewind/{path}")
        told = set(re.findall("visits|orders|clicks|baskets", answer.text))
        seen = [
            (name, topic) for name, topic in ((NAME, TOPIC), ("orders", "baskets")) if expected(person, name) == 200
        ]
        assert (answer.status_code, told - {TOPIC, "baskets"}) == (200, {name for name, _ in seen}), (person, path)
        assert told & {TOPIC, "baskets"} <= {topic for _, topic in seen}, (person, path)


def test_the_page_itself_is_shown_to_who_is_signed_in(asked, night):
    for path in ("", "assets/page.css"):
        assert [asked(person).get(f"/rewind/{path}").status_code for person in (None, *PERSONS)] == [401] + [200] * 6


@pytest.mark.shows("secure", actions="8 x 7 persons x 2 pipelines as the table says")
def test_an_action_needs_both_rights(asked, night):
    rewinds = ((NAME, REWIND_ID), ("orders", renamed(REWIND_ID)))
    for person, (pipeline, rewind), action in itertools.product((None, *PERSONS), rewinds, offers.DAGS):
        # A body that no action takes: who may act is told so, and nothing is done.
        answer = asked(person).post(f"/rewind/api/rewinds/{rewind}/actions/{action}", json={"nonsense": 1})
        may = person in ("admin", f"run {pipeline}")
        assert answer.status_code == (401 if person is None else 422 if may else 403), (person, pipeline, action)


def test_what_nobody_knows_is_told_to_nobody(asked, night):
    for path in ("api/rewinds/rw-none", "api/generations/orders-g9", "api/streams/orders-g9/logs/driver.1.log"):
        answer = asked("read visits").get(f"/rewind/{path}")
        assert (answer.status_code, "basket" in answer.text) == (404, False)


@pytest.mark.shows("secure", tricks="21, 0 leaks")
def test_no_trick_shows_another_pipeline(asked, night):
    client = asked("read visits")
    for path, headers in TRICKS:
        answer = client.get(f"/rewind/{path}", headers=headers)
        assert answer.status_code in (200, 403, 404), path
        # A refusal may say once more what was asked for.
        told = "a row of orders" if answer.status_code != 200 else "a row of orders|baskets|orders-g|orders_out"
        assert not re.search(told, answer.text), path


FOREIGN = [
    {"Origin": "https://elsewhere.test"},
    {"Origin": "null"},
    {"Origin": "http://airflow.test", "Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://airflow.test", "Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Origin": "http://airflow.test.elsewhere.test"},
    {"Origin": "http://airflow.test:81"},
]
OUR_OWN = [{}, {"Origin": "http://airflow.test"}, {"Origin": "http://a.test", "Sec-Fetch-Site": "same-origin"}]


def test_another_site_does_not_act(asked, night):
    client, url = asked("run visits"), f"/rewind/api/rewinds/{REWIND_ID}/actions/pause"
    for headers in FOREIGN:
        answer = client.post(url, json={"nonsense": 1}, headers=headers)
        assert (answer.status_code, "may not act here" in answer.text) == (403, True), headers
    for headers in OUR_OWN:
        # Not what the action takes, as a body that was read is told.
        assert client.post(url, json={"nonsense": 1}, headers=headers).status_code == 422, headers


def test_a_body_that_nobody_sends_is_not_read(asked, night):
    url = f"/rewind/api/rewinds/{REWIND_ID}/actions/pause"
    assert asked().post(url, content=b" " * (LONGEST_BODY + 1)).status_code == 413
    assert asked().post(url, content=b" " * LONGEST_BODY).status_code == 401


def test_of_a_body_whose_length_is_not_told_no_more_is_read():
    given, sent = [], []

    async def receive():
        given.append(1)
        return {"type": "http.request", "body": b" " * 1024, "more_body": True}

    async def send(message):
        sent.append(message)

    async def app(*_):
        raise AssertionError

    scope = {"type": "http", "method": "POST", "path": "/", "headers": []}
    asyncio.run(Guard(app)(scope, receive, send))
    assert (sent[0]["status"], len(given)) == (413, LONGEST_BODY // 1024 + 1)
