"""`approve`: the answer to what a rewind asks a person, given over Airflow's REST API after showing the verdict."""

from __future__ import annotations

import argparse
import getpass
import sys
import time
from typing import Any

from rich.console import Console

from rewind.cli import context, output, render
from rewind.core.errors import RefusedError, RetryError
from rewind.core.planning.plan import Plan
from rewind.declared import forms
from rewind.registry import rewinds, verdicts
from rewind.registry.snapshot import snapshot
from rewind.registry.verdicts import Approval, Verdict

LOOK_SECONDS = 2.0
ANSWER_SECONDS = 180.0
"""How long Airflow may take to wake the task that records an answer."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    approve = subparsers.add_parser(
        "approve", parents=[output.FORM], help="answer what a rewind asks a person; shows the verdict first"
    )
    approve.add_argument("rewind", help="id of the rewind, as `status` shows it")
    approve.add_argument("--reject", action="store_true", help="say no: the rewind is aborted, live is untouched")
    approve.add_argument("--reason", default="", help="why; one that failed or compared nothing needs it")
    approve.add_argument("--yes", action="store_true", help="do not ask again")
    approve.set_defaults(func=_approve)


def _approve(arguments: argparse.Namespace) -> int:
    url, rewind_id = context.settings().registry_url, arguments.rewind
    plan, verdict = _asked(url, rewind_id)
    # With --json the answer alone goes to stdout.
    console = Console(stderr=arguments.json)
    console.print(*render.verdict_parts(plan, verdict), sep="\n")
    reason = arguments.reason or _reason(console, verdict)
    if not arguments.reject:
        verdicts.check_approvable(verdict, getpass.getuser(), reason)
    elif verdicts.needs_reason(verdict) and not reason:
        raise RefusedError("reason", "is empty, and the form of this verdict asks for one", "Say why not")
    _confirm(console, arguments, plan)
    given = _answered(url, rewind_id, f"rewind_{plan.request.pipeline}", arguments.reject, reason)
    output.tell(arguments, {"rewind_id": rewind_id, **vars(given)}, [f"{rewind_id}: {given.answer} by {given.person}"])
    return 0


def _asked(url: str, rewind_id: str) -> tuple[Plan, Verdict]:
    with snapshot(url) as connection:
        _, plan = rewinds.read_active(connection, rewind_id)
        verdict, given = verdicts.newest(connection, rewind_id), verdicts.approval(connection, rewind_id)
    if verdict is None:
        raise RefusedError("rewind", f"{rewind_id} has no verdict yet", "Wait until its validate has ended")
    if given is not None:
        raise RefusedError("rewind", f"{rewind_id} has the answer {given.answer} by {given.person}", "Nothing waits")
    return plan, verdict


def _reason(console: Console, verdict: Verdict) -> str:
    if not verdicts.needs_reason(verdict) or not sys.stdin.isatty():
        return ""
    return console.input("Why? Such a verdict is answered with a reason: ").strip()


def _confirm(console: Console, arguments: argparse.Namespace, plan: Plan) -> None:
    if arguments.yes:
        return
    if not sys.stdin.isatty():
        raise RefusedError("--yes", "is not given, and there is no terminal to ask at", "Give it, or use a terminal")
    what = "Abort it" if arguments.reject else f"Let {plan.job_id} take the place of {plan.live_job_id}"
    if plan.shape.repairs and not arguments.reject:
        what = f"Let {plan.job_id} repair {plan.live_job_id}"
    if console.input(f"{what}? [y/N] ", markup=False).strip().lower() not in ("y", "yes"):
        raise RefusedError("answer", "was not confirmed", "Nothing was answered; the rewind goes on waiting")


def _answered(url: str, rewind_id: str, dag_id: str, rejected: bool, reason: str) -> Approval:
    """Answer until the registry has the answer: one that Airflow loses is asked for again."""
    from rewind.airflow_api.client import AirflowApi

    api: AirflowApi = context.airflow_api()
    option, asked, until = "Reject" if rejected else "Approve", False, time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        for run_id, task_id in _questions(api.hitl_pending(dag_id), dag_id, rewind_id):
            api.hitl_answer(dag_id, run_id, task_id, [option], {"reason": reason})
            asked = True
        if not asked:
            raise RetryError(f"{rewind_id}: its task approve in {dag_id} does not wait for an answer in Airflow")
        with snapshot(url) as connection:
            given = verdicts.approval(connection, rewind_id)
        if given is not None:
            return given
        time.sleep(LOOK_SECONDS)
    raise RetryError(f"{rewind_id}: Airflow took the answer, but has not recorded it within {ANSWER_SECONDS:.0f} s")


def _questions(pending: list[dict[str, Any]], dag_id: str, rewind_id: str) -> list[tuple[str, str]]:
    asked = [(str(q["task_instance"]["dag_run_id"]), str(q["task_instance"]["task_id"])) for q in pending]
    return [(run_id, task_id) for run_id, task_id in asked if forms.rewind_id(dag_id, run_id) == rewind_id]
