"""Faults of values and pure rules."""

from __future__ import annotations

from tests.mutants.fault import COMPARISON, EFFECT, GUARD, ORDER, RANGE, SIDES, VALUE, Fault

PLAN = (
    Fault("planned-beside-an-active-rewind", GUARD, "make_plan", "_refuse_second(request, world)", "pass"),
    Fault("applied-beside-an-active-rewind", GUARD, "still_holds", "_refuse_second(plan.request, world)", "pass"),
    Fault("topic-recreated-unseen", GUARD, "planner._topic", "if topic.id != live.topic_id:", "if False:"),
    Fault(
        "nothing-differs",
        GUARD,
        "_refuse_same",
        "if not found and not request.same_code and kind != REPAIR:",
        "if False:",
    ),
    Fault("repair-asked-what-differs", COMPARISON, "_refuse_same", " and kind != REPAIR", ""),
    Fault("state-compared-with-none", GUARD, "_refuse_other_kind", "if kept != pipeline.stateful:", "if False:"),
    Fault("readers-of-a-table-moved", GUARD, "make_plan", "_refuse_readers(request, pipeline, live)", "pass"),
    Fault("output-there-already", GUARD, "planner._outputs", "    if there:\n", "    if False:\n"),
    Fault(
        "colliding-names",
        GUARD,
        "planner._outputs",
        'names.checked_new([job, output, dead], taken, "pipeline")',
        "pass",
    ),
    Fault("moved-world-applied", GUARD, "still_holds", "    if moved:\n", "    if False:\n"),
    Fault("changed-configuration-applied", GUARD, "still_holds", "if pipeline.frozen() != plan.config:", "if False:"),
    Fault("mirror-of-another-topic", GUARD, "planner._mirror", " and state.topic_id == topic.id", ""),
    Fault("range-inverted", GUARD, "asked_range.check", "    if inverted:\n", "    if False:\n"),
    Fault("range-beyond-the-end", GUARD, "asked_range.check", "    if beyond:\n", "    if False:\n"),
    Fault("range-before-the-mirror", GUARD, "asked_range.check", "    if before:\n", "    if False:\n"),
    Fault("instant-in-the-future", GUARD, "dated_range._timestamp", "if found.instant > sight.now:", "if False:"),
    Fault("period-stops-at-a-commit-that-may", RANGE, "periods._until_sure", "span.surely(period)", "span.may(period)"),
    Fault("deleted-record-taken-for-sure", RANGE, "Span.surely", "self.whole and ", ""),
    Fault("lag-to-what-can-be-read", VALUE, "Topic.end", "higher(self.latest, self.written)", "dict(self.latest)"),
    Fault("unread-offsets-untold", EFFECT, "dated_range.remarks", "if dated.period.until is not None", "if False"),
    Fault("partitions-unknown-or-missing", GUARD, "asked_range._exactly", "if unknown or lacking:", "if False:"),
    Fault("gap-of-the-mirror-unaccepted", GUARD, "asked_range.gaps", "    if refused:\n", "    if False:\n"),
    Fault("legal-hole-refused", COMPARISON, "unexplained", "missing(hole, legal)", "[hole]"),
    Fault("group-in-use", GUARD, "refuse_group_in_use", "if state is not None:", "if False:"),
    Fault("repair-into-a-shared-output", GUARD, "sharing.refuse", 'if kind == REPAIR and into == "live":', "if False:"),
    Fault("repair-of-open-results", GUARD, "windows.touched", "    if last > closed:\n", "    if False:\n"),
    Fault("unbounded-state-from-the-middle", GUARD, "warm_up.begin", "    if horizon is None:\n", "    if False:\n"),
    Fault(
        "warm-up-without-a-horizon",
        VALUE,
        "warm_up.begin",
        "opened.closing_watermark - horizon",
        "opened.closing_watermark",
    ),
)
RULES = (
    Fault(
        "overlap-keeps-the-later-end",
        SIDES,
        "OffsetRange.overlap",
        "min(self.end, other.end)",
        "max(self.end, other.end)",
    ),
    Fault(
        "adjoining-ranges-kept-apart",
        RANGE,
        "offsets.merged",
        "part.start <= result[-1].end",
        "part.start < result[-1].end",
    ),
    Fault(
        "a-range-touches-its-neighbour",
        RANGE,
        "offsets.near",
        "bisect.bisect_right(parts, wanted.start",
        "bisect.bisect_left(parts, wanted.start",
    ),
    Fault("not-quite-reached", RANGE, "offsets.reached", ">= offset", ">= offset - 1"),
    Fault(
        "last-gap-forgotten",
        EFFECT,
        "offsets.missing",
        "if position < wanted.end:\n        gaps",
        "if False:\n        gaps",
    ),
    Fault(
        "higher-position-for-the-ceiling", SIDES, "offsets.lower", "min(left[p], right[p])", "max(left[p], right[p])"
    ),
    Fault("floor-forgets-where-live-is-whole", VALUE, "horizon.horizon", ", live_whole.get(p, 0))", ")"),
    Fault("lost-records-of-an-output-unseen", GUARD, "first_unread", "    if lost:\n", "    if False:\n"),
    Fault(
        "last-chunk-short",
        RANGE,
        "chunks._share",
        "len(r) * (number + 1) // count",
        "len(r) * (number + 1) // count - (number + 1 == count)",
    ),
    Fault(
        "chunks-by-no-order-of-arrival", ORDER, "chunks._boundaries", "sorted(by_span, reverse=True)", "sorted(by_span)"
    ),
    Fault(
        "links-written-through",
        GUARD,
        "names.inside",
        "if path.is_symlink() or (path.exists() and path.resolve().parent != folder.resolve()):",
        "if False:",
    ),
    Fault("illegal-name", GUARD, "names.checked", "if not _LEGAL.fullmatch(name):", "if False:"),
    Fault("name-too-long", GUARD, "names.checked", "if len(name) > LONGEST:", "if False:"),
    Fault("any-move-of-state", GUARD, "check_move", "if (old, new) not in MOVES:", "if False:"),
    Fault("naive-instant", GUARD, "parse_instant", "if value.tzinfo is None:", "if False:"),
    Fault("lost-hole-of-a-mirror-legal", GUARD, "mirror_proof.refuse", "    if unaccepted:\n", "    if False:\n"),
    Fault("different-bytes-at-one-offset", GUARD, "mirror_proof.refuse", "    if wrong:\n", "    if False:\n"),
    Fault("damaged-mirror-whole", COMPARISON, "Proof.verdict", "self.lost or ", ""),
    Fault("night-begins-anew", VALUE, "nights.range_of", "if same is not None:", "if False:"),
    Fault(
        "nights-leave-a-gap",
        RANGE,
        "nights._first",
        "{**at_start, **ended} if before.end == night.start else higher(at_start, ended)",
        "dict(at_start)",
    ),
    Fault("group-before-what-is-held", GUARD, "check_reach", "if lost and not replayed:", "if False:"),
    Fault("group-before-the-history", GUARD, "check_history", "    if short:\n", "    if False:\n"),
    Fault(
        "setting-of-a-newer-release-ignored",
        GUARD,
        "pipeline.thaw",
        "if unknown := fields.keys() - Pipeline.__dataclass_fields__.keys():",
        "if (unknown := fields.keys() - Pipeline.__dataclass_fields__.keys()) and False:",
    ),
    Fault("last-look-past-the-end", COMPARISON, "observing.next_look", "return min(", "return max("),
)
FAULTS = (*PLAN, *RULES)
