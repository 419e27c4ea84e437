"""A registry that is torn, overwritten or gone: told with the cure, and never replaced by an empty one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rewind.core.errors import RetryError
from rewind.registry import database, generations
from rewind.registry.database import reading, writing
from rewind.registry.snapshot import snapshot
from tests.support.fakes import generation, installation


@pytest.fixture
def settings(tmp_path):
    made = installation(tmp_path / "home")
    with writing(made.registry_url) as connection:
        for number in range(1, 60):
            generations.create(connection, generation(number=number, state="retired"), None)
    # What is damaged below must be all that there is: it is in the file when nobody is connected.
    database.engine(made.registry_url).dispose()
    return made


def torn(file: Path):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(file: Path):
    body = bytearray(file.read_bytes())
    body[4_096:] = bytes(byte ^ 0xFF for byte in body[4_096:])
    file.write_bytes(body)


def overwritten(file: Path):
    file.write_bytes(b"x" * 8_192)


@pytest.mark.parametrize("damage", [torn, flipped, overwritten])
@pytest.mark.parametrize("opened", [reading, writing, snapshot])
def test_a_damaged_registry_is_told_with_the_cure(settings, damage, opened):
    damage(Path(settings.registry_url.removeprefix("sqlite:///")))
    told = r"registry sqlite:.*: it is damaged; stop the stack and restore its backup"
    with pytest.raises(RetryError, match=told), opened(settings.registry_url) as connection:
        generations.all_of(connection, "visits_converter")


def test_a_missing_registry_is_told_and_none_is_made(settings):
    file = Path(settings.registry_url.removeprefix("sqlite:///"))
    file.unlink()
    told = rf"registry {file} is missing: stop the stack and restore its backup, or make a new one"
    with pytest.raises(RetryError, match=told), writing(settings.registry_url):
        pass
    assert not file.exists()


def test_a_backup_that_is_put_in_the_place_of_a_registry_is_what_is_written_to(settings):
    file = Path(settings.registry_url.removeprefix("sqlite:///"))
    backup = file.with_name("backup.db")
    backup.write_bytes(file.read_bytes())
    with writing(settings.registry_url) as connection:
        generations.create(connection, generation(number=77, state="retired"), None)
    backup.replace(file)
    for sibling in file.parent.glob(f"{file.name}-*"):
        sibling.unlink()
    with writing(settings.registry_url) as connection:
        assert len(generations.all_of(connection, "visits_converter")) == 59


def test_a_forked_process_shares_no_connection_with_its_parent(settings):
    to_read, to_write = os.pipe()
    with writing(settings.registry_url) as connection:
        mine = connection.connection.dbapi_connection
    child = os.fork()
    if child == 0:
        with writing(settings.registry_url) as connection:
            os.write(to_write, b"its own" if connection.connection.dbapi_connection is not mine else b"the parent's")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(to_read, 99) == b"its own"


@pytest.mark.parametrize("words", ["disk I/O error", "database or disk is full"])
def test_a_full_disk_is_no_damage(words):
    assert database.damage(words) == (
        ": its disk is full or fails; free some of it. If that is not it, stop the stack and restore its backup"
    )
