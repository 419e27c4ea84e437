"""Where set-up reads and writes, and the small questions it asks of files."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "include"))

HOME = Path(os.environ.get("REWIND_HOME") or PROJECT / ".rewind").resolve()
JARS = Path(os.environ.get("REWIND_JARS") or HOME / "jars").resolve()
LOGS = HOME / "logs"
VENV = PROJECT / ".venv"
SETUP_LOCK = PROJECT / "requirements-setup.txt"
"""What set-up itself is done with: uv, and what builds the packages that come as source."""
LOCKS = {True: PROJECT / "requirements.txt", False: PROJECT / "requirements-dev.txt"}
"""What is installed, by whether it is for running alone."""


def base_python() -> Path:
    """Return the Python that this one is, or that its virtual environment was made from."""
    named = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    return named if named.exists() else Path(sys.executable)


def digest(path: Path) -> str:
    """Return the sha256 of a file, empty when there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def read(path: Path) -> str:
    """Return the text of a file, empty when there is none."""
    return path.read_text() if path.exists() else ""


def shown(path: Path) -> str:
    """Return a path as short as the reader needs it."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)
