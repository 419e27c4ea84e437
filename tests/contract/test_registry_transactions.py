"""Reading and writing: a reader sees one instant, waits for nobody and changes nothing; there is one writer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, text
from sqlalchemy.exc import DBAPIError

from rewind.core.errors import RetryError
from rewind.registry import schema
from rewind.registry.database import reading, writing


def names(connection: Connection) -> list[str]:
    return sorted(connection.execute(select(schema.manifest.c.name)).scalars())


def own(connection: Connection, name: str) -> None:
    connection.execute(insert(schema.manifest).values(job_id="a-g1", kind="topic", name=name, state="named"))


def elsewhere(body: Callable[[], Any]) -> Any:
    """Run something in a thread of its own, and return what it returned or raised."""
    came: list[Any] = []

    def run() -> None:
        try:
            came.append(body())
        except Exception as error:  # noqa: BLE001 - handed over
            came.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    return came[0]


def test_a_reader_sees_one_instant_and_waits_for_no_writer(url):
    with writing(url) as connection:
        own(connection, "before")

    def read():
        with reading(url) as connection:
            return names(connection)

    with writing(url) as writer:
        own(writer, "meanwhile")
        assert elsewhere(read) == ["before"]
    with reading(url) as reader:
        assert names(reader) == ["before", "meanwhile"]
        assert elsewhere(lambda: write(url, "after")) is None, "a writer waits for no reader"
        assert names(reader) == ["before", "meanwhile"]
    assert read() == ["after", "before", "meanwhile"]


def write(url: str, name: str) -> None:
    with writing(url, patience=1_000) as connection:
        own(connection, name)


@pytest.mark.shows("house", show_5_writes_of_a_reading="refused by the database")
def test_a_reader_cannot_write_and_its_connection_can_again(url):
    with pytest.raises((RetryError, DBAPIError), match=r"(?i)read-?only"), reading(url) as connection:
        connection.execute(text("DELETE FROM manifest"))
    for number in range(3):
        write(url, f"n{number}")
        with reading(url) as connection:
            assert len(names(connection)) == number + 1


def test_a_second_writer_waits_no_longer_than_it_says(url):
    with writing(url) as connection:
        own(connection, "first")
        assert isinstance(elsewhere(lambda: write(url, "second")), RetryError)
    with reading(url) as connection:
        assert names(connection) == ["first"]
