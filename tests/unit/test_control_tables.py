"""Tables as folders: a deletion that died is gone on with, and another's table is left alone."""

from __future__ import annotations

import os

import pytest

from rewind.core.errors import RefusedError
from rewind.runtime import tables
from tests.support import fakes

NAME = "visits-out-g1"
OPERATIONS = 9
"""Files and folders of the table."""


@pytest.fixture
def settings(tmp_path):
    made = fakes.installation(tmp_path)
    place = tables.path(made, NAME)
    (place / "_delta_log").mkdir(parents=True)
    for n in range(3):
        (place / "_delta_log" / f"{n:020d}.json").touch()
        (place / f"part-{n}.parquet").touch()
    tables.mark(made, NAME, "id")
    return made


def test_a_table_is_deleted_by_its_id_once(settings):
    assert tables.delete(settings, NAME, "id")
    assert (tables.all_names(settings), tables.delete(settings, NAME, "id")) == ([], False)


@pytest.mark.parametrize("table_id", ["other", None])
def test_another_table_is_left_alone(settings, table_id):
    with pytest.raises(RefusedError, match="Delete it by hand if it is yours"):
        tables.delete(settings, NAME, table_id)
    assert tables.id_of(settings, NAME) == "id"
    assert len(list(tables.path(settings, NAME).iterdir())) == 5


@pytest.mark.parametrize("dies_at", range(OPERATIONS))
def test_a_deletion_that_died_is_gone_on_with(settings, monkeypatch, dies_at):
    removed = []

    def dying(remove):
        def around(path, **more):
            if len(removed) == dies_at:
                raise KeyboardInterrupt
            removed.append(path)
            remove(path, **more)

        return around

    with monkeypatch.context() as patched:
        for name in ("unlink", "rmdir"):
            patched.setattr(os, name, dying(getattr(os, name)))
        with pytest.raises(KeyboardInterrupt):
            tables.delete(settings, NAME, "id")
    assert tables.path(settings, NAME).exists()
    assert tables.delete(settings, NAME, "id")
    assert tables.all_names(settings) == []


def test_a_deletion_takes_as_many_operations_as_are_tried(settings, monkeypatch):
    removed = []
    for name in ("unlink", "rmdir"):
        remove = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, remove=remove, **k: (removed.append(a), remove(*a, **k)))
    tables.delete(settings, NAME, "id")
    assert len(removed) == OPERATIONS
