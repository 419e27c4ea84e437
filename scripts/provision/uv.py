"""The uv of set-up: one release, pinned with its hashes, fetched by the pip that comes with Python.

A uv on the user's path is not used. Its options and its cache's layout are those of its release, so each release out
there would be one more way to set Rewind up; the pinned one costs a few seconds. It reads the user's settings all the
same.
"""

from __future__ import annotations

import ensurepip
import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from provision import commands, index
from provision.failures import SetupError
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


def program() -> Path:
    """Return where the pinned release is, or belongs."""
    return TOOLS / digest(SETUP_LOCK)[:12] / "bin" / "uv"


def ensure(board: Board) -> Uv:
    """Return the pinned release, fetching it where it is missing."""
    if not program().exists():
        with board.step(STEP, "fetching the pinned release"):
            _fetch()
    pip = index.pip_settings(os.environ)
    ours = {"UV_PYTHON_DOWNLOADS": "never", "NO_COLOR": "1"} | index.for_uv(pip, os.environ)
    forced = ("FORCE_COLOR", "CLICOLOR_FORCE")
    environment = {key: value for key, value in os.environ.items() if key not in forced} | ours
    return Uv(program(), environment, index.uv_options(pip))


def _fetch() -> None:
    shutil.rmtree(TOOLS, ignore_errors=True)
    made = TOOLS / "new"
    # Out of its wheel: to install pip first would take as long as to fetch uv with it.
    command = [sys.executable, str(_pip_wheel() / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-compile", "--only-binary", ":all:", "--retries", "2", "--target", str(made)]
    environment = os.environ | index.for_pip(index.pip_settings(os.environ), os.environ)
    commands.run([*command, "--require-hashes", "-r", str(SETUP_LOCK)], STEP, environment=environment)
    made.rename(program().parents[1])


def _pip_wheel() -> Path:
    """Return the wheel of pip that Python brings, in its own folder or where a distribution keeps such wheels."""
    shared = sysconfig.get_config_var("WHEEL_PKG_DIR")
    folders = [Path(ensurepip.__file__).parent / "_bundled", *([Path(shared)] if shared else [])]
    found = next((wheel for folder in folders for wheel in folder.glob("pip-*.whl")), None)
    if found is None:
        raise SetupError(f"uv: {sys.executable} comes without pip. Install python3-venv (Debian's name), and run again")
    return found
