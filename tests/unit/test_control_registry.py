"""The registry on SQLite: its file, and processes that share it. The rest is `tests/contract/test_registry*.py`."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from sqlalchemy import inspect, select, text

from rewind.core import lifecycle
from rewind.registry import database, schema
from rewind.registry.database import writing
from tests.support.fakes import installation
from tests.support.registry import G2, G3, create, deployed


@pytest.fixture
def url(tmp_path):
    return installation(tmp_path / "home").registry_url


def test_upgrade_makes_every_table_and_is_harmless_again(tmp_path):
    url = f"sqlite:///{tmp_path}/not/there/yet/registry.db"
    for _ in range(2):
        database.upgrade(url)

    assert set(inspect(database.engine(url)).get_table_names()) == {*schema.metadata.tables, "alembic_version"}
    with writing(url) as connection:
        assert connection.execute(select(schema.protocol.c.number)).scalars().all() == [schema.PROTOCOL]
        assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"


SWITCH = """
import sys
from datetime import timedelta
from rewind.registry import generations
from rewind.registry.database import writing
from rewind.core.errors import WorldMovedError
url, new = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
try:
    with writing(url) as connection:
        print(generations.switch(connection, "visits_converter", "visits_converter-g1", new, 1, timedelta(0)))
except WorldMovedError:
    print("moved")
"""


def test_of_racing_processes_one_wins(url, project):
    with writing(url) as connection:
        deployed(connection)
        create(connection, 3, lifecycle.STANDBY)
    command = [sys.executable, "-c", SWITCH, url]
    environment = {"PYTHONPATH": str(project / "include")}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen([*command, job], env=environment, **pipes) for job in (G2, G3)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("\n")
        racer.stdin.flush()

    assert sorted(racer.communicate()[0].strip() for racer in racers) == ["2", "moved"]


def test_vectors_have_text_keys_in_order_in_json():
    assert json.dumps(database.vector_to_json({10: 1, 2: 0})) == '{"2": 0, "10": 1}'
    assert database.vector_from_json({"10": 1, "2": 0}) == {10: 1, 2: 0}
    assert database.vector_from_json(None) == {}
