"""The registry, on each database that it may live in: transactions, and what its schema forbids."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import insert, update
from sqlalchemy.exc import IntegrityError

from rewind.core import lifecycle
from rewind.core.errors import RefusedError, RetryError
from rewind.registry import database, generations, rewinds, schema
from rewind.registry.database import now, reading, writing
from rewind.registry.snapshot import snapshot
from tests.support import fakes
from tests.support.registry import G1, G2, a_plan, create

# --- transactions


def test_a_registry_of_newer_code_is_refused(registry):
    database.check_protocol(registry)
    registry.execute(update(schema.protocol).values(number=schema.PROTOCOL + 1))

    with pytest.raises(RefusedError, match=f"speaks protocol {schema.PROTOCOL + 1}, this bundle {schema.PROTOCOL}"):
        database.check_protocol(registry)


def test_a_transaction_is_whole_or_nothing(url):
    def half_done():
        with writing(url) as connection:
            create(connection)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        half_done()

    with writing(url) as connection:
        assert generations.find(connection, G1) is None


def test_a_registry_that_stays_locked_asks_for_a_retry(url):
    with (
        writing(url),
        ThreadPoolExecutor(1) as other,
        pytest.raises(RetryError, match=r"^registry .*: (database is locked|.* lock timeout)$"),
    ):
        other.submit(lambda: writing(url, patience=20).__enter__()).result(20)


def test_on_a_server_one_that_falls_silent_within_a_transaction_loses_it(url, monkeypatch):
    if url.startswith("sqlite"):
        # A file has nobody who could take a lock from a process that lives.
        return
    monkeypatch.setattr(database, "FROZEN_MILLISECONDS", 200)

    def frozen():
        with writing(url) as connection:
            create(connection)
            with ThreadPoolExecutor(1) as other:
                # Gets the lock of the one writer, though nobody gave it back.
                other.submit(lambda: writing(url, patience=10_000).__enter__()).result(20)
            generations.find(connection, G1)

    with pytest.raises(RetryError, match=r"^registry .*: (.*idle.in.transaction.*|.*connection.*closed.*)$"):
        frozen()
    with writing(url) as connection:
        assert generations.find(connection, G1) is None


@pytest.mark.parametrize("opened", [reading, writing, snapshot])
@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("ann:hid%2Aden@127.0.0.1:1/rewind", "ann:***@127.0.0.1:1/rewind"),
        ("ann@127.0.0.1:1/rewind?password=hid%2Aden", "ann@127.0.0.1:1/rewind?password=***"),
        (
            "ann@127.0.0.1:1/rewind?sslpassword=hidden&sslmode=prefer",
            "ann@127.0.0.1:1/rewind?sslmode=prefer&sslpassword=***",
        ),
    ],
)
def test_a_server_out_of_reach_asks_for_a_retry_in_one_line_and_tells_no_password(opened, url, told):
    with pytest.raises(RetryError) as raised, opened(f"postgresql+psycopg://{url}"):
        pass
    assert str(raised.value).startswith(f"registry postgresql+psycopg://{told}: connection failed")
    assert "\n" not in str(raised.value)
    assert database.holds_secret(f"postgresql+psycopg://{url}")


# --- what the schema itself forbids


@pytest.mark.parametrize("state", [lifecycle.LIVE, lifecycle.CANDIDATE])
def test_the_schema_holds_one_live_and_one_candidate_a_pipeline(registry, state):
    create(registry, 1, lifecycle.RETIRED)
    create(registry, 2, lifecycle.RETIRED)
    table = schema.generations
    registry.execute(update(table).where(table.c.job_id == G1).values(state=state))

    with pytest.raises(IntegrityError):
        registry.execute(update(table).where(table.c.job_id == G2).values(state=state))


def test_pipelines_do_not_stand_in_each_others_way(registry):
    create(registry, 1)
    other = replace(fakes.PIPELINE, name="other", output_topic="others")
    generations.create(registry, fakes.generation(other, state="candidate"), None)


def test_the_schema_holds_one_active_rewind_a_pipeline(registry):
    made = a_plan()
    rewinds.store_plan(registry, made)
    row = {
        "pipeline": "visits_converter",
        "plan_id": made.id,
        "job_id": G2,
        "state": "active",
        "reason": "",
        "created_at": now(),
    }
    registry.execute(insert(schema.rewinds).values(id="rw-1", **row))

    with pytest.raises(IntegrityError):
        registry.execute(insert(schema.rewinds).values(id="rw-2", **row))


def test_the_schema_holds_a_pointer_to_a_generation_that_is_there(registry):
    with pytest.raises(IntegrityError):
        registry.execute(insert(schema.pointers).values(pipeline="p", job_id="p-g1", epoch=1, moved_at=now()))


def test_the_schema_holds_each_number_once(registry):
    create(registry, 1, lifecycle.RETIRED)
    with pytest.raises(RefusedError):
        create(registry, 1, lifecycle.RETIRED, job_id="elsewhere-g1")
