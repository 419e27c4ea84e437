"""What can go wrong in set-up, in one line each, with what to do about it."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from provision.places import HOME, VENV, shown

RESUMES = "then run `make setup` again: what is complete is kept"
FULL_BELOW = 8 * 2**20
"""Bytes: where so few are free, a failure is for want of room whatever it says; its log may be empty for the same."""

_NO_ROOM = re.compile(r"no space left on device|os error 28\b|disk quota exceeded", re.IGNORECASE)
_WRONG_HASH = re.compile(
    r"hash mismatch for `(?P<uv>[^`]+)`|do not match the hashes.*?(?P<pip>\w\S*) from ", re.DOTALL | re.IGNORECASE
)
_NO_ENSUREPIP = re.compile(r"ensurepip is not available|No module named '?ensurepip")
_UNREACHABLE = re.compile(
    r"[^\n]*(?:dns error|tcp connect error|error sending request|failed to fetch|operation timed out|connection refused"
    r"|connection reset|newconnectionerror|proxyerror|name resolution|unknownhostexception|connectexception"
    r"|server access error|host \S+ not found|could not connect)[^\n]*",
    re.IGNORECASE,
)
_UNRESOLVED = re.compile(r":: (\S+#\S+;\S+): not found")


class SetupError(Exception):
    """Set-up cannot go on. Its text is one line: what, why, and the remedy."""


def explain(name: str, code: int, said: str, log: Path, rooms: Iterable[Path] = ()) -> SetupError:
    """Return the one line for a program that failed.

    Args:
        name: What it was to do.
        code: Its exit code.
        said: Its output.
        log: Where that output is kept.
        rooms: Folders that it wrote to beside the home and `.venv`.
    """
    room = next((folder for folder in (HOME, VENV, *rooms) if is_full(folder)), None)
    if room or _NO_ROOM.search(said):
        return no_room(name, room or HOME)
    if found := _WRONG_HASH.search(said):
        return _wrong_hash(name, found["uv"] or found["pip"])
    if _NO_ENSUREPIP.search(said):
        return SetupError(f"{name}: this Python lacks ensurepip. Install its package python3-venv (Debian), {RESUMES}")
    if missing := _UNRESOLVED.findall(said):
        return SetupError(f"{name}: the repository has no {missing[0]}. Correct jars.xml, or choose another mirror")
    if reached := _UNREACHABLE.search(said):
        cause = " ".join(reached[0].split())[:160]
        return SetupError(f"{name}: no answer from the network ({cause}). Check network, proxy and index, {RESUMES}")
    return SetupError(f"{name}: failed with exit code {code} ({_last(said)}). Read {shown(log)}, {RESUMES}")


def no_room(name: str, folder: Path) -> SetupError:
    """Return the line for a full disk."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free // 2**20
    return SetupError(
        f"{name}: the disk is full ({free} MiB free at {shown(there)}). Set-up takes about 4 GiB: free some, {RESUMES}"
    )


def of_system(error: OSError) -> SetupError:
    """Return the line for an error of the operating system."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return no_room("set-up", Path(error.filename or HOME))
    return SetupError(f"{error.filename or 'set-up'}: {error.strerror or error}. Make it possible, {RESUMES}")


def is_full(folder: Path) -> bool:
    """Tell whether there is no room left where a folder is, or would be."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return shutil.disk_usage(there).free < FULL_BELOW


def _wrong_hash(name: str, package: str) -> SetupError:
    return SetupError(
        f"{name}: the index serves another {package} than the lock names (its sha256 differs); it was not installed. "
        "Choose an index that serves the original, or restore the lock; for another version run `make lock`"
    )


def _last(said: str) -> str:
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    return lines[-1][:160] if lines else "without a word"
