"""Faults of transforms and adapters: what Spark is told to do."""

from __future__ import annotations

from tests.mutants.fault import COMPARISON, EFFECT, GUARD, ORDER, RANGE, REACTION, SIDES, VALUE, Fault

TRANSFORMS = (
    Fault("missing-and-extra-swapped", SIDES, "compare._class", "otherwise(MISSING))", "otherwise(EXTRA))"),
    Fault("null-equals-nothing", COMPARISON, "compare._same", ".eqNullSafe(F.col(right))", " == F.col(right)"),
    Fault("ceiling-compared-too", RANGE, "compare.comparable", 'F.col("o") < r.end', 'F.col("o") <= r.end'),
    Fault("floor-left-out", RANGE, "compare.from_floor", 'F.col("o") >= r.start', 'F.col("o") > r.start'),
    Fault(
        "unlisted-field-expected",
        COMPARISON,
        "compare._all_expected",
        'F.size(F.array_except("fields", F.array(*declared))) == 0',
        "F.lit(True)",
    ),
    Fault("lost-side-of-the-join", VALUE, "compare.classified", 'how="full_outer"', 'how="left_outer"'),
    Fault(
        "large-numbers-as-doubles",
        VALUE,
        "column_rules._near",
        "exact = isinstance(kind, (IntegralType, DecimalType))",
        "exact = False",
    ),
    Fault("infinity-near-all", COMPARISON, "column_rules._near", ' & (difference < F.lit(float("inf")))', ""),
    Fault("instants-cut-to-microseconds", GUARD, "_one_instant", "held[0] & held[1] & ", ""),
    Fault(
        "oldest-repair-counts",
        ORDER,
        "outputs.deduplicated",
        'F.struct("repair", "out_offset")',
        'F.struct("out_offset", "repair")',
    ),
    Fault(
        "first-copy-counts",
        ORDER,
        "outputs.fingerprints",
        'F.max_by("hash", "out_offset")',
        'F.min_by("hash", "out_offset")',
    ),
    Fault(
        "older-version-over-newer",
        ORDER,
        "merging.with_fate",
        'F.col("version") > F.col("held")',
        'F.col("version") < F.col("held")',
    ),
    Fault("keys-before-the-range-deleted", GUARD, "merging.tombstones", " & ~_before(begin)", ""),
    Fault("results-in-warm-up-deleted", GUARD, "merging.tombstones", "alive & whole", "alive"),
    Fault("oldest-version-kept", ORDER, "merging.newest", "F.max_by(", "F.min_by("),
    Fault("late-record-counted", RANGE, "lateness.late", '>= F.col("closes")', '> F.col("closes")'),
    Fault("mark-after-its-record", ORDER, "lateness.late", '.orderBy("o", "mark",', '.orderBy("o", F.desc("mark"),'),
    Fault(
        "warm-up-judged",
        GUARD,
        "keyed._state",
        "starts < bounds.trusted_from, WARM_UP",
        "starts < bounds.trusted_from, JUDGED",
    ),
    Fault(
        "open-window-judged", GUARD, "keyed._state", "ends > bounds.closed_by, OPEN", "ends > bounds.closed_by, JUDGED"
    ),
    Fault("broken-text-parsed", GUARD, "parsing._of_bytes", 'reason.when(text.isNull(), "not UTF-8")', "reason"),
    Fault("bytes-behind-a-record", GUARD, "parsing._exact", ".when(~F.col(_SOUND), UNREADABLE)", ""),
    Fault("half-a-character", GUARD, "parsing._exact", "exact_reading.half_a_character(text)", "F.lit(False)"),
    Fault(
        "a-time-of-today", GUARD, "exact_reading._instant", 'stays.otherwise(text.rlike(f"^{_ZONED}$"))', "F.lit(True)"
    ),
    Fault(
        "a-time-that-is-skipped", GUARD, "exact_reading._instant", " == text.try_cast", ".isNotNull() | text.try_cast"
    ),
    Fault("an-object-reopened", GUARD, "exact_reading.read", "text.rlike(_REOPENS)", "F.lit(False)"),
    Fault(
        "a-key-twice", GUARD, "exact_reading.problems", "F.size(F.array_distinct(keys)) != F.size(keys)", "F.lit(False)"
    ),
    Fault("an-infinity-made", GUARD, "exact_reading._of_leaf", "infinite & text.rlike(_HUGE)", "F.lit(False)"),
    Fault("milliseconds-alone", RANGE, "json_text._instant", "% 1000 == 0", "% 1 == 0"),
    Fault("nulls-hashed-away", GUARD, "outputs._hash", "(F.col(name).isNull(), F.col(name))", "(F.col(name),)"),
    Fault("a-name-in-two-cases", GUARD, "fitness._check_names", "counts[name.lower()] > 1", "counts[name] > 1"),
    Fault(
        "required-field-missing",
        GUARD,
        "parsing._exact",
        "reason.when(column(name).isNull(), ",
        "reason.when(F.lit(False), ",
    ),
    Fault(
        "records-overtake-each-other",
        ORDER,
        "in_source_order",
        ".sortWithinPartitions(partition, offset)",
        ".sortWithinPartitions(partition, F.desc(offset))",
    ),
    Fault(
        "rows-of-a-record-unnumbered",
        EFFECT,
        "encoding._headers",
        'F.when(F.col("_row") > 0, ',
        "F.when(F.lit(False), ",
    ),
    Fault("span-without-its-end", RANGE, "spans._bounds", 'F.max(offset).alias("last")', 'F.min(offset).alias("last")'),
    Fault(
        "group-passes-an-unread-record",
        COMPARISON,
        "positions.settled",
        "~at_or_after(PLACE, read)",
        "at_or_after(PLACE, read)",
    ),
    Fault(
        "state-of-a-key-ahead-judged",
        COMPARISON,
        "states.classed",
        'F.when(F.col("is_ahead"), AHEAD)',
        "F.when(F.lit(False), AHEAD)",
    ),
    Fault(
        "different-repeats-unseen",
        COMPARISON,
        "mirror_checks.repeated",
        'F.count_distinct("hash")',
        'F.least(F.count("hash"), F.lit(1))',
    ),
)
ADAPTERS = (
    Fault(
        "write-that-did-not-land",
        GUARD,
        "delta_output._append",
        "if not landed and not _held(spark, path, pair, metadata):",
        "if False:",
    ),
    Fault(
        "pair-with-other-ranges-taken", GUARD, "delta_output._held", "return entry.metadata == metadata", "return True"
    ),
    Fault("table-read-past-its-end", RANGE, "delta_output.read", "F.col(ORDINAL) < end", "F.col(ORDINAL) <= end"),
    Fault(
        "end-of-a-table-one-short", RANGE, "delta_output.as_topic", 'int(newest["newest"]) + 1', 'int(newest["newest"])'
    ),
    Fault(
        "chunk-fed-twice",
        GUARD,
        "feed.append",
        "if not _landed(spark, path, owner, chunk):\n        options",
        "if True:\n        options",
    ),
    Fault("feed-in-several-files", ORDER, "feed.append", ".coalesce(1)", ".repartition(2)"),
    Fault("batch-within-a-chunk", GUARD, "feed.consumed", 'if body["index"] != -1:', "if False:"),
    Fault(
        "version-of-another-chunk-taken",
        GUARD,
        "feed._landed",
        'if made.transaction != (f"{owner}-feed", chunk) or len(made.files) != 1:',
        "if False:",
    ),
    Fault(
        "torn-checkpoint-taken-for-none",
        REACTION,
        "checkpoint._parsed",
        'raise IntegrityError(f"checkpoint: {path} is torn or changed ({error}). {CURE}") from error',
        "return None",
    ),
    Fault(
        "first-batch-begins-at-nothing",
        RANGE,
        "checkpoint.start_offsets",
        "batch - 1) if batch else None",
        "batch) if batch else None",
    ),
    Fault(
        "late-by-the-wrong-batch",
        RANGE,
        "checkpoint.late_watermark",
        "batch - 1) if batch else None",
        "batch) if batch else None",
    ),
    Fault("lost-files-of-a-mirror", GUARD, "check_readable", "    if gone:\n", "    if False:\n"),
    Fault("mirror-of-all-topic-ids", GUARD, "mirror.in_ranges", ' & (F.col("topic_id") == topic_id)', ""),
    Fault("mirror-read-past-the-range", RANGE, "mirror.at_any", 'F.col("offset") < r.end', 'F.col("offset") <= r.end'),
    Fault(
        "instant-itself-left-out",
        RANGE,
        "mirror.of_period",
        "at >= F.timestamp_millis(F.lit(period.since))",
        "at > F.timestamp_millis(F.lit(period.since))",
    ),
    Fault("compacted-over-topics", GUARD, "mirror.compact", '(F.col("topic_id") == row["topic_id"]) & ', ""),
    Fault("data-loss-allowed", REACTION, "kafka.read_range", '"failOnDataLoss": "true"', '"failOnDataLoss": "false"'),
    Fault(
        "headers-not-read",
        EFFECT,
        "kafka.as_records",
        'F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))',
        'F.array().cast("array<struct<key:string,value:binary>>")',
    ),
)
FAULTS = (*TRANSFORMS, *ADAPTERS)
