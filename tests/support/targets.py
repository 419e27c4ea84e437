"""Targets of the Makefile, run as a newcomer does."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

OUTER = ("REWIND_", "PYTHONPATH", "MAKE", "MFLAGS", "ARGS", "WHAT", "PYTEST_")
"""What the make and the pytest that run a test say is not meant for the target."""


def make(folder: Path, target: str, log: Path) -> tuple[int, float]:
    """Run a target with a home and caches of its own, its output in a file; return its exit code and wall seconds."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(OUTER)}
    environment |= {"HOME": str(log.parent / "home"), "XDG_CACHE_HOME": str(log.parent / "cache")}
    (log.parent / "home").mkdir(exist_ok=True)
    begun = time.monotonic()
    with log.open("wb") as output:
        done = subprocess.run(
            ["make", target], cwd=folder, env=environment, stdout=output, stderr=subprocess.STDOUT, check=False
        )
    return done.returncode, time.monotonic() - begun
