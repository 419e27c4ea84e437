"""Leases pass on by proof of death alone, and their tokens grow."""

from __future__ import annotations

import socket
import subprocess
from dataclasses import replace
from datetime import datetime

import pytest
from sqlalchemy import update

from rewind.core.errors import LeaseHeldError, LeaseLostError
from rewind.registry import leases, schema
from rewind.registry.database import writing
from rewind.registry.leases import Holder, Process
from tests.support.registry import raced

OWNER = "visits-g1"


@pytest.fixture
def other():
    """Another living process of this host, that ends when it is killed."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


GONE = Holder(socket.gethostname(), "another boot", (Process(1, 1),), 1)


def test_each_taking_has_a_greater_token(registry):
    assert leases.read(registry, OWNER) is None
    assert [leases.take(registry, OWNER, GONE) for _ in range(3)] == [1, 2, 3]
    found = leases.read(registry, OWNER)
    assert (found.owner, found.token, found.holder) == (OWNER, 3, GONE)
    assert leases.take(registry, "visits-g2", GONE) == 1


def test_a_lease_of_a_living_holder_is_not_taken_however_old_it_is(registry, other):
    leases.take(registry, OWNER, replace(leases.this_driver(), processes=(leases.process_of(other.pid),)))
    registry.execute(update(schema.leases).values(renewed_at=datetime.fromisoformat("2000-01-01")))
    with pytest.raises(LeaseHeldError, match=f"{OWNER} is held with token 1"):
        leases.take(registry, OWNER, leases.this_driver())
    assert leases.read(registry, OWNER).token == 1

    other.kill()
    other.wait()
    assert leases.take(registry, OWNER, leases.this_driver()) == 2


def test_a_token_handed_out_meanwhile_is_not_handed_out_twice(registry, monkeypatch):
    leases.take(registry, OWNER, GONE)
    stale = leases.read(registry, OWNER)
    leases.take(registry, OWNER, GONE)
    monkeypatch.setattr(leases, "read", lambda connection, owner: stale)

    with pytest.raises(LeaseHeldError, match="another driver took token 2 first"):
        leases.take(registry, OWNER, leases.this_driver())


def test_only_the_newest_token_is_renewed(registry):
    leases.take(registry, OWNER, GONE)
    before = leases.read(registry, OWNER).renewed_at
    leases.renew(registry, OWNER, 1)
    assert leases.read(registry, OWNER).renewed_at > before

    leases.take(registry, OWNER, GONE)
    with pytest.raises(LeaseLostError, match=f"{OWNER}: token 1 has lost to 2"):
        leases.renew(registry, OWNER, 1)
    with pytest.raises(LeaseLostError, match="has lost to none"):
        leases.renew(registry, "visits-g9", 1)


def test_a_lease_given_back_is_free_although_its_holder_lives(registry):
    leases.take(registry, OWNER, leases.this_driver())
    for _ in range(2):
        leases.give_back(registry, OWNER, 1)
    assert leases.read(registry, OWNER).holder is None
    assert leases.take(registry, OWNER, leases.this_driver()) == 2


def test_an_old_token_gives_nothing_back(registry):
    leases.take(registry, OWNER, GONE)
    leases.take(registry, OWNER, GONE)
    leases.give_back(registry, OWNER, 1)
    assert leases.read(registry, OWNER).holder == GONE


def test_what_becomes_known_of_a_holder_is_noted_for_its_token_alone(registry):
    leases.take(registry, OWNER, GONE)
    noted = replace(GONE, driver="driver-1", run="night-1", orphan=True)
    assert leases.note(registry, OWNER, 1, noted) is True
    assert leases.read_all(registry, [OWNER, "visits-g9"])[OWNER].holder == noted
    assert leases.note(registry, OWNER, 2, GONE) is False
    assert leases.read(registry, OWNER).holder == noted


def test_of_racing_drivers_one_takes_the_lease(url):
    def act(_):
        with writing(url) as connection:
            return leases.take(connection, OWNER, leases.this_driver())

    assert sorted(map(str, raced(act, 4))) == ["1", "LeaseHeldError", "LeaseHeldError", "LeaseHeldError"]


def test_of_racing_drivers_of_a_dead_one_each_token_is_handed_out_once(url):
    def act(_):
        with writing(url) as connection:
            return leases.take(connection, OWNER, GONE)

    assert sorted(raced(act, 4)) == [1, 2, 3, 4]
