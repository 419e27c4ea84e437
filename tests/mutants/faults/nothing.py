"""Faults of what keeps a verdict over nothing from passing, and a stream from being left alone unsaid."""

from __future__ import annotations

from tests.mutants.fault import EFFECT, GUARD, Fault

FAULTS = (
    Fault(
        "nothing-in-the-horizon-passes",
        GUARD,
        "findings._nothing",
        'return f"{NOTHING}: there is no record that both jobs have processed{beyond}"',
        'return ""',
    ),
    Fault(
        "dead-letters-alone-pass",
        GUARD,
        "findings._nothing",
        "rows and not rows == letters == counts.get(compare.EQUAL)",
        "rows",
    ),
    Fault(
        "rows-that-a-rule-expected-count-as-nothing",
        GUARD,
        "findings._nothing",
        "rows == letters == counts.get(compare.EQUAL)",
        "rows == letters",
    ),
    Fault("first-records-not-waited-for", EFFECT, "nothing_compared.awaited", "and clock() < until", "and False"),
    Fault("first-records-waited-for-without-end", GUARD, "nothing_compared.awaited", "+ FIRST_RECORDS_SECONDS", "+ 90"),
    Fault("expectation-of-nothing-holds", GUARD, "expectation_checks._answer", "if not _examined(said):", "if False:"),
    Fault(
        "expectation-of-nulls-alone-holds",
        GUARD,
        "expectation_checks._examined",
        'elements > (said.get("missing_count") or 0)',
        "elements > 0",
    ),
    Fault(
        "states-that-are-not-there-pass",
        GUARD,
        "state_comparison.gated",
        "lifecycle.ERROR if found.absent() else verdict",
        "verdict",
    ),
    Fault("nothing-compared-without-a-reason", GUARD, "comparing.check", "if not reason.strip():", "if False:"),
    Fault("roll-back-by-nothing", GUARD, "comparing.check", "if on_difference == ROLL_BACK:", "if False:"),
    Fault(
        "nothing-approved-without-a-reason",
        GUARD,
        "verdicts.needs_reason",
        "(lifecycle.FAIL, lifecycle.UNCOMPARED)",
        "(lifecycle.FAIL,)",
    ),
    Fault(
        "approval-of-nothing-does-not-say-so",
        EFFECT,
        "verdicts._kept",
        'if given != "approve" or verdict.verdict != lifecycle.UNCOMPARED:',
        "if True:",
    ),
    Fault(
        "check-of-nothing-gone-on-from",
        GUARD,
        "validate._store",
        "if judged.verdict in (lifecycle.PASS, lifecycle.FAIL):",
        "if judged.verdict != lifecycle.ERROR:",
    ),
    Fault(
        "compared-against-the-choice",
        GUARD,
        "new_rows.compared_since",
        "if plan.request.compare == comparing.NONE:",
        "if False:",
    ),
    Fault("observed-against-the-choice", GUARD, "_comparison_due", "if asked.compare == comparing.NONE:", "if False:"),
    Fault(
        "switch-over-nothing-announced-as-any",
        EFFECT,
        "announce.prepare",
        "if verdict is not None and verdict.verdict == lifecycle.UNCOMPARED:",
        "if False:",
    ),
    Fault("standby-without-a-driver-stands-by", GUARD, "offers._standby", "old.driver.state in DRIVEN", "True"),
    Fault("paused-dag-not-told", EFFECT, "supervision._note", "sorted(set(paused) - known)", "()"),
    Fault("paused-dag-told-each-minute", EFFECT, "supervision._note", "sorted(set(paused) - known)", "sorted(paused)"),
    Fault(
        "airflow-away-taken-for-not-paused",
        GUARD,
        "supervision._is_paused",
        'if (problem.error.detail or {}).get("status_code") != HTTPStatus.NOT_FOUND:',
        "if False:",
    ),
    Fault(
        "paused-dag-started-all-the-same",
        GUARD,
        "supervision.unsupervised",
        "if dag_of(stream) not in paused]",
        "]",
    ),
)
