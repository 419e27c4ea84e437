"""Copies of the checkout to plant faults in: the user's own files are never changed."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.mutants.fault import Fault, Place, changed


def files(root: Path) -> list[str]:
    """Return what belongs to a checkout: tracked files and new ones that git does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sorted(name for name in listed.stdout.split("\0") if name and (root / name).is_file())


def digest(root: Path, names: Sequence[str]) -> str:
    """Return a hash over names and contents of files."""
    made = hashlib.sha256()
    for name in names:
        made.update(name.encode() + b"\0" + hashlib.sha256((root / name).read_bytes()).digest())
    return made.hexdigest()[:16]


def copy(root: Path, to: Path) -> Path:
    """Copy a checkout as it is on disk, with links to what set-up made; return the copy."""
    shutil.rmtree(to, ignore_errors=True)
    for name in files(root):
        target = to / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / name, target)
    for name in (".venv", ".rewind/jars"):
        if (root / name).exists():
            (to / name).parent.mkdir(exist_ok=True)
            (to / name).symlink_to((root / name).resolve())
    return to


@contextmanager
def planted(copied: Path, fault: Fault) -> Iterator[Place]:
    """Plant a fault in a copy and take it out again.

    Raises:
        UnfitError: It does not fit the code.
    """
    place, wrong = changed(copied, fault)
    path = copied / place.path
    right = path.read_text()
    _write(path, wrong)
    try:
        yield place
    finally:
        _write(path, right)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    # Python takes a compiled file of the same second and size for current.
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


# Random examples would make a fault noticed by luck, and what acceptance alone runs notices it too late.
OPTIONS = ("-p", "tests.mutants.plugin", "-p", "no:cacheprovider", "-q", "--hypothesis-seed=0", "-m", "not acceptance")


def pytest_in(
    copied: Path, arguments: Sequence[str], environment: Mapping[str, str], log: Path, timeout: float
) -> int | None:
    """Run pytest in a copy without a fault; return its exit code, None when it was ended for taking too long."""
    with log.open("w") as output:
        running = subprocess.Popen(
            [sys.executable, "-m", "pytest", *OPTIONS, *arguments],
            cwd=copied,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | dict(environment),
        )
        try:
            return running.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(running)


def _end(running: subprocess.Popen[bytes]) -> None:
    """End what is left of a session of processes, its own children too."""
    with suppress(ProcessLookupError):
        os.killpg(running.pid, signal.SIGKILL)
    running.wait()
