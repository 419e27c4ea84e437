"""What an action does: a DAG run, an answer to its question, or a line in the registry that the run reads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import Request

from rewind.airflow_api.in_process import AirflowPort
from rewind.core.errors import RefusedError
from rewind.core.settings import Settings
from rewind.declared import forms
from rewind.declared.forms import Form
from rewind.registry import adjustments
from rewind.registry.snapshot import snapshot
from rewind.runtime import approvers
from rewind.views.status import PipelineView
from rewind.views.status_rewinds import RewindView
from rewind.web import offers

APPROVED = "Approve"
"""The answer of Airflow's question that lets a rewind go on."""
_REASON: Form = {"reason": forms.OPTIONAL_TEXT}
FORMS: Mapping[str, Form] = {
    offers.APPROVE: _REASON,
    offers.REJECT: _REASON,
    offers.PAUSE: forms.NOTHING,
    offers.RESUME: forms.NOTHING,
    offers.THROTTLE: {"rate": {"type": ["integer", "null"], "minimum": 1, "default": None}},
    offers.ABORT: _REASON,
    offers.FINISH: forms.NOTHING,
    offers.ROLL_BACK: _REASON,
}
"""What each action may be given."""


@dataclass(frozen=True)
class Act:
    """One action, as a person asked for it.

    Attributes:
        request: Theirs.
        settings: The installation.
        airflow: Airflow.
        pipeline: The pipeline.
        rewind: The rewind.
        person: Who asks, by the name that Airflow has of them.
        reason: Why.
        rate: Records a second; None lifts the limit.
    """

    request: Request
    settings: Settings
    airflow: AirflowPort
    pipeline: PipelineView
    rewind: RewindView
    person: str
    reason: str
    rate: int | None


async def act(action: str, asked: Act) -> str:
    """Do what was asked for, and return what has been started, as one sentence.

    Raises:
        RefusedError: It is not on offer now, lacks its reason, or Airflow or the registry refuse it.
        RetryError: The registry is locked, or the question was asked a moment ago.
    """
    offered = {offer.name: offer for offer in offers.offers(asked.pipeline, asked.rewind)}
    if action not in offered:
        problem = f"{action} is not possible for {asked.rewind.id} now"
        raise RefusedError("action", problem, "Look at the page again")
    if offered[action].asks == offers.NEEDED and not asked.reason.strip():
        raise RefusedError("reason", "is empty", "This verdict needs one")
    return await _ACTS[action](asked)


def _answer(chosen: str) -> Callable[[Act], Awaitable[str]]:
    async def answer(asked: Act) -> str:
        if chosen == APPROVED:
            await asyncio.to_thread(_refuse_asker, asked)
        dag_id = offers.dag_of(offers.APPROVE, asked.pipeline.name)
        run = await asked.airflow.answer(asked.request, dag_id, asked.rewind.id, chosen, asked.reason)
        return f"answered {chosen} to run {run}"

    return answer


def _refuse_asker(asked: Act) -> None:
    with snapshot(asked.settings.registry_url) as connection:
        approvers.refuse_asker(connection, asked.rewind.id, asked.rewind.plan, asked.person)


async def _abort(asked: Act) -> str:
    done = await _trigger(asked, offers.ABORT, {"rewind_id": asked.rewind.id, **_why(asked)})
    # While a task drives a step the abort waits: that task is ended, and its driver with it.
    ended = await asked.airflow.end_steps(asked.request, f"rewind_{asked.pipeline.name}", asked.rewind.id)
    return f"{done}; ended {', '.join(ended)}" if ended else done


async def _roll_back(asked: Act) -> str:
    conf = {"to": asked.rewind.live_job_id, **_why(asked), "dry_run": False}
    return await _trigger(asked, offers.ROLL_BACK, conf)


def _why(asked: Act) -> dict[str, str]:
    return {"reason": asked.reason} if asked.reason else {}


async def _trigger(asked: Act, action: str, conf: Mapping[str, Any]) -> str:
    dag_id = offers.dag_of(action, asked.pipeline.name)
    return f"{dag_id}: run {await asked.airflow.trigger(asked.request, dag_id, conf)}"


async def _pause(asked: Act) -> str:
    await asyncio.to_thread(adjustments.pause, asked.settings.registry_url, asked.rewind.id, asked.person, paused=True)
    return "paused after its chunk"


async def _resume(asked: Act) -> str:
    await asyncio.to_thread(adjustments.pause, asked.settings.registry_url, asked.rewind.id, asked.person, paused=False)
    return "goes on"


async def _throttle(asked: Act) -> str:
    url, rewind_id = asked.settings.registry_url, asked.rewind.id
    await asyncio.to_thread(adjustments.throttle, url, rewind_id, asked.person, asked.rate)
    return f"at most {asked.rate} records/s" if asked.rate else "no limit"


async def _finish(asked: Act) -> str:
    await asyncio.to_thread(adjustments.finish, asked.settings.registry_url, asked.rewind.id, asked.person)
    return "its observation ends at the next look"


_ACTS: Mapping[str, Callable[[Act], Awaitable[str]]] = {
    offers.APPROVE: _answer(APPROVED),
    offers.REJECT: _answer("Reject"),
    offers.PAUSE: _pause,
    offers.RESUME: _resume,
    offers.THROTTLE: _throttle,
    offers.ABORT: _abort,
    offers.FINISH: _finish,
    offers.ROLL_BACK: _roll_back,
}
