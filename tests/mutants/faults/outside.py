"""Faults of what people and Airflow touch: commands, the page, the local stack, the DAGs, the plugin."""

from __future__ import annotations

from tests.mutants.fault import COMPARISON, EFFECT, GUARD, ORDER, REACTION, SIDES, VALUE, Fault

VIEWS = (
    Fault("long-look-in-silence", COMPARISON, "Voice.beat", "at - self._printed >= SILENT_SECONDS", "False"),
    Fault("recreated-topic-lags", GUARD, "status_jobs.lag_of", "if topic.id != row.topic_id:", "if False:"),
    Fault(
        "held-back-for-readers-of-all",
        VALUE,
        "status_jobs.lag_of",
        '{} if row.isolation == "read_uncommitted" else ',
        "",
    ),
    Fault(
        "grace-that-is-over-keeps",
        COMPARISON,
        "status_garbage._why_kept",
        " and job.grace_until > now",
        "",
    ),
    Fault("label-unescaped", VALUE, "metrics._quoted", """_escaped(text).replace('"', r"\\"")""", "text"),
)

CLI = (
    Fault("plan-that-acts", VALUE, "trigger._plan", '"dry_run": True', '"dry_run": False'),
    Fault("start-that-only-plans", VALUE, "trigger._start", '"dry_run": False', '"dry_run": True'),
    Fault("collect-without-being-asked", GUARD, "cli.collect._collect", "if not arguments.dry_run:", "if True:"),
    Fault("approved-without-a-yes", GUARD, "answer._confirm", 'not in ("y", "yes")', 'in ("never",)'),
    Fault(
        "rejection-approves",
        SIDES,
        "answer._answered",
        '"Reject" if rejected else "Approve"',
        '"Approve" if rejected else "Reject"',
    ),
    Fault(
        "question-of-another-rewind-answered",
        GUARD,
        "answer._questions",
        "if forms.rewind_id(dag_id, run_id) == rewind_id",
        "",
    ),
    Fault("error-exits-with-0", REACTION, "cli.main.main", "return error.exit_code", "return 0"),
    Fault(
        "tasks-of-another-rewind-ended",
        GUARD,
        "trigger._end_steps",
        ' if forms.rewind_id(dag_id, run["dag_run_id"]) == found.id',
        "",
    ),
    Fault(
        "run-started-unchecked",
        GUARD,
        "trigger._started",
        "forms.checked(conf, forms.form_of(dag_id), dag_id)",
        "pass",
    ),
    Fault("argument-left-empty", GUARD, "cli.main.main", "_refuse_empty(arguments)", "pass"),
    Fault("pointer-served-to-anyone", GUARD, "_Handler.do_GET", "if not self._may():", "if False:"),
    Fault("resume-pauses", SIDES, "operate._resume", "paused=False", "paused=True"),
)
WEB = (
    Fault(
        "another-pipelines-rewind-shown",
        GUARD,
        "Viewer.check",
        "if hidden := sorted(set(pipelines) - self.sees(pipelines)):",
        "if hidden := []:",
    ),
    Fault("all-pipelines-listed", GUARD, "Viewer.part", "if not hidden:", "if True:"),
    Fault(
        "another-sites-page-acts",
        GUARD,
        "guard.foreign",
        "if origin and urlsplit(origin)",
        "if False and urlsplit(origin)",
    ),
    Fault("endless-body-read", GUARD, "guard._read", "        if len(body) > LONGEST_BODY:\n", "        if False:\n"),
    Fault(
        "action-without-the-right",
        GUARD,
        "action_on",
        "if not await asyncio.to_thread(viewer.may_run, dag_id):",
        "if False:",
    ),
    Fault("action-with-anything", GUARD, "action_on", "forms.checked(asked, FORMS[action], action)", "asked"),
    Fault(
        "page-starts-a-run-unchecked",
        GUARD,
        "AirflowPort.trigger",
        "forms.checked(conf, forms.form_of(dag_id), dag_id)",
        "pass",
    ),
    Fault("action-that-is-not-offered", GUARD, "actions.act", "if action not in offered:", "if False:"),
    Fault(
        "failure-answered-without-a-reason",
        GUARD,
        "actions.act",
        "if offered[action].asks == offers.NEEDED and not asked.reason.strip():",
        "if False:",
    ),
    Fault(
        "error-offered-for-approval", GUARD, "offers._answers", "if verdict.verdict == lifecycle.ERROR:", "if False:"
    ),
    Fault("abort-offered-after-the-switch", GUARD, "offers._ends", "pipeline.live != rewind.job_id and ", ""),
    Fault(
        "file-outside-the-docs",
        GUARD,
        "page_below",
        "within = found.is_relative_to(docs) and found.relative_to(docs).parts[0:1]",
        "within = (evidence.DOCS,)",
    ),
    Fault(
        "asset-outside-the-page",
        GUARD,
        "app._asset",
        'if "/" in name or name.startswith(".") or kind is None or not found.is_file():',
        "if not found.is_file():",
    ),
    Fault("evidence-runs-scripts", GUARD, "app._document", '"Content-Security-Policy": alone', '"X-Alone": alone'),
    Fault("token-opens-the-whole-page", GUARD, "TokenGate.__call__", "self._is_read(scope) and ", ""),
    Fault("any-read-without-a-token", GUARD, "TokenGate.__call__", " and self._bears(Request(scope))", ""),
    Fault("answer-by-an-old-look", EFFECT, "app._anew", "state.forget()", "pass"),
    Fault(
        "steps-of-another-rewind-ended",
        GUARD,
        "AirflowPort.end_steps",
        ' if id_of(dag_id, one["dag_run_id"]) == rewind_id',
        "",
    ),
    Fault("large-numbers-rounded", COMPARISON, "wire._exact", "abs(value) > LARGEST", "False"),
    Fault(
        "abort-leaves-its-steps",
        EFFECT,
        "actions._abort",
        'await asked.airflow.end_steps(asked.request, f"rewind_{asked.pipeline.name}", asked.rewind.id)',
        "[]",
    ),
)
LOCAL = (
    Fault("port-of-another-taken", GUARD, "ports._checked", "if not is_free(port):", "if False:"),
    Fault("dead-process-awaited", GUARD, "readiness.wait_for", "if not process.alive:", "if False:"),
    Fault(
        "process-with-old-settings-kept",
        COMPARISON,
        "local.processes._runs_as",
        " and process.fingerprint == command.fingerprint",
        "",
    ),
    Fault(
        "failing-demo-approved", GUARD, "Follower._answer", "if view.verdict.verdict != lifecycle.PASS:", "if False:"
    ),
    Fault(
        "faults-of-the-demo-unseen",
        COMPARISON,
        "proof.faults",
        "if name not in SUMS and number",
        "if name in SUMS and not number",
    ),
    Fault(
        "demo-loses-an-expected-change",
        COMPARISON,
        "proof.faults",
        'if counts.get("expected") != planted_expected:',
        "if False:",
    ),
)
AIRFLOW = (
    Fault(
        "refusal-tried-again",
        REACTION,
        "reactions.reactions",
        "except (RetryError, LeaseHeldError) as error:",
        "except RewindError as error:",
    ),
    Fault("retry-for-a-failure", REACTION, "reactions.reactions", "(RetryError, LeaseHeldError)", "LeaseHeldError"),
    Fault(
        "final-code-tried-again",
        REACTION,
        "outcome._reaction",
        "FAIL if seen.exit_code in FINAL_CODES else RETRY",
        "RETRY",
    ),
    Fault(
        "failed-driver-taken-for-good",
        GUARD,
        "outcome.judge",
        "if seen.driver is not None and seen.driver.upper() not in GOOD_ENDS:",
        "if False:",
    ),
    Fault("unmarked-end-taken-for-good", GUARD, "outcome.judge", "if seen.marked is False:", "if False:"),
    Fault("rejection-goes-on", GUARD, "Approve._answer", 'if given != "approve":', "if False:"),
    Fault(
        "failure-approved-by-itself",
        GUARD,
        "approvers.needs_no_person",
        " and verdict.verdict == lifecycle.PASS",
        "",
    ),
    Fault("asked-though-answered", COMPARISON, "Approve.execute", "if given is not None:", "if False:"),
    Fault(
        "approve-and-reject-swapped",
        SIDES,
        "Approve.execute_complete",
        '"approve" if event["chosen_options"] == [self.APPROVE] else "reject"',
        '"reject" if event["chosen_options"] == [self.APPROVE] else "approve"',
    ),
    Fault("quarantine-watched-on", REACTION, "Supervise.over", "if seen.state == supervise.QUARANTINED:", "if False:"),
    Fault(
        "candidate-that-never-comes",
        GUARD,
        "waits._late",
        "if since is None or datetime.now(UTC) - since < CATCH_UP_LIMIT:",
        "if True:",
    ),
    Fault(
        "observed-to-the-end-though-ill",
        GUARD,
        "waits._pending",
        "return _illness(connection, plan.job_id)",
        'return ""',
    ),
    Fault("rolled-back-observed-for-done", GUARD, "Observe.over", "if state == lifecycle.ROLLED_BACK:", "if False:"),
    Fault(
        "rewind-stays-active-after-observing",
        EFFECT,
        "Observe.over",
        "rewinds.close(connection, rewind_id, lifecycle.FINISHED)",
        "pass",
    ),
    Fault(
        "switched-rewind-aborted",
        GUARD,
        "triggers.why_kept",
        'if (live is not None and live[0].job_id == rewind.job_id) or rewinds.fact(connection, rewind_id, "cut_over"):',
        "if False:",
    ),
    Fault(
        "rolled-back-unasked",
        GUARD,
        "TriggerRollback.execute",
        "if plan.request.on_difference != ROLL_BACK or not observed.differences:",
        "if not observed.differences:",
    ),
    Fault(
        "aborted-beside-a-living-driver",
        GUARD,
        "AbortSubmit.errand",
        'step_lease.refuse_living(settings, params["rewind_id"], TrackedHook(CONNECTION).state_of)',
        "pass",
    ),
    Fault(
        "repair-takes-steps-of-a-rewind", GUARD, "StepSubmit.errand", "if self.job in plan.shape.skipped:", "if False:"
    ),
    Fault(
        "second-supervisor",
        GUARD,
        "StartStream.execute",
        'if supervision.supervised(context["ti"], stream):',
        "if False:",
    ),
    Fault("lease-released-before-the-end", GUARD, "SubmitLease.settle", "if self._hook.ended:", "if True:"),
    Fault("killed-task-leaves-processes", EFFECT, "SubmitLease.kill", "step_lease.kill(self._hold)", "pass"),
    Fault(
        "lost-lease-kills-its-successor",
        GUARD,
        "SubmitLease.kill",
        'log.warning("%s: what still runs is no more this attempt\'s to end", lost)\n            return',
        "pass",
    ),
    Fault("drifted-night-passes", GUARD, "NightSubmit._end", "if found.state == rules.DRIFTED:", "if False:"),
    Fault("conf-left-to-airflow", GUARD, "run.given", ', **(context["dag_run"].conf or {})', ""),
    Fault(
        "run-with-anything",
        GUARD,
        "run.asked",
        'forms.checked(given(context), form, context["ti"].dag_id)',
        "given(context)",
    ),
    Fault(
        "form-of-none-with-anything",
        GUARD,
        "nothing_asked",
        'asked(cast("Context", context), forms.NOTHING)',
        "pass",
    ),
    Fault("missed-nights-backwards", ORDER, "rewind_airflow.nights.missed", "return found[::-1]", "return found"),
)
PARSING = (
    Fault(
        "parse-asked-for-though-nothing-changed",
        GUARD,
        "PipelinesDagBundle.refresh",
        "if self._seen is not None and found != self._seen:",
        "if self._seen is not None:",
    ),
    Fault("changed-folder-not-parsed", EFFECT, "PipelinesDagBundle.refresh", "request(self.name, self.path)", "pass"),
)
PLUGIN = (
    Fault(
        "page-open-without-access-control", GUARD, "rewind_plugin._closed", "raise HTTPException(403, ", "print(403, "
    ),
    Fault("reading-for-running", SIDES, "_access.may_run", 'may(user, "POST", ', 'may(user, "GET", '),
    Fault("every-pipeline-shown", GUARD, "_access.may", "if manager.is_authorized_dag(details=details, **asked)", ""),
)
FAULTS = (*VIEWS, *CLI, *WEB, *LOCAL, *PARSING, *AIRFLOW, *PLUGIN)
