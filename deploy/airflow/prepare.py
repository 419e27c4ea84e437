"""Prepare what the team's Airflow needs before it starts: run by the service `init`, again at each upgrade."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from rewind.control import installation
from rewind.core.settings import from_environment
from rewind.local import airflow_config
from rewind.local.stack import POOL


def main() -> None:
    """Make folders, note since when there are any, write the passwords, migrate both databases and make the pool."""
    Path(os.environ["REWIND_HOME"], "events").mkdir(parents=True, exist_ok=True)
    settings = from_environment(os.environ)
    settings.data.mkdir(parents=True, exist_ok=True)
    installation.begin(settings, datetime.now(UTC))
    # Airflow opens this file for writing: a secret that is mounted, read-only and with its owner on the host, fails.
    file = Path(os.environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])
    passwords = {user: os.environ[f"AIRFLOW_{user.upper()}_PASSWORD"] for user in airflow_config.USERS}
    airflow_config.write_private(file, json.dumps(passwords))
    run("airflow", "db", "migrate")
    # Airflow schedules no task of a pool that is missing: without it no stream would ever be supervised.
    name, slots, text = POOL
    run("airflow", "pools", "set", name, str(slots), text)
    run(sys.executable, "-m", "rewind", "upgrade")


def run(*command: str) -> None:
    """Run a command to its good end."""
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
