"""The read-only token, and the server outside of Airflow that asks for it."""

from __future__ import annotations

import threading
import urllib.error
import urllib.request

import pytest

from rewind.cli import pointer_server
from rewind.control import database
from rewind.control.read_token import from_environment, presented
from rewind.core.errors import RefusedError

TOKEN = "t" * 32


def test_it_comes_from_the_environment_or_a_file(tmp_path):
    kept = tmp_path / "token"
    kept.write_text(f"{TOKEN}\n")
    kept.chmod(0o600)
    assert from_environment({}) is None
    assert from_environment({"REWIND_READ_TOKEN": ""}) is None
    assert from_environment({"REWIND_READ_TOKEN": TOKEN}) == TOKEN
    assert from_environment({"REWIND_READ_TOKEN": "u" * 32, "REWIND_READ_TOKEN_FILE": str(kept)}) == TOKEN


@pytest.mark.parametrize(("mode", "text", "problem"), [(0o640, TOKEN, "open to others"), (0o600, "short", "fewer")])
def test_a_file_that_cannot_be_used_is_refused(tmp_path, mode, text, problem):
    kept = tmp_path / "token"
    kept.write_text(text)
    kept.chmod(mode)
    with pytest.raises(RefusedError, match=problem):
        from_environment({"REWIND_READ_TOKEN_FILE": str(kept)})
    with pytest.raises(RefusedError, match="cannot be read"):
        from_environment({"REWIND_READ_TOKEN_FILE": str(tmp_path / "none")})


@pytest.mark.parametrize(
    ("header", "token", "opens"),
    [
        (f"Bearer {TOKEN}", TOKEN, True),
        (f"bearer {TOKEN}", TOKEN, True),
        (f"Basic {TOKEN}", TOKEN, False),
        (TOKEN, TOKEN, False),
        ("Bearer ", TOKEN, False),
        ("", TOKEN, False),
        ("Bearer None", None, False),
        ("Bearer ", None, False),
        ("Bearer \u00e4", TOKEN, False),
    ],
)
def test_it_is_presented_whole_and_as_a_bearer_token(header, token, opens):
    assert presented(header, token) is opens


@pytest.fixture
def served(make_settings):
    settings = make_settings()
    database.upgrade(settings.registry_url)
    made = pointer_server.server(settings, "127.0.0.1", 0, TOKEN)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{made.server_address[1]}"
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.mark.parametrize("path", ["/metrics", "/pointer/visits", "/"])
def test_the_server_asks_for_it_when_one_is_set(served, path):
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(urllib.request.Request(served + path, headers=headers), timeout=20)
        assert (refused.value.code, refused.value.headers["WWW-Authenticate"]) == (401, "Bearer")


def test_the_server_answers_who_presents_it(served):
    asked = urllib.request.Request(f"{served}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(asked, timeout=20) as answer:
        assert b"rewind_registry_up 1" in answer.read()
