"""The human gate before the switch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Context, Param
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from rewind.core import comparing, lifecycle
from rewind.core.errors import RefusedError, RetryError
from rewind.core.offsets import to_spark_json
from rewind.core.planning import shared_output
from rewind.core.planning.plan import Plan
from rewind.registry import rewinds, verdicts
from rewind.registry.database import reading, writing
from rewind.registry.verdicts import Approval, Verdict
from rewind.runtime import approvers
from rewind.runtime import evidence as evidence_of
from rewind_airflow import links, notify, run, steps
from rewind_airflow.reactions import reactions

STEP = "approve"
WAIT = timedelta(days=7)
SAMPLE = 10
RETRIES = 20


class Approve(ApprovalOperator):
    """Shows the verdict and waits, without a slot, until a person answers; the answer goes into the registry."""

    operator_extra_links = (links.PageLink(),)

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        """Ask about a rewind of a pipeline."""
        words = "Why; a verdict that failed, or compared nothing, cannot be approved without it."
        reason = Param("", words, source="task", type=["string", "null"], title="Reason", maxLength=2_000)
        # In place of the DAG's own parameters, which are no part of this form.
        kwargs["params"] = {"reason": reason}
        # An answer within the second in which the task is parked is lost: Airflow takes the task for failed, and it
        # asks again. A hasty answer must not end the rewind.
        kwargs["retries"] = RETRIES
        super().__init__(
            subject=f"May the rewind of {pipeline} go on?",
            body="The verdict is read from the registry.",
            # Not execution_timeout: it would bound the moment before the task is parked.
            response_timeout=WAIT,
            **kwargs,
        )

    def execute(self, context: Context) -> Any:
        """Park with the verdict in view; go on at once when it has its answer or needs none."""
        rewind_id = run.rewind_id(context)
        with reactions(), writing(run.settings().registry_url) as connection:
            plan = rewinds.read_active(connection, rewind_id)[1]
            verdict = verdicts.newest(connection, rewind_id)
            given = verdicts.approval(connection, rewind_id)
            steps.begin_once(connection, rewind_id, STEP)
            alone = verdict is not None and approvers.needs_no_person(connection, rewind_id, plan, verdict)
        if verdict is None:
            raise AirflowFailException(f"rewind {rewind_id} has no verdict: run validate first")
        self.log.info("verdict of attempt %s: %s %s", verdict.attempt, verdict.verdict, verdict.reason)
        if given is None and alone:
            given = Approval(verdict.attempt, "approve", "auto", "a pass needs no person")
        if given is not None:
            return self._answer(rewind_id, given.answer, given.person, given.reason)
        self.body = body(plan, verdict, links.page(context["ti"]))
        self._prepare_form(verdict)
        nothing = f", {comparing.NOTHING}" if verdict.verdict == lifecycle.UNCOMPARED else ""
        text = f"rewind {rewind_id} waits for an answer: verdict {verdict.verdict}{nothing}"
        notify.tell(context, notify.APPROVAL, text)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        """Take the answer; one that cannot be accepted fails the task with the reason."""
        rewind_id = run.rewind_id(context)
        if "error" in event:
            _end(rewind_id, "failed", {"answer": event["error_type"]})
            raise AirflowFailException(f"rewind {rewind_id} had no answer within {WAIT}")
        given = "approve" if event["chosen_options"] == [self.APPROVE] else "reject"
        if given == "approve":
            _refuse_asker(rewind_id, person(event))
        return self._answer(rewind_id, given, person(event), (event["params_input"] or {}).get("reason") or "")

    def _prepare_form(self, verdict: Verdict) -> None:
        reason = self.params.get_param("reason")
        # Airflow has put the run's own `reason` in: why the rewind was asked for is no reason to let it through.
        reason.value = ""
        if verdicts.needs_reason(verdict):
            reason.schema = {"type": "string", "minLength": 1, "maxLength": 2_000, "title": "Reason"}

    def _answer(self, rewind_id: str, given: str, who: str, reason: str) -> None:
        self._record(rewind_id, given, who, reason)
        if given != "approve":
            # A rejection that only skipped would leave tasks further down to run by their own trigger rules.
            raise AirflowFailException(f"rewind {rewind_id} was rejected by {who}: {reason or 'no reason given'}")

    def _record(self, rewind_id: str, given: str, who: str, reason: str) -> None:
        evidence = {"answer": given, "person": who, "reason": reason}
        try:
            with reactions(), writing(run.settings().registry_url) as connection:
                verdicts.answer(connection, rewind_id, given, who, reason)
        except AirflowFailException as refused:
            _end(rewind_id, "failed", {**evidence, "refused": str(refused)})
            raise
        _end(rewind_id, "done" if given == "approve" else "failed", evidence)
        self.log.info("%s by %s: %s", given, who, reason)
        self._tell_evidence(rewind_id)

    def _tell_evidence(self, rewind_id: str) -> None:
        try:
            evidence_of.answered(run.settings(), rewind_id)
        except (OSError, RetryError) as problem:
            # The answer counts as it is recorded; a folder that this worker does not see must not fail it.
            self.log.warning("the evidence page does not show the answer: %s", problem)


def _refuse_asker(rewind_id: str, who: str) -> None:
    """Ask again when a second person is needed: an answer of the first one decides nothing."""
    with reactions(), reading(run.settings().registry_url) as connection:
        plan = rewinds.read_active(connection, rewind_id)[1]
        try:
            approvers.refuse_asker(connection, rewind_id, plan, who)
        except RefusedError as refused:
            raise AirflowException(str(refused)) from refused


def person(event: Mapping[str, Any]) -> str:
    """Return the name of who answered; empty when Airflow does not know."""
    user = event.get("responded_by_user") or {}
    return str(user.get("name") or user.get("id") or "")


def body(plan: Plan, verdict: Verdict, page: str) -> str:
    """Return the question in Markdown: what was compared, what came out, what an answer does."""
    return f"""**Verdict: {verdict.verdict}** {verdict.reason.replace("`", "'")}

{_what(plan)}

{_compared(plan, verdict)}
{_consequence(verdict)} [The page of this rewind]({page}) has its evidence.
"""


def _compared(plan: Plan, verdict: Verdict) -> str:
    if verdict.verdict == lifecycle.UNCOMPARED:
        return f"**{comparing.NOTHING.capitalize()}**: no row of `{plan.job_id}` was held against live's.\n"
    counts = "\n".join(f"| {name} | {count:,} |" for name, count in verdict.counts.items())
    # A backtick in the data would end the code block.
    sample = json.dumps(list(verdict.sample[:SAMPLE]), indent=1, default=str).replace("`", "\\u0060")
    floor, ceiling = (to_spark_json(plan.topic, vector) for vector in (verdict.floor, verdict.ceiling))
    return f"""Compared from `{floor}` up to `{ceiling}`.

| class | rows |
| --- | --- |
{counts}

```json
{sample}
```
"""


def _what(plan: Plan) -> str:
    if plan.shape.repairs:
        return f"`{plan.job_id}` repairs the output of `{plan.live_job_id}`."
    output = shared_output.read_from(plan.config, plan.output_topic)
    return f"`{plan.job_id}` would become live instead of `{plan.live_job_id}`; readers go to `{output}`."


def _consequence(verdict: Verdict) -> str:
    if verdict.verdict == lifecycle.ERROR:
        return "An error cannot be approved: clear `validate` after fixing the cause, or reject."
    if verdicts.needs_reason(verdict):
        return "Approving needs a reason. Rejecting aborts the rewind; live is untouched."
    return "Rejecting aborts the rewind; live is untouched."


def _end(rewind_id: str, state: str, evidence: Mapping[str, Any]) -> None:
    with reactions(), writing(run.settings().registry_url) as connection:
        steps.end(connection, rewind_id, STEP, state, evidence)
