"""Faults of collection, the manifest, and what is known of a mirror."""

from __future__ import annotations

from tests.mutants.fault import COMPARISON, EFFECT, GUARD, VALUE, Fault

WITHIN_GRACE = Fault(
    "standby-collected-within-its-grace",
    GUARD,
    "collect._grace_is_over",
    "until is not None and until <= now() and not watched",
    "True",
)
ORPHAN_LEFT = Fault("orphan-topic-left", EFFECT, "collect._unmade_topic", "if found is None:", "if True:")

FAULTS = (
    WITHIN_GRACE,
    ORPHAN_LEFT,
    Fault("watched-standby-collected", GUARD, "collect._grace_is_over", " and not watched", ""),
    Fault("grace-never-over", COMPARISON, "collect._grace_is_over", "until <= now()", "until > now()"),
    Fault(
        "retired-before-its-grace",
        GUARD,
        "retire_and_collect",
        "if not _grace_is_over(until, job_id in rewinds.watched_standbys(connection)):",
        "if False:",
    ),
    Fault("collected-by-a-jumped-clock", GUARD, "retire_and_collect", "_check_clock(connection)", "pass"),
    Fault(
        "standby-retired-undrained",
        EFFECT,
        "retire_and_collect",
        "streams.wish(connection, job_id, streams.GENERATION, streams.DRAIN)",
        "pass",
    ),
    Fault("live-collected", GUARD, "collect.collect", "if state not in COLLECTABLE:", "if False:"),
    Fault(
        "leased-collected",
        GUARD,
        "collect.collect",
        "if lease is not None and lease.holder is not None and leases.alive(lease.holder):",
        "if False:",
    ),
    Fault("refused-deletion-taken-for-done", GUARD, "collect.collect", "    if refused:\n", "    if False:\n"),
    Fault(
        "name-of-another-collected",
        GUARD,
        "_check_own",
        "if entry.name not in own.get(entry.kind, set()):",
        "if False:",
    ),
    Fault(
        "unrecorded-topic-with-records-deleted", GUARD, "_unmade_topic", "if any(found.latest.values()):", "if False:"
    ),
    Fault("ledger-forgets-who-began", VALUE, "collect._delete", 'result = "deleted"', "pass"),
    Fault("withdrawn-thing-made", GUARD, "manifest.made", " & schema.manifest.c.state.in_((NAMED, MADE))", ""),
    Fault("made-thing-not-withdrawn", EFFECT, "manifest.withdraw", ".in_((NAMED, MADE))", ".in_((NAMED,))"),
    Fault("deletion-beyond-the-mirror-recorded", GUARD, "deletions.look", "if missing(wanted, covered):", "if False:"),
    Fault("deletion-without-a-reason", GUARD, "deletions.record", "if not reason.strip():", "if False:"),
)
