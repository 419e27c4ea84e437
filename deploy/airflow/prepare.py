"""Prepare what the team's Airflow needs before it starts: run by the service `init`, again at each upgrade."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from rewind.core.settings import from_environment
from rewind.local.stack import POOL
from rewind.runtime import installation


def main() -> None:
    """Make folders, note since when there are any, migrate both databases, make users, roles and the pool."""
    Path(os.environ["REWIND_HOME"], "events").mkdir(parents=True, exist_ok=True)
    settings = from_environment(os.environ)
    settings.data.mkdir(parents=True, exist_ok=True)
    installation.begin(settings, datetime.now(UTC))
    run("airflow", "db", "migrate")
    run(sys.executable, str(Path(__file__).with_name("rights.py")))
    # Airflow schedules no task of a pool that is missing: without it no stream would ever be supervised.
    name, slots, text = POOL
    run("airflow", "pools", "set", name, str(slots), text)
    run(sys.executable, "-m", "rewind", "upgrade")


def run(*command: str) -> None:
    """Run a command to its good end."""
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
