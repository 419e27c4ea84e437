"""Faults of what each step does."""

from __future__ import annotations

from tests.mutants.fault import EFFECT, GUARD, LOCK, REACTION, SIDES, VALUE, Fault

FAULTS = (
    Fault(
        "another-pipelines-rewind-aborted",
        GUARD,
        "ownership.refuse_rewind_of_another",
        "if of_rewind(connection, rewind_id) != pipeline:",
        "if False:",
    ),
    Fault(
        "another-pipelines-job-supervised",
        GUARD,
        "ownership.refuse_job_of_another",
        "if found is None or found.pipeline != pipeline:",
        "if found is None:",
    ),
    Fault(
        "switch-from-elsewhere",
        GUARD,
        "cut_over._ready",
        "if found is None or (found[0].job_id, found[1]) != (switch.plan.live_job_id, switch.plan.epoch):",
        "if found is None:",
    ),
    Fault("verdict-too-old", GUARD, "cut_over._ready", "if now() - verdict.at > OLDEST_VERDICT:", "if False:"),
    Fault(
        "switch-to-a-dead-candidate",
        GUARD,
        "cut_over._ready",
        "if lease is None or lease.holder is None or not leases.alive(lease.holder):",
        "if lease is None:",
    ),
    Fault("new-difference-switched", GUARD, "cut_over._recheck", "    if new:\n", "    if False:\n"),
    Fault("candidate-behind-switched", GUARD, "cut_over._prove_past", "if reached(at, frozen):", "if True:"),
    Fault(
        "approval-not-read-again", GUARD, "cut_over._moved", "verdicts.approved(connection, switch.rewind_id)", "pass"
    ),
    Fault(
        "switched-while-publishing",
        GUARD,
        "cut_over._moved",
        "publishing.check_stopped(connection, switch.live, plan.epoch, switch.rewind_id)",
        "pass",
    ),
    Fault(
        "older-standbys-kept",
        EFFECT,
        "cut_over._moved",
        "generations.end_older_standbys(connection, plan.request.pipeline, plan.live_job_id)",
        "pass",
    ),
    Fault(
        "groups-not-moved",
        EFFECT,
        "_cut_over",
        "moved = consumer_groups.carry_out(settings, Broker(settings), rewind_id)",
        "moved = []",
    ),
    Fault("batch-written-without-the-lease", GUARD, "Driver.gate", "self._guard.check()", "pass"),
    Fault("drain-writes-on", GUARD, "Driver.gate", "if self._draining:", "if False:"),
    Fault(
        "progress-recorded-with-a-lost-token",
        GUARD,
        "Driver._record",
        "leases.renew(connection, self._source.owner, self._guard.token)",
        "pass",
    ),
    Fault(
        "group-not-committed",
        EFFECT,
        "Driver._record",
        "Broker(self._settings).commit(self._source.group, self._source.topic, self._pending[-1].end)",
        "pass",
    ),
    Fault("group-committed-at-the-start", SIDES, "Driver._record", "self._pending[-1].end", "self._pending[-1].start"),
    Fault("batch-of-a-dead-driver-forgotten", EFFECT, "Driver.run", "self._reconcile()", "pass"),
    Fault("feed-read-twice", GUARD, "Feeding.run", "if taken_over(self._spark, self._checkpoint):", "if False:"),
    Fault(
        "swapped-on-an-uncommitted-batch", GUARD, "check_swap", "if begun is None or begun != committed:", "if False:"
    ),
    Fault("swapped-before-the-feed-is-read", GUARD, "check_swap", "    if read != there:\n", "    if False:\n"),
    Fault("batch-of-several-chunks", GUARD, "Feeding._chunk_of", "if done[1] - done[0] not in (0, 1):", "if False:"),
    Fault("fed-without-the-lease", GUARD, "Feeding._fill", "self._guard.check()", "pass"),
    Fault("stream-without-a-handoff", GUARD, "stream.first_offsets", "if generation.handoff is None:", "if False:"),
    Fault("stream-of-another-checkpoint", GUARD, "stream.first_offsets", "        if other:\n", "        if False:\n"),
    Fault(
        "stream-of-a-recreated-topic", GUARD, "stream.checked_topic", "if topic.id != generation.topic_id:", "if False:"
    ),
    Fault("stream-swaps-unchecked", GUARD, "stream.run", "feeding.check_swap(spark, settings, job_id)", "pass"),
    Fault("code-from-elsewhere", GUARD, "stream.run", "bundle.check_origin(sys.modules, frozen.folder)", "pass"),
    Fault(
        "mirror-batch-that-did-not-land",
        GUARD,
        "Writer.append",
        "if (application, batch) not in {entry.transaction for entry in landed} and not self._holds(ranges):",
        "if False:",
    ),
    Fault(
        "live-aborted", GUARD, "_abort", "if mine and made is not None and made.state not in _UNDOABLE:", "if False:"
    ),
    Fault(
        "generation-of-another-aborted",
        GUARD,
        "_abort",
        " and generations.rewind_of(connection, found.job_id) == rewind_id",
        "",
    ),
    Fault(
        "aborted-without-a-word",
        EFFECT,
        "_abort",
        'rewinds.fix(connection, rewind_id, rewinds.ABORTING, {"reason": reason})',
        "pass",
    ),
    Fault("back-before-the-standby-is-past", GUARD, "_await_standby", "if reached(standby, frozen):", "if True:"),
    Fault(
        "full-disk-for-damage",
        REACTION,
        "failures.typed",
        "return error if kind is None else",
        "return error if kind is None or kind.error is RetryError else",
    ),
    Fault("failed-step-for-done", VALUE, "recording.recorded", '"failed", {"error"', '"done", {"error"'),
    Fault("refusal-exits-with-0", REACTION, "recording.run", "return error.exit_code", "return 0"),
    Fault(
        "plan-of-another-pipeline-applied",
        GUARD,
        "plan._made",
        "if stored.request.pipeline != request.pipeline:",
        "if False:",
    ),
    Fault("tombstones-from-a-lossy-output", GUARD, "Publisher._gone", " or not made.whole", ""),
    Fault(
        "another-shared-output-published-to",
        GUARD,
        "publish._target",
        " or _id_of(settings, found) != found.resource_id",
        "",
    ),
    Fault(
        "backfill-ends-far-behind",
        VALUE,
        "_close_enough",
        "return left <= work.pipeline.lag_gate or left > covered / 2",
        "return True",
    ),
    Fault(
        "wave-cut-within-its-transaction",
        LOCK,
        "cut_wave",
        "chunk_log.add_wave(connection, work.rewind_id, wave, made)",
        "chunk_log.add_wave(connection, work.rewind_id, wave, cut(ranges, version))",
    ),
    Fault(
        "wave-cut-without-the-lease",
        GUARD,
        "cut_wave",
        "leases.renew(connection, work.plan.job_id, guard.token)",
        "pass",
    ),
    Fault(
        "handoff-between-batches-of-live",
        GUARD,
        "_wave_end",
        "reach = {**reach, **_batch_end(settings, work, reach)}",
        "pass",
    ),
)
