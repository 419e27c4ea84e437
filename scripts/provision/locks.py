"""The locks of the packages, written by `make lock`: one for each Python that Rewind runs on."""

from __future__ import annotations

from provision import commands
from provision.places import PROJECT
from provision.progress import Board
from provision.uv import Uv

STEP = "locks"
NAMES = ("requirements-setup", "requirements", "requirements-dev", "requirements-bench", "requirements-audit")
OLDEST_PYTHON = "3.11"


def write(uv: Uv, board: Board) -> None:
    """Pin what the `.in` files name, with hashes; a pin that still fits stays."""
    with board.step(STEP, "resolving"):
        for name in NAMES:
            # `--universal`: with markers, so that a package that one Python alone needs is in the lock too.
            command = [str(uv.program), "pip", "compile", "--quiet", *uv.options, "--universal"]
            command += ["--python-version", OLDEST_PYTHON, "--generate-hashes", "--custom-compile-command", "make lock"]
            command += [f"{name}.in", "-o", f"{name}.txt"]
            commands.run(command, STEP, environment=uv.environment, folder=PROJECT)
