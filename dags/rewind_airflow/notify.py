"""Who is told when something needs a person: one standard Airflow notifier, chosen in the environment (ADR 0023).

`REWIND_NOTIFIER` is its import path and `REWIND_NOTIFIER_ARGS` a JSON object of its arguments. Their templates know
`rewind_event`, `rewind_text` and `rewind_link`.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
from collections.abc import Mapping
from typing import Any

from airflow.sdk import BaseNotifier, Context
from airflow.sdk.exceptions import AirflowFailException

from rewind.core.errors import RefusedError
from rewind_airflow import links

NOTIFIER, ARGUMENTS = "REWIND_NOTIFIER", "REWIND_NOTIFIER_ARGS"
FAILURE, APPROVAL, DRIFT, QUARANTINE, PAUSED = "failure", "approval", "drift", "quarantine", "paused"


class Quarantined(AirflowFailException):
    """A stream is set aside."""


class Drifted(AirflowFailException):
    """What both jobs write since a switch differs."""


_EVENTS = {Quarantined: QUARANTINE, Drifted: DRIFT}


def chosen(environment: Mapping[str, str]) -> BaseNotifier | None:
    """Return the notifier that the environment names, or None.

    Raises:
        RefusedError: It cannot be imported or made, or is no notifier.
    """
    path = environment.get(NOTIFIER)
    if not path:
        return None
    module, _, name = path.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), name)
        made = kind(**json.loads(environment.get(ARGUMENTS) or "{}"))
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise RefusedError(NOTIFIER, f"{path!r} cannot be made ({error})", f"Fix it, or {ARGUMENTS}") from None
    if not isinstance(made, BaseNotifier):
        raise RefusedError(NOTIFIER, f"{path!r} is no notifier", "Name a class of airflow.sdk.BaseNotifier")
    return made


def tell(context: Context, event: str, text: str) -> None:
    """Tell of an event; nothing fails by a notification that does not go out."""
    try:
        notifier = chosen(os.environ)
        if notifier is not None:
            told = {"rewind_event": event, "rewind_text": text, "rewind_link": links.page(context["ti"])}
            notifier({**context, **told})
    except Exception:
        logging.getLogger(__name__).exception("not notified of %s: %s", event, text)


def on_failure(context: Context) -> None:
    """Tell of a task that has failed for good."""
    error, ti = context.get("exception"), context["ti"]
    event = next((name for kind, name in _EVENTS.items() if isinstance(error, kind)), FAILURE)
    tell(context, event, f"{ti.task_id} of {ti.dag_id} failed: {error}")


TASKS: dict[str, Any] = {"on_failure_callback": on_failure}
"""For all tasks."""
