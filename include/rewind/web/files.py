"""Evidence and logs, served from their folders alone."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from rewind.core import names
from rewind.core.errors import RefusedError
from rewind.core.settings import Settings
from rewind.runtime import evidence

TAIL = 64 * 1024
"""Bytes from the end of a log that are shown."""
LONGEST_EVIDENCE = 4 * 1024 * 1024


@dataclass(frozen=True)
class File:
    """A file that can be opened: its name and its size in bytes."""

    name: str
    bytes: int


def logs_folder(settings: Settings, owner: str) -> Path:
    """Return the folder of a stream's logs, which may be missing.

    Raises:
        RefusedError: The owner is no legal name, or the folder is a link.
    """
    return names.inside(settings.home / "logs" / "streams", owner, "owner")


def listed(folder: Path) -> list[File]:
    """Return the files of a folder by name; neither links nor hidden ones."""
    if not folder.is_dir():
        return []
    plain = (path for path in sorted(folder.iterdir()) if path.is_file() and not path.is_symlink())
    return [File(path.name, path.stat().st_size) for path in plain if not path.name.startswith(".")]


def docs_of(folder: Path) -> list[str]:
    """Return the names of the folders with pages of Great Expectations in an evidence folder."""
    return sorted(
        path.parent.name for path in folder.glob(f"{evidence.DOCS}*/index.html") if not path.parent.is_symlink()
    )


def page_below(folder: Path, path: str) -> tuple[bytes, str]:
    """Return a file of pages of Great Expectations and its suffix.

    Raises:
        RefusedError: There is none, or the path leads out of their folders.
    """
    docs = folder.resolve()
    try:
        found = (docs / path).resolve()
        within = found.is_relative_to(docs) and found.relative_to(docs).parts[0:1]
        if within and within[0].startswith(evidence.DOCS) and found.is_file():
            return found.read_bytes(), found.suffix.removeprefix(".")
    except (OSError, ValueError):
        # A name that is too long, or has a NUL in it.
        pass
    raise RefusedError("file", f"{path!r} is unknown", "Choose one that is listed")


@lru_cache(maxsize=64)
def bytes_below(folder: Path, asked: int) -> int | None:  # noqa: ARG001 - the key of what is remembered
    """Return how many bytes the files below a folder have, or None when there is no folder.

    Args:
        folder: The folder, of a state with a file for each version of each partition.
        asked: When it is asked for, in a unit of the caller's: within one, the files are looked at once.
    """
    if not folder.is_dir():
        return None
    total = 0
    # Without a word about folders that are gone: a driver removes what it no longer needs while we look.
    for place, _, names_of_files in os.walk(folder):
        for name in names_of_files:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(f"{place}/{name}").st_size  # noqa: PTH116 - thousands of them
    return total


def tail(folder: Path, name: str, length: int) -> bytes:
    """Return the last bytes of a file of a folder.

    Raises:
        RefusedError: There is none of that name, it is no legal name, or a link.
    """
    path = names.inside(folder, name, "file")
    if not path.is_file():
        raise RefusedError("file", f"{name!r} is unknown", "Choose one that is listed")
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - length))
        return file.read(length)
