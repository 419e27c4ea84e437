"""Delta tables that generations write to, as folders: found, told apart and deleted without Spark."""

from __future__ import annotations

import shutil
from pathlib import Path

from rewind.core import names
from rewind.core.errors import RefusedError
from rewind.core.settings import Settings

_MARK = "_rewind_table_id"
"""File with the table's id. Delta leaves files alone that begin with an underscore, and so does VACUUM."""
_LOG = "_delta_log"


def path(settings: Settings, name: str) -> Path:
    """Return the folder of an output table."""
    return names.inside(settings.tables, name, "output.table")


def all_names(settings: Settings) -> list[str]:
    """Return the names of all output tables that exist."""
    return sorted(folder.name for folder in settings.tables.glob("*") if folder.is_dir())


def mark(settings: Settings, name: str, table_id: str) -> None:
    """Write down the id of a table that was made: a table made later under its name has another."""
    place = path(settings, name)
    part = place / f"{_MARK}.part"
    part.write_text(table_id)
    part.replace(place / _MARK)


def id_of(settings: Settings, name: str) -> str | None:
    """Return the id of a table, or None when there is none, or nobody of ours has made it."""
    place = path(settings, name) / _MARK
    return place.read_text() if place.is_file() else None


def delete(settings: Settings, name: str, table_id: str | None) -> bool:
    """Delete a table by name and id; return False when it is gone already.

    Args:
        settings: The installation.
        name: Its name.
        table_id: Its id; None for one whose maker died before it was recorded, which must hold no commit but the first.

    Raises:
        RefusedError: It is another table, or holds data and its id is not recorded.
    """
    place = path(settings, name)
    if not place.exists():
        return False
    if not any(place.iterdir()):
        # All of it was deleted but the folder.
        place.rmdir()
        return True
    if table_id is None:
        commits = [file for file in (place / _LOG).glob("*.json") if file.stem.isdigit()]
        if len(commits) > 1:
            problem = f"table {name} holds commits, and its id is not recorded"
            raise RefusedError("manifest", problem, "Delete it by hand if it is yours")
    elif id_of(settings, name) != table_id:
        problem = f"table {name} has the id {id_of(settings, name)}, not {table_id}: somebody recreated it"
        raise RefusedError("manifest", problem, "Delete it by hand if it is yours")
    # The mark goes last: until then it tells whose the rest is, to whoever goes on with it.
    for each in sorted(place.iterdir(), key=lambda path: path.name == _MARK):
        # Of a link the link goes, and what it leads to stays.
        shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
    place.rmdir()
    return True
