"""The uv of set-up: one release, pinned with its hashes, fetched by the pip that comes with Python.

A uv on the user's path is not used. Its options and its cache's layout are those of its release, so each release out
there would be one more way to set Rewind up; the pinned one costs two seconds. It reads the user's settings all the
same.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from provision import commands, index
from provision.places import HOME, SETUP_LOCK, digest
from provision.progress import Board

TOOLS = HOME / "tools"
STEP = "uv"


@dataclass(frozen=True)
class Uv:
    """The program, and what it is run with.

    Attributes:
        program: Its path.
        environment: The whole environment of its runs.
        options: Options of its commands that install, from the user's settings.
    """

    program: Path
    environment: dict[str, str]
    options: list[str]


def folder() -> Path:
    """Return where the pinned release is, or belongs."""
    return TOOLS / f"uv-{digest(SETUP_LOCK)[:12]}"


def is_there() -> bool:
    """Tell whether the pinned release is installed, beside a Python that still exists."""
    return (folder() / "bin" / "uv").exists() and (folder() / "bin" / "python").exists()


def ensure(board: Board) -> Uv:
    """Return the pinned release, fetching it where it is missing."""
    if not is_there():
        with board.step(STEP, "fetching the pinned release"):
            _fetch()
    pip = index.pip_settings(folder() / "bin" / "python")
    ours = {"UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"} | index.for_uv(pip, os.environ)
    forced = ("FORCE_COLOR", "CLICOLOR_FORCE")
    environment = {key: value for key, value in os.environ.items() if key not in forced} | ours
    return Uv(folder() / "bin" / "uv", environment, index.uv_options(pip))


def _fetch() -> None:
    made = TOOLS / "new"
    shutil.rmtree(TOOLS, ignore_errors=True)
    commands.run([sys.executable, "-m", "venv", str(made)], "uv venv")
    python = made / "bin" / "python"
    environment = os.environ | index.for_pip(index.pip_settings(python), os.environ)
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--retries", "2", "--only-binary", ":all:", "--require-hashes", "-r", str(SETUP_LOCK)]
    commands.run(command, "uv", environment=environment)
    made.rename(folder())
