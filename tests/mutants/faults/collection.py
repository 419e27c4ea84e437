"""Faults of collection, the manifest, and what is known of a mirror."""

from __future__ import annotations

from tests.mutants.fault import COMPARISON, EFFECT, GUARD, REACTION, VALUE, Fault

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
    Fault(
        "listed-by-another-and-collected",
        GUARD,
        "collect.collect",
        "owners.refuse_contested(connection, job_id)",
        "pass",
    ),
    Fault(
        "hidden-topic-refused-alone", REACTION, "collect._delete", "except DeniedError:", "except IsADirectoryError:"
    ),
    Fault("absent-on-a-disk-that-is-away", GUARD, "collect._below", "if not root.is_dir():", "if False:"),
    Fault(
        "output-never-released", EFFECT, "owners.release", "& (_table.c.space == OUTPUT)", '& (_table.c.space == "")'
    ),
    Fault("base-released-too-soon", GUARD, "owners.release", "if base not in {", "if base + '?' not in {"),
    Fault(
        "second-owner",
        GUARD,
        "owners.check",
        "if found is not None and found.owner != claim.owner:",
        "if False:",
    ),
    Fault("strangers-topic-taken", GUARD, "refuse_foreign", "if any(found.latest.values()):", "if False:"),
    Fault("topic-made-anew-taken", GUARD, "refuse_foreign", "if topic_id is not None:", "if False:"),
    Fault("taken-back-from-another", GUARD, "allocate._made", "if not wanted and not own:", "if False:"),
    Fault("root-made-on-a-bare-mount", GUARD, "allocate._roots", "if known and not root.is_dir():", "if False:"),
    Fault("group-in-use-taken", GUARD, "refuse_leftovers", "preflight.refuse_group_in_use(job, broker)", "pass"),
    Fault(
        "mirror-without-an-owner",
        GUARD,
        "streams.wish",
        "owners.claim(connection, [owners.of_mirror(owner)])",
        "pass",
    ),
    Fault("case-tells-names-apart", VALUE, "names.fold", ".casefold()", ""),
    Fault(
        "denied-taken-for-absent",
        GUARD,
        "Broker._describe",
        'raise self._denied("Describe", "topic", name)',
        "return None",
    ),
    Fault("error-taken-for-there", GUARD, "Broker._describe", "        if code:\n", "        if False:\n"),
    Fault(
        "plan-without-owners",
        GUARD,
        "plan._plan",
        "owners.check(connection, owners.of_job(pipeline, made.job_id, made.config, outputs))",
        "pass",
    ),
    Fault("staging-announced", VALUE, "shared_output.read_from", 'if config.get("shared")', "if False"),
    Fault("deletion-without-a-reason", GUARD, "deletions.record", "if not reason.strip():", "if False:"),
)
