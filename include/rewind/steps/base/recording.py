"""What every main shares: logs with the rewind's id, errors as exit codes, attempts recorded."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from rewind.core import causes
from rewind.core.errors import RewindError
from rewind.core.settings import Settings, from_environment
from rewind.registry import rewinds
from rewind.registry.database import writing
from rewind.steps.base import failures


def run(body: Callable[[Settings], None], tag: str) -> int:
    """Run the body of a main and return its exit code.

    Args:
        body: What the main does.
        tag: Rewind id or job id, on every line of the log.
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stdout, format=f"%(asctime)s %(levelname)s [{tag}] %(message)s", force=True
    )
    for chatty in ("great_expectations", "kafka", "py4j"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    try:
        body(from_environment(os.environ))
    except Exception as thrown:  # noqa: BLE001 - the outermost frame: told whole, and a failure
        error = failures.typed(thrown)
        if isinstance(error, RewindError):
            logging.getLogger(__name__).error("%s: %s", type(error).__name__, error)
            return error.exit_code
        logging.getLogger(__name__).error("%s", traceback.format_exc())
        return 1
    return 0


def recorded(settings: Settings, rewind_id: str, step: str, body: Callable[[int], Any]) -> None:
    """Run a step's body as one recorded attempt; what it returns is the attempt's evidence.

    Args:
        settings: The installation.
        rewind_id: The rewind.
        step: The step.
        body: What the step does, given the attempt's number.
    """
    with writing(settings.registry_url) as connection:
        attempt = rewinds.begin_step(connection, rewind_id, step)
    try:
        evidence = body(attempt)
    except BaseException as thrown:
        error = failures.typed(thrown)
        _end(settings, rewind_id, step, attempt, "failed", {"error": causes.of_error(error)})
        if error is thrown:
            raise
        raise error from thrown
    _end(settings, rewind_id, step, attempt, "done", evidence)


def rewind_argument() -> str:
    """Return the `--rewind-id` of a main that takes nothing else."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rewind-id", required=True)
    return str(parser.parse_args().rewind_id)


def _end(settings: Settings, rewind_id: str, step: str, attempt: int, state: str, evidence: Any) -> None:
    with writing(settings.registry_url) as connection:
        rewinds.end_step(connection, rewind_id, step, attempt, state, evidence)
