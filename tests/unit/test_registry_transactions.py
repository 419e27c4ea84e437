"""A transaction that only reads is a `reading`, and holds up no writer; one that may write is a `writing`."""

from __future__ import annotations

import pytest

from tests.support import registry_calls
from tests.support.registry_calls import Source


@pytest.mark.shows("house", show_5_transactions_opened_for_what_they_do_not=0)
def test_each_transaction_of_the_product_is_opened_for_what_it_does():
    sites = list(Source().sites())
    assert len(sites) > 150
    assert [site for site in sites if site.writes != (site.opener == "writing")] == []


PLANTED = """
from sqlalchemy import insert
from rewind.registry.database import reading, writing

def add(connection):
    connection.execute(insert(table))

def through(connection):
    add(connection)

class Log:
    def keep(self, connection):
        through(connection)

def reads(url):
    with reading(url) as connection:
        return connection.execute(select(table)).all()

def reads_as_the_writer(url):
    with writing(url) as connection:
        return connection.execute(select(table)).all()

def writes_two_calls_away(url):
    with reading(url) as connection:
        through(connection)

def writes_by_a_method(url, log):
    with reading(url) as connection:
        log.keep(connection)

def hands_on(url):
    with reading(url) as connection:
        yield connection

def passes_the_writer_on(url):
    with reading(url) as connection:
        each(connection, add)
"""


def test_what_is_opened_wrongly_is_found(monkeypatch, tmp_path):
    planted = tmp_path / "rewind" / "planted.py"
    planted.parent.mkdir()
    planted.write_text(PLANTED)
    monkeypatch.setattr(registry_calls, "PROJECT", tmp_path)
    monkeypatch.setattr(registry_calls, "TOPS", {"rewind": tmp_path})
    lines = PLANTED.splitlines()
    wrong = [site for site in Source().sites() if site.writes != (site.opener == "writing")]
    found = [lines[int(site.place.rpartition(":")[2]) - 2].split("(")[0].removeprefix("def ") for site in wrong]
    assert found == [
        "reads_as_the_writer",
        "writes_two_calls_away",
        "writes_by_a_method",
        "hands_on",
        "passes_the_writer_on",
    ]
