"""The page within a real Airflow API app: its rights, its refusals, and what it says when there is nothing to say."""

from __future__ import annotations

import sqlite3

import pytest
from airflow.api_fastapi import app as airflow_app
from airflow.api_fastapi.auth.managers.base_auth_manager import COOKIE_NAME_JWT_TOKEN
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient

from rewind.registry import database, rewinds
from rewind.views import change_count
from rewind.web import offers
from tests.support import page_states
from tests.support.airflow_page import PLUGIN, ROLES, load_plugin
from tests.support.page_states import HOSTILE, LIVE, REWIND_ID

FILLED = {
    "rewind_id": REWIND_ID,
    "job_id": LIVE,
    "owner": LIVE,
    "name": "page.css",
    "path": "data-docs-1/index.html",
    "action": offers.ABORT,
    "pipeline": page_states.NAME,
    "one": REWIND_ID,
    "other": REWIND_ID,
}
TOKEN = "t" * 32


def routes(page):
    return [
        (method, "/rewind" + r.path.replace(":path", "").format(**FILLED), r.path)
        for r in page.routes
        for method in sorted(r.methods)
    ]


def ask(client, method, path):
    body = {"json": {}} if method == "POST" else {}
    query = "?dag_id=rewind_visits&run_id=r1" if path.endswith("/api/run") else ""
    return client.request(method, path + query, **body)


def test_the_routes_are_those_that_the_matrix_covers(page):
    assert sorted((method, path) for method, _, path in routes(page)) == [
        ("GET", "/"),
        ("GET", "/api/compare/{one}/{other}"),
        ("GET", "/api/generations/{job_id}"),
        ("GET", "/api/history"),
        ("GET", "/api/overview"),
        ("GET", "/api/rewinds/{rewind_id}"),
        ("GET", "/api/rewinds/{rewind_id}/docs/{path:path}"),
        ("GET", "/api/rewinds/{rewind_id}/evidence/{name}"),
        ("GET", "/api/run"),
        ("GET", "/api/streams/{owner}/logs/{name}"),
        ("GET", "/assets/{name}"),
        ("GET", "/metrics"),
        ("GET", "/pointer/{pipeline}"),
        ("POST", "/api/rewinds/{rewind_id}/actions/{action}"),
    ]


def test_no_route_answers_without_a_login(page, client, site):
    page_states.seed(site, "backfilling")
    found = {(method, path): ask(client(), method, path).status_code for method, path, _ in routes(page)}
    assert set(found.values()) == {401}


def test_a_forged_token_is_refused(client, site):
    asked = client()
    asked.headers["Authorization"] = "Bearer abc.def.ghi"
    assert asked.get("/rewind/api/overview").status_code == 403


@pytest.fixture
def token(site, tmp_path, monkeypatch):
    """The file of the read-only token, as the site names it."""
    path = tmp_path / "read-token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    monkeypatch.setenv("REWIND_READ_TOKEN_FILE", str(path))
    return path


def bearing(client, given):
    made = client()
    made.headers["Authorization"] = f"Bearer {given}"
    return made


def test_the_read_only_token_opens_pointer_and_metrics_and_nothing_else(page, client, site, token):
    page_states.seed(site, "backfilling")
    asked = bearing(client, TOKEN)
    found = {(method, path): ask(asked, method, path).status_code for method, path, _ in routes(page)}
    assert {route for route, code in found.items() if code == 200} == {
        ("GET", "/rewind/metrics"),
        ("GET", "/rewind/pointer/visits"),
    }
    assert set(found.values()) == {200, 403}
    assert asked.get("/rewind/pointer/visits").json()["output_topic"] == "visits_out-g1"
    assert "rewind_registry_up 1" in asked.get("/rewind/metrics").text
    assert asked.post("/rewind/metrics").status_code == 405
    unknown = asked.get("/rewind/pointer/nothing")
    assert (unknown.status_code, unknown.headers["content-type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.parametrize("given", ["t" * 31, "t" * 33, "", "T" * 32])
def test_another_token_opens_nothing(client, site, token, given):
    page_states.seed(site, "backfilling")
    assert bearing(client, given).get("/rewind/metrics").status_code in {401, 403}


def test_a_token_that_others_can_read_or_that_is_short_opens_nothing(client, site, token):
    page_states.seed(site, "backfilling")
    asked = bearing(client, TOKEN)
    token.chmod(0o644)
    assert asked.get("/rewind/metrics").status_code == 403
    token.chmod(0o600)
    assert asked.get("/rewind/metrics").status_code == 200
    token.write_text("short")
    assert bearing(client, "short").get("/rewind/metrics").status_code == 403


def test_without_a_token_file_no_token_is_right(client, site):
    page_states.seed(site, "backfilling")
    assert bearing(client, "").get("/rewind/metrics").status_code == 401


def test_a_page_of_evidence_may_show_itself_and_nothing_more(client, site):
    page_states.seed(site, "backfilling")
    folder = site.evidence / REWIND_ID
    folder.mkdir(parents=True)
    (folder / "verdict-1.html").write_text("<!doctype html><style></style>")
    answer = client("viewer").get(f"/rewind/api/rewinds/{REWIND_ID}/evidence/verdict-1.html")
    assert (answer.headers["content-type"], answer.text[:15]) == ("text/html; charset=utf-8", "<!doctype html>")
    policy = answer.headers["content-security-policy"].split("; ")
    own = ["style-src 'self' 'unsafe-inline'", "img-src 'self'"]
    assert policy == ["default-src 'none'", *own, "sandbox", "frame-ancestors 'self'"]


@pytest.mark.parametrize("role", ROLES)
def test_each_role_reads(page, client, site, role):
    page_states.seed(site, "backfilling")
    docs = site.evidence / REWIND_ID / "data-docs-1"
    kept = ((docs.parent, "page.css"), (docs, "index.html"), (logs(site), "page.css"))
    for folder, name in kept:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("kept")
    found = {path: ask(client(role), "GET", path).status_code for method, path, _ in routes(page) if method == "GET"}
    assert set(found.values()) == {200}, found


def logs(site):
    return site.home / "logs" / "streams" / LIVE


@pytest.mark.parametrize("action", offers.DAGS)
def test_a_viewer_acts_on_nothing(client, site, action):
    page_states.seed(site, "backfilling")
    answer = client("viewer").post(f"/rewind/api/rewinds/{REWIND_ID}/actions/{action}", json={"reason": "x", "rate": 5})
    assert (answer.status_code, answer.json()["detail"]) == (
        403,
        f"running {offers.dag_of(action, 'visits')} is not allowed to you",
    )
    with database.writing(site.registry_url) as connection:
        assert rewinds.controls(connection, REWIND_ID) == (False, None)


REASONED = {offers.APPROVE, offers.REJECT, offers.ABORT, offers.ROLL_BACK}


@pytest.mark.parametrize("action", offers.DAGS)
def test_an_action_refuses_what_it_does_not_know(client, site, action):
    page_states.seed(site, "backfilling")
    bodies = [({"nonsense": 1}, f'nonsense: {action} does not know "nonsense". Known: ')]
    if action in REASONED:
        bodies += [
            ({"raeson": "x"}, f'raeson: {action} does not know "raeson". Did you mean "reason"? Known: reason'),
            ({"reason": 5}, "reason: 5 is not of type 'string', 'null'"),
            ({"reason": ""}, "reason: is empty"),
            ({"reason": "x" * 2_001}, "reason: 'xxx"),
        ]
    elif action == offers.THROTTLE:
        bodies += [
            ({"rat": 5}, 'rat: throttle does not know "rat". Did you mean "rate"? Known: rate'),
            ({"rate": "5"}, "rate: '5' is not of type 'integer', 'null'"),
            ({"rate": ""}, "rate: is empty"),
            ({"rate": 0}, "rate: 0 is less than the minimum of 1"),
        ]
    else:
        bodies.append(({"rate": 5}, f'rate: {action} does not know "rate". Known: nothing'))
    before = change_count.number(site.registry_url)
    for body, told in bodies:
        answer = client("user").post(f"/rewind/api/rewinds/{REWIND_ID}/actions/{action}", json=body)
        assert (answer.status_code, answer.json()["detail"].startswith(told)) == (422, True), answer.text
    assert change_count.number(site.registry_url) == before


def test_a_pace_is_set_and_lifted(client, site):
    page_states.seed(site, "backfilling")
    url = f"/rewind/api/rewinds/{REWIND_ID}/actions/throttle"
    assert client("user").post(url, json={"rate": 5}).json() == {"done": "at most 5 records/s"}
    assert client("user").post(url, json={"rate": None}).json() == {"done": "no limit"}


def test_what_is_not_allowed_is_shown_so(client, site):
    page_states.seed(site, "backfilling")
    allowed = {
        role: {offer["allowed"] for offer in client(role).get(f"/rewind/api/rewinds/{REWIND_ID}").json()["offers"]}
        for role in ROLES
    }
    assert allowed == {"viewer": {False}, "user": {True}, "op": {True}, "admin": {True}}


def test_who_may_run_the_dag_pauses_and_throttles(client, site):
    page_states.seed(site, "backfilling")
    base = f"/rewind/api/rewinds/{REWIND_ID}/actions"
    user = client("user")
    assert user.post(f"{base}/throttle", json={"rate": 500}).json() == {"done": "at most 500 records/s"}
    assert user.post(f"{base}/pause", json={}).json() == {"done": "paused after its chunk"}
    again = user.post(f"{base}/pause", json={})
    assert (again.status_code, again.json()["detail"]) == (
        409,
        f"action: pause is not possible for {REWIND_ID} now. Look at the page again",
    )
    with database.writing(site.registry_url) as connection:
        assert rewinds.controls(connection, REWIND_ID) == (True, 500)


def test_a_form_of_another_site_does_nothing(client, site):
    """A plain form cannot send JSON; nor does Airflow's cookie travel with it."""
    page_states.seed(site, "backfilling")
    answer = client("user").post(f"/rewind/api/rewinds/{REWIND_ID}/actions/pause", content="{}")
    assert answer.status_code == 422


def test_a_run_is_asked_for_from_airflow_itself_as_the_person(client, site):
    page_states.seed(site, "backfilling")
    answer = client("user").post(f"/rewind/api/rewinds/{REWIND_ID}/actions/abort", json={"reason": "no"})
    # No DAG was ever parsed here: that the API says so shows that it was reached, with the person's token.
    assert (answer.status_code, answer.json()["detail"]) == (
        409,
        "airflow: answered 404: Dag with dag_id: 'abort_visits' not found. Look at the DAG's page",
    )


def test_the_cookie_of_airflows_page_is_a_login_too(client, site):
    page_states.seed(site, "deployed")
    asked = client()
    token = airflow_app.get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="viewer", role="viewer"))
    asked.cookies.set(COOKIE_NAME_JWT_TOKEN, token)
    assert asked.get("/rewind/api/overview").status_code == 200


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("api/rewinds/rw-none", "rewind_id: rewind 'rw-none' is unknown. Look at `python -m rewind status`"),
        (
            "api/rewinds/rw-none/evidence/x.json",
            "rewind_id: rewind 'rw-none' is unknown. Look at `python -m rewind status`",
        ),
        (
            "api/streams/visits-g9/logs/x.log",
            "owner: 'visits-g9' is no mirror. A mirror's owner looks like mirror-visits",
        ),
        (f"api/rewinds/{REWIND_ID}/docs/%00", "file: '\\x00' is unknown. Choose one that is listed"),
        (f"api/rewinds/{REWIND_ID}/docs/{'x' * 300}", f"file: '{'x' * 300}' is unknown. Choose one that is listed"),
        ("api/generations/visits-g9", "job_id: 'visits-g9' is unknown. Look at `python -m rewind status`"),
        (f"api/rewinds/{REWIND_ID}/evidence/none.json", "file: 'none.json' is unknown. Choose one that is listed"),
    ],
)
def test_what_is_unknown_is_404_in_plain_words(client, site, path, text):
    page_states.seed(site, "backfilling")
    answer = client("viewer").get(f"/rewind/{path}")
    assert (answer.status_code, answer.text, answer.headers["content-type"]) == (404, text, "text/plain; charset=utf-8")


@pytest.mark.parametrize("name", ["..%2Fsecret", "%2e%2e", "%2e%2e%2fsecret", "link", ".hidden"])
def test_no_path_leads_out_of_the_evidence(client, site, name):
    page_states.seed(site, "backfilling")
    folder = site.evidence / REWIND_ID
    folder.mkdir(parents=True)
    (folder.parent / "secret").write_text("secret")
    (folder / ".hidden").write_text("secret")
    (folder / "link").symlink_to(folder.parent / "secret")
    answer = client("admin").get(f"/rewind/api/rewinds/{REWIND_ID}/evidence/{name}")
    assert answer.status_code == 404
    assert "secret" not in answer.text.replace("..", "").replace("/secret", "")


def test_an_empty_registry_says_so(client, site):
    answer = client("viewer").get("/rewind/api/overview")
    assert answer.status_code == 200
    body = answer.json()
    (problem,) = body["problems"]
    assert problem.startswith(f"registry: there is none at {site.home}/registry.db. Start the stack")
    assert [(card["name"], card["answer"]) for card in body["pipelines"]] == [("visits", "nothing is deployed")]
    assert client("viewer").get(f"/rewind/api/rewinds/{REWIND_ID}").status_code == 404


def test_a_locked_registry_says_so_and_nothing_more(client, site, monkeypatch):
    page_states.seed(site, "deployed")
    monkeypatch.setattr("rewind.registry.snapshot.BUSY_MILLISECONDS", 50)
    database.engine(site.registry_url).dispose()
    holder = sqlite3.connect(site.home / "registry.db", isolation_level=None)
    holder.execute("PRAGMA journal_mode=DELETE")
    holder.execute("BEGIN EXCLUSIVE")
    try:
        for path in ("api/overview", "api/history", f"api/rewinds/{REWIND_ID}", f"api/generations/{LIVE}"):
            answer = client("viewer").get(f"/rewind/{path}")
            assert (answer.status_code, answer.headers["content-type"]) == (503, "text/plain; charset=utf-8")
            assert answer.text == f"registry sqlite:///{site.home}/registry.db: database is locked"
    finally:
        holder.close()


def test_an_airflow_without_an_installation_says_so(client, monkeypatch, page):
    monkeypatch.delenv("REWIND_HOME", raising=False)
    answer = client("viewer").get("/rewind/api/overview")
    assert (answer.status_code, answer.text) == (
        503,
        "REWIND_HOME: is not set. Start the stack with `make up`, or export it",
    )


def test_texts_of_users_are_data(client, site):
    page_states.seed(site, "failed verdict")
    answer = client("viewer").get(f"/rewind/api/rewinds/{REWIND_ID}")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json()["verdict"]["reason"] == HOSTILE


def test_what_did_not_change_is_not_sent_again(client, site):
    page_states.seed(site, "deployed")
    asked = client("viewer")
    first = asked.get("/rewind/api/overview")
    again = asked.get("/rewind/api/overview", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    with database.writing(site.registry_url) as connection:
        page_states.begun(connection)
    assert asked.get("/rewind/api/overview", headers={"If-None-Match": first.headers["etag"]}).status_code == 200


def test_nothing_may_run_that_the_page_does_not_bring(client, site):
    policy = client("viewer").get("/rewind/").headers["content-security-policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy


def test_airflow_shows_it_in_its_navigation_and_as_a_tab_of_a_run(client, airflow):
    found = client("admin").get("/api/v2/plugins").json()["plugins"]
    (plugin,) = [plugin for plugin in found if plugin["name"] == "rewind"]
    assert [(view["destination"], view["url_route"], view["href"]) for view in plugin["external_views"]] == [
        ("nav", "rewind", "/rewind/"),
        ("dag_run", "rewind_run", "/rewind/?dag_id={DAG_ID}&run_id={RUN_ID}"),
    ]


def test_the_page_is_closed_when_airflows_rules_cannot_be_loaded(monkeypatch, site):
    import airflow.api_fastapi.core_api.security as security

    monkeypatch.delattr(security, "GetUserDep")
    app = load_plugin().RewindPlugin.fastapi_apps[0]["app"]
    asked = TestClient(app)
    found = {ask(asked, method, path.removeprefix("/rewind")).status_code for method, path, _ in routes(app)}
    assert found == {403}


def test_the_plugin_has_no_helper_beside_it():
    """Airflow imports each Python file below the folder under its bare stem."""
    assert [path.name for path in PLUGIN.parent.rglob("*.py")] == [PLUGIN.name]
