"""A declared death: for one token, kept for ever, and the driver that was alive after all has lost."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta

import pytest
from sqlalchemy import select, update

from rewind.cli import main
from rewind.core.errors import LeaseHeldError, LeaseLostError, RefusedError, WorldMovedError
from rewind.registry import leases, schema, streams
from rewind.registry.database import now, writing
from rewind.runtime.drivers import declared_dead, guard
from rewind.runtime.drivers.guard import Guard, lock_file
from tests.support.fakes import installation

OWNER = "visits-g1"
HOLD = """
import os, sys
from rewind.runtime.drivers.guard import Guard
from rewind.core.settings import from_environment
with Guard(from_environment(os.environ), "visits-g1") as guard:
    print(guard.token, flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def settings(tmp_path):
    return installation(tmp_path / "home")


@pytest.fixture
def frozen(settings, project):
    """Another process that holds the lease, and lives."""
    environment = {**os.environ, **settings.environment(), "PYTHONPATH": str(project / "include")}
    command = [sys.executable, "-c", HOLD]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as held:
        assert held.stdout.readline() == "1\n"
        with writing(settings.registry_url) as connection:
            streams.wish(connection, OWNER, streams.GENERATION, streams.RUN)
            streams.set_launched(connection, OWNER, {"pid": held.pid, "started": 1})
        yield held
        held.kill()


def test_only_a_declaration_lets_another_driver_in(settings, frozen):
    with pytest.raises(LeaseHeldError), Guard(settings, OWNER):
        pass
    assert declared_dead.declare(settings, OWNER, 1, "ann", "its host burnt", stopped=True).token == 1
    with writing(settings.registry_url) as connection:
        row = connection.execute(select(schema.deaths)).one()
        assert (row.owner, row.token, row.person, row.reason) == (OWNER, 1, "ann", "its host burnt")
        assert row.holder["processes"][0]["pid"] == frozen.pid
        assert streams.needed(connection, OWNER).launched is None
        with pytest.raises(LeaseLostError, match="token 1 has lost to 2"):
            leases.renew(connection, OWNER, 1)
    with Guard(settings, OWNER) as held:
        assert held.token == 3
        with pytest.raises(WorldMovedError, match=f"token: {OWNER} is held with token 3, not 1"):
            declared_dead.declare(settings, OWNER, 1, "ann", "once more")


def test_what_was_not_declared_stays(settings, frozen):
    with pytest.raises(RefusedError, match="reason: is empty"):
        declared_dead.declare(settings, OWNER, 1, "ann", " ")
    with pytest.raises(WorldMovedError, match="token: "):
        declared_dead.declare(settings, OWNER, 2, "ann", "sure")
    with pytest.raises(RefusedError, match="owner: nobody holds the lease of 'other'"):
        declared_dead.declare(settings, "other", 1, "ann", "sure")
    with writing(settings.registry_url) as connection:
        assert leases.read(connection, OWNER).token == 1
        assert streams.needed(connection, OWNER).launched is not None
    assert lock_file(settings.home, OWNER).exists()


def test_one_that_may_only_have_lost_the_registry_keeps_its_lease_until_it_has_ended_itself(settings, frozen):
    def silent(seconds):
        with writing(settings.registry_url) as connection:
            connection.execute(update(schema.leases).values(renewed_at=now() - timedelta(seconds=seconds)))

    silent(guard.REGISTRY_AWAY_SECONDS + 55)
    with pytest.raises(
        RefusedError, match=r"token: a driver of \S+ that only lost the registry may write until .* --stopped"
    ):
        declared_dead.declare(settings, OWNER, 1, "ann", "looked dead")
    with writing(settings.registry_url) as connection:
        assert leases.read(connection, OWNER).token == 1
    silent(guard.REGISTRY_AWAY_SECONDS + 61)
    assert declared_dead.declare(settings, OWNER, 1, "ann", "looked dead").token == 1


def test_the_command_tells_before_it_acts(settings, frozen, monkeypatch, capsys):
    for name, value in settings.environment().items():
        monkeypatch.setenv(name, value)
    assert main.main(["declare-dead", OWNER]) == 0
    told = capsys.readouterr().out
    assert f"{OWNER}: token 1 is held by Holder(" in told
    assert "lives, or may live" in told
    assert f"rewind declare-dead {OWNER} --token 1 --reason" in told
    assert main.main(["declare-dead", OWNER, "--token", "1"]) == RefusedError.exit_code
    assert main.main(["declare-dead", OWNER, "--token", "1", "--reason", "stopped by hand", "--stopped"]) == 0
    assert "is declared dead" in capsys.readouterr().out


def test_a_driver_that_has_lost_is_told_without_the_registry(settings):
    with Guard(settings, OWNER) as held:
        held.check_token()
        declared_dead.declare(settings, OWNER, 1, "ann", "looked dead", stopped=True)
        with pytest.raises(LeaseLostError):
            held.check()


def test_the_lease_of_a_step_can_be_declared_dead_too(settings):
    gone = leases.Holder("burnt", "boot", (leases.Process(1, 1),), 1)
    with writing(settings.registry_url) as connection:
        leases.take(connection, "rw-1.backfill", gone)
    declared_dead.declare(settings, "rw-1.backfill", 1, "ann", "its host burnt", stopped=True)
    with writing(settings.registry_url) as connection:
        assert leases.take(connection, "rw-1.backfill", gone) == 3
