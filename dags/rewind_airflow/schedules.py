"""When what is scheduled runs for the first time: at the first tick after the installation was made.

Without a start, and with one in the past, Airflow makes up for the newest tick as soon as it knows a DAG: a new stack
would spend its first minutes on that, beside the first deployment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime

from rewind.core.errors import RefusedError
from rewind.core.settings import from_environment
from rewind.runtime import installation


def begin(environment: Mapping[str, str] = os.environ) -> datetime:
    """Return since when there is an installation: the start date of its schedules."""
    try:
        return installation.since(from_environment(environment))
    except RefusedError:
        return installation.BEFORE_ALL
