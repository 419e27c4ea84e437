"""Airflow's REST API fails now and then: what is tried again, when it ends, and that nothing is done twice."""

from __future__ import annotations

import io
import json
from urllib.error import HTTPError, URLError

import pytest

from rewind.airflow_api.client import PATIENT, AirflowApi, AirflowApiError
from rewind.core.errors import RetryError

LOCKED, AWAY, THERE = 500, URLError("refused"), 409


class Opener:
    """Gives one answer after the other, the last one for ever: a status, an error, or a body."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def open(self, request, timeout):
        self.asked.append((request.get_method(), request.selector, json.loads(request.data or "null")))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, int):
            raise HTTPError(request.full_url, answer, "", {}, io.BytesIO(b'{"detail": "database is locked"}'))
        if isinstance(answer, Exception):
            raise answer
        return io.BytesIO(json.dumps(answer).encode())


@pytest.fixture
def api():
    slept = []

    def make(*answers, pauses=PATIENT):
        made = AirflowApi("http://a", "admin", "secret", pauses, slept.append)
        made._opener, made._token, made.slept = Opener(*answers), "t", slept
        return made

    return make


@pytest.mark.parametrize("failure", [LOCKED, 503, AWAY])
def test_a_run_is_asked_for_again_under_its_own_id_until_it_is_made(api, failure):
    made = api(failure, failure, {"dag_run_id": "of Airflow"})
    assert made.trigger("deploy_a", {"from": "earliest"}) == {"dag_run_id": "of Airflow"}
    bodies = [body for _, _, body in made._opener.asked]
    assert made.slept == [1.0, 2.0]
    assert len(bodies) == 3
    assert len({body["dag_run_id"] for body in bodies}) == 1
    assert bodies[0]["conf"] == {"from": "earliest"}


def test_a_try_that_meets_its_own_run_has_found_it(api):
    made = api(LOCKED, THERE, {"dag_run_id": "mine", "state": "queued"})
    assert made.trigger("deploy_a", {}, "mine") == {"dag_run_id": "mine", "state": "queued"}
    assert [(method, path) for method, path, _ in made._opener.asked] == [
        ("POST", "/api/v2/dags/deploy_a/dagRuns"),
        ("POST", "/api/v2/dags/deploy_a/dagRuns"),
        ("GET", "/api/v2/dags/deploy_a/dagRuns/mine"),
    ]


def test_a_run_that_was_there_before_is_a_refusal(api):
    with pytest.raises(AirflowApiError, match="answered 409"):
        api(THERE).trigger("deploy_a", {}, "mine")


def test_two_runs_have_two_ids(api):
    made = api({"dag_run_id": "x"})
    made.trigger("deploy_a", {})
    made.trigger("deploy_a", {})
    assert len({body["dag_run_id"] for _, _, body in made._opener.asked}) == 2


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (LOCKED, "POST /api/v2/dags/a/dagRuns: Airflow answered 500: database is locked"),
        (AWAY, "Airflow does not answer at http://a: <urlopen error refused>"),
    ],
)
def test_it_ends_as_what_may_be_tried_again_later_in_one_line(api, failure, told):
    made = api(failure)
    with pytest.raises(RetryError) as raised:
        made.trigger("a", {})
    assert (str(raised.value), raised.value.exit_code) == (told, 75)
    assert made.slept == list(PATIENT)


def test_a_refusal_is_not_tried_again(api):
    made = api(422)
    with pytest.raises(AirflowApiError, match="answered 422"):
        made.trigger("a", {})
    assert (len(made._opener.asked), made.slept) == (1, [])


def test_tasks_are_cleared_once(api):
    made = api(LOCKED)
    with pytest.raises(AirflowApiError, match="answered 500"):
        made.clear("a", "r", ["plan"])
    assert (len(made._opener.asked), made.slept) == (1, [])


def test_an_answer_that_an_earlier_try_gave_is_given(api):
    made = api(LOCKED, THERE)
    made.hitl_answer("a", "r", "approve", ["Approve"])
    assert [method for method, _, _ in made._opener.asked] == ["PATCH", "PATCH"]


def test_who_looks_again_by_himself_does_not_wait(api):
    made = api(LOCKED, pauses=(0.0, 0.0))
    with pytest.raises(RetryError):
        made.dag_run("a", "r")
    assert (len(made._opener.asked), made.slept) == (3, [0.0, 0.0])


def test_a_login_is_tried_again_too(api):
    made = api(LOCKED, {"access_token": "u"}, {"dag_run_id": "r"})
    made._token = None
    assert made.dag_run("a", "r") == {"dag_run_id": "r"}
    assert [path for _, path, _ in made._opener.asked][:2] == ["/auth/token"] * 2
