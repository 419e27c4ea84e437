"""The steps that touch data: each is one spark-submit of a main in `jobs/`."""

from __future__ import annotations

import contextlib
import json
import resource
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException
from sqlalchemy import Connection

from rewind.core import lifecycle, names
from rewind.core.errors import RewindError
from rewind.core.settings import Settings
from rewind.declared import forms
from rewind.registry import audit, plannings, rewinds, verdicts
from rewind.registry.database import reading, writing
from rewind.runtime import ownership
from rewind.runtime.drivers import bundle, step_lease, submit
from rewind.runtime.drivers.bundle import Bundle
from rewind.runtime.drivers.step_lease import Claim
from rewind_airflow import links, outcome, run
from rewind_airflow.hook import TrackedHook
from rewind_airflow.outcome import Outcome, Seen
from rewind_airflow.reactions import reactions
from rewind_airflow.submit_lease import SubmitLease

CONNECTION = "spark_default"


@dataclass(frozen=True)
class Errand:
    """What one submit is to do.

    Attributes:
        arguments: Arguments of the main.
        bundle: Whose code runs.
        rewind_id: The rewind whose step it is; None for a job that leaves no end marker in the registry.
        records: How many records it works on, where that is known.
    """

    arguments: list[str]
    bundle: Bundle
    rewind_id: str | None = None
    records: int | None = None


class RewindSubmit(SparkSubmitOperator):
    """A spark-submit that is made while it runs, and believed only with the job's own end marker."""

    # What users typed reaches the arguments: nothing of it may be rendered as a template.
    template_fields = ()

    def __init__(self, *, job: str, pipeline: str | None = None, **kwargs: Any) -> None:
        """Keep what to run: nothing is looked up while the DAG is parsed.

        Args:
            job: Name of the main, without `.py`; also the step's name in the registry.
            pipeline: The pipeline it works on, if any.
            kwargs: Arguments of every operator.
        """
        super().__init__(conn_id=CONNECTION, **kwargs)
        self.job = job
        self.pipeline = pipeline
        self.report = ("", "")
        """Folder and name of what it wrote down as evidence, once it has."""
        self.application_id = ""
        """Spark's id of what it submitted, once it is known."""
        self._lease: SubmitLease | None = None

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Return what to submit, after checking it: what can be refused is refused before the submit."""
        raise NotImplementedError

    def execute(self, context: Context) -> None:
        """Submit, follow to the end, and judge the end by what the job left."""
        settings = run.settings()
        with reactions():
            errand = self.errand(context, settings)
            hook = self._hook = self._prepare(settings, errand)
            marks = self._marks(settings, errand)
            lease = self._lease = self._take(settings, context, errand, hook)
        before = _cpu_of_children()
        error = self._run(context, hook, lease)
        with reactions():
            lease.settle()
        self._record_cpu(settings, errand, _cpu_of_children() - before)
        with reactions():
            marked = None if errand.rewind_id is None else self._marks(settings, errand) > marks
        # After a bad exit code the error only repeats the whole command.
        words = hook.last_words if hook.exit_code or error is None else str(error)
        self._conclude(outcome.judge(Seen(hook.exit_code, hook.end_state(error), marked, words)))

    def _noted(self, settings: Settings, context: Context, asked: Mapping[str, Any], subject: str = "") -> None:
        """Note who asked for this run and for what; one that no person asked for takes no transaction."""
        if run.person(context):
            with writing(settings.registry_url) as connection:
                self._note(connection, context, asked, subject)

    def _note(self, connection: Connection, context: Context, asked: Mapping[str, Any], subject: str) -> None:
        if person := run.person(context):
            act = audit.Act(person, self.job, self.pipeline or "", subject, asked)
            audit.note(connection, act, f"{context['ti'].dag_id}/{context['ti'].run_id}")

    def on_kill(self) -> None:
        """End the submit, if there is one; until its end is seen its lease stays, and so does all that it blocks."""
        if self._lease is not None:
            self._lease.kill()

    def _name(self, errand: Errand) -> str:
        return f"{errand.rewind_id or self.pipeline or 'rewind'}.{self.job}"

    def _take(self, settings: Settings, context: Context, errand: Errand, hook: TrackedHook) -> SubmitLease:
        ti = context["ti"]
        claim = Claim(self._name(errand), f"{ti.dag_id}/{ti.run_id}/{self.task_id}", errand.rewind_id)
        return SubmitLease(settings, claim, hook)

    def _prepare(self, settings: Settings, errand: Errand) -> TrackedHook:
        name = self._name(errand)
        made = submit.make(settings, errand.bundle, self.job, errand.arguments, name=name, records=errand.records)
        self.application = str(made.application)
        hook = TrackedHook(
            CONNECTION,
            application_args=list(made.arguments),
            py_files=str(made.py_files),
            driver_class_path=made.class_path,
            conf=dict(made.conf),
            env_vars={**made.environment, step_lease.VARIABLE: step_lease.mark(settings, name)},
            name=made.name,
        )
        # The lease follows a standalone cluster's driver across attempts, clears too: no second memory of it.
        self.durable = not hook.tracked
        self.log.info("%s: master %s, deploy mode %s, bundle %s", name, *hook.target, errand.bundle.hash)
        return hook

    def _run(self, context: Context, hook: TrackedHook, lease: SubmitLease) -> Exception | None:
        try:
            if lease.followed:
                hook.attach(lease.followed)
            else:
                super().execute(context)
        except (AirflowException, RuntimeError, OSError) as error:
            hook.follow()
            return error
        finally:
            self.application_id = hook.application_id
        return None

    def _marks(self, settings: Settings, errand: Errand) -> int:
        if errand.rewind_id is None:
            return 0
        with reading(settings.registry_url) as connection:
            return rewinds.last_attempt(connection, errand.rewind_id, self.job, "done")

    def _record_cpu(self, settings: Settings, errand: Errand, seconds: float) -> None:
        self.log.info("%.1f CPU seconds, JVM and Python together", seconds)
        if errand.rewind_id is not None:
            with reactions(), writing(settings.registry_url) as connection:
                rewinds.set_cpu(connection, errand.rewind_id, self.job, seconds)

    def _conclude(self, found: Outcome) -> None:
        if found.kind == outcome.FAIL:
            raise AirflowFailException(f"{self.job}: {found.text}")
        if found.kind == outcome.RETRY:
            raise AirflowException(f"{self.job}: {found.text}")
        log = self.log.warning if found.kind == outcome.WARNING else self.log.info
        log("%s: %s", self.job, found.text)


class PlanSubmit(RewindSubmit):
    """The first step: reads the form."""

    operator_extra_links = (links.PageLink(), links.HistoryLink())

    def __init__(self, *, pipeline: str, **kwargs: Any) -> None:
        """Plan a rewind of a pipeline."""
        super().__init__(job="plan", pipeline=pipeline, **kwargs)

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Check the form once more and hand it over as it is."""
        assert self.pipeline is not None
        rewind_id, asked = run.rewind_id(context), run.asked(context, forms.PARAMETERS)
        forms.parse(self.pipeline, asked)
        with writing(settings.registry_url) as connection:
            reason, dry_run, person = asked["reason"] or "", asked["dry_run"], run.person(context)
            plannings.ask(connection, rewind_id, self.pipeline, reason, dry_run=dry_run, person=person)
            self._note(connection, context, asked, rewind_id)
        arguments = ["--rewind-id", rewind_id, "--request", json.dumps(asked), "--pipeline", self.pipeline]
        return Errand(arguments, bundle.build(settings, self.pipeline), rewind_id)


class StepSubmit(RewindSubmit):
    """A later step: everything it needs stands in the registry, and its code is the plan's. Other plans skip it."""

    operator_extra_links = (links.PageLink(), links.EvidenceLink(), links.HistoryLink())

    def __init__(self, *, task_id: str, **kwargs: Any) -> None:
        """Run the main that is named as the task.

        Args:
            task_id: Name of the step.
            kwargs: Arguments of every operator.
        """
        super().__init__(task_id=task_id, job=task_id, **kwargs)

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Read the active rewind and its plan."""
        rewind_id = run.rewind_id(context)
        with reading(settings.registry_url) as connection:
            if rewinds.read(connection, rewind_id).state == lifecycle.FINISHED:
                raise AirflowSkipException(f"rewind {rewind_id} is finished: nothing is left to do")
            plan = rewinds.read_active(connection, rewind_id)[1]
        if self.job in plan.shape.skipped:
            raise AirflowSkipException(f"a {plan.kind} has no step {self.job}")
        code = bundle.verified(settings.data / "bundles" / plan.bundle, plan.bundle)
        return Errand(["--rewind-id", rewind_id], code, rewind_id, plan.records)

    def execute(self, context: Context) -> None:
        """Carry it out, and name what a check wrote down, whatever it found."""
        try:
            super().execute(context)
        finally:
            if self.job == "validate":
                # A link that cannot be told hides no error.
                with contextlib.suppress(RewindError):
                    self.report = _verdict_of(run.rewind_id(context))


def _verdict_of(rewind_id: str) -> tuple[str, str]:
    with reading(run.settings().registry_url) as connection:
        verdict = verdicts.newest(connection, rewind_id)
    return (rewind_id, "" if verdict is None else f"verdict-{verdict.attempt}.html")


class AbortSubmit(RewindSubmit):
    """Takes back what a rewind made, before its pointer moved."""

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Name the rewind, of which no step may run; the main itself refuses when the pointer has moved."""
        assert self.pipeline is not None
        params = run.asked(context, forms.ABORT)
        with writing(settings.registry_url) as connection:
            ownership.refuse_rewind_of_another(connection, params["rewind_id"], self.pipeline)
            self._note(connection, context, params, params["rewind_id"])
            planning = plannings.abort(connection, params["rewind_id"], params["reason"] or "")
        if planning is not None:
            raise AirflowSkipException(f"rewind {planning.id} was being planned: its plan step goes no further")
        step_lease.refuse_living(settings, params["rewind_id"], TrackedHook(CONNECTION).state_of)
        arguments = ["--rewind-id", params["rewind_id"], "--pipeline", self.pipeline]
        arguments += [f"--reason={params['reason'] or 'aborted by hand'}"]
        return Errand(arguments, bundle.build(settings, self.pipeline))


class RollbackSubmit(RewindSubmit):
    """Makes the standby live again."""

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Check the form once more and hand it over; a dry run leaves no mark of its end."""
        assert self.pipeline is not None
        ti, asked = context["ti"], run.asked(context, forms.ROLLBACK)
        rollback_id = forms.rollback_id(ti.dag_id, ti.run_id)
        self._noted(settings, context, asked, asked["to"] or "")
        arguments = ["--rollback-id", rollback_id, "--pipeline", self.pipeline, "--request", json.dumps(asked)]
        return Errand(arguments, bundle.build(settings, self.pipeline), None if asked["dry_run"] else rollback_id)


class ConsumersSubmit(RewindSubmit):
    """Moves consumer groups to another output."""

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Check the form once more and hand it over; a dry run leaves no mark of its end."""
        assert self.pipeline is not None
        ti, asked = context["ti"], run.asked(context, forms.CONSUMERS)
        move_id = forms.move_id(ti.dag_id, ti.run_id)
        self._noted(settings, context, asked, move_id)
        arguments = ["--move-id", move_id, "--pipeline", self.pipeline, "--request", json.dumps(asked)]
        return Errand(arguments, bundle.build(settings, self.pipeline), None if asked["dry_run"] else move_id)


class DeploySubmit(RewindSubmit):
    """Makes the first generation of a pipeline."""

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Say where the first generation starts."""
        assert self.pipeline is not None
        asked = run.asked(context, forms.DEPLOY)
        self._noted(settings, context, asked)
        arguments = ["--pipeline", self.pipeline, "--from", asked["from"]]
        return Errand(arguments, bundle.build(settings, self.pipeline))


class CollectSubmit(RewindSubmit):
    """Deletes what retired and aborted generations own."""

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Say whether to delete or only to list."""
        asked = run.asked(context, forms.COLLECT)
        self._noted(settings, context, asked)
        arguments = ["--dry-run"] if asked["dry_run"] else []
        return Errand(arguments, bundle.build(settings, None))


class ProveSubmit(RewindSubmit):
    """Looks for what mirrors have lost."""

    def errand(self, context: Context, settings: Settings) -> Errand:
        """Name the topic, if only one is meant."""
        asked = run.asked(context, forms.PROVE)
        topic = asked["topic"]
        self._noted(settings, context, asked, topic or "")
        arguments = ["--topic", names.checked(topic, "topic")] if topic else []
        return Errand(arguments, bundle.build(settings, None))


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
