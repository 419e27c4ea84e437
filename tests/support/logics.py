"""Sixty and more logics over one source: which are proved to answer from the record alone, and which are refused."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import rewind
from rewind.core.pipeline import UNBOUNDED, Pipeline

SCHEMA = (
    "id BIGINT, kind STRING, amount DOUBLE, at TIMESTAMP, day DATE, tags ARRAY<STRING>, "
    "lines ARRAY<STRUCT<sku: STRING, n: INT>>, extras MAP<STRING, STRING>, body STRING"
)
VIEW = "logics_seen"
"""A view that one of the logics leaves in its session."""
PIPELINE = Pipeline("logics", "logics-in", SCHEMA, "logics-out")
SEVERAL_ROWS = Pipeline("logics", "logics-in", SCHEMA, "logics-out", several_rows=True)
STATEFUL = Pipeline(
    "logics",
    "logics-in",
    SCHEMA,
    "logics-out",
    output_key=("kind",),
    stateful=True,
    state_horizon=UNBOUNDED,
    closes_at="window(at, '10 minutes').end",
    output_mode="update",
    result_starts="starts",
    result_ends="ends",
)

Logic = Callable[[DataFrame], DataFrame]
Refused = tuple[Logic, str]
"""A logic, and what its refusal must say."""


def _with(text: str) -> Logic:
    """Return the logic that adds one column, an SQL expression."""
    return lambda records: records.selectExpr("id", f"{text} AS made", "_src")


def _where(text: str) -> Logic:
    return lambda records: records.where(text).select("id", "_src")


def _sql(text: str) -> Logic:
    """Return the logic that is an SQL query over the view `{records}`."""
    return lambda records: records.sparkSession.sql(text, records=records)


def _numbered(function: str) -> Logic:
    return _with(f"{function} OVER (PARTITION BY kind ORDER BY at, id)")


def _self_join(records: DataFrame) -> DataFrame:
    others = records.select("kind", F.col("id").alias("other"))
    return records.join(others, "kind").select("id", "other", "_src")


def _unless_another(records: DataFrame) -> DataFrame:
    others = records.select((F.col("id") + 1).alias("id"))
    return records.join(others, "id", "left_anti").select("id", "_src")


def _python_udf(records: DataFrame) -> DataFrame:
    shouted = F.udf(lambda kind: kind and kind.upper(), "string")
    return records.select("id", shouted("kind").alias("made"), "_src")


def _pandas_udf(records: DataFrame) -> DataFrame:
    doubled = F.pandas_udf(lambda amount: amount * 2, "double")
    return records.select("id", doubled("amount").alias("made"), "_src")


def _map_in_pandas(records: DataFrame) -> DataFrame:
    kept = records.select("id", "_src")
    return kept.mapInPandas(lambda frames: frames, kept.schema)


def _grouped_in_pandas(records: DataFrame) -> DataFrame:
    kept = records.select("id", "kind", "_src")
    return kept.groupBy("kind").applyInPandas(lambda frame: frame, kept.schema)


def _through_rdd(records: DataFrame) -> DataFrame:
    kept = records.select("id", "_src")
    return kept.sparkSession.createDataFrame(kept.rdd, kept.schema)


def _frame_of_python(records: DataFrame) -> DataFrame:
    names = records.sparkSession.createDataFrame([("a", "first")], "kind STRING, name STRING")
    return records.join(names, "kind", "left").select("id", "name", "_src")


def _kept_ready(records: DataFrame) -> DataFrame:
    return records.join(_table(records, "unmatched"), "kind", "full_outer").select("id", "number", "_src")


def _more_of_it(records: DataFrame) -> DataFrame:
    seventh = records.sparkSession.range(1).select(F.lit(7).cast("bigint").alias("id"))
    nowhere = F.lit(None).cast(records.schema["_src"].dataType).alias("_src")
    return records.select("id", "_src").union(seventh.select("id", nowhere))


def _literal(value: Callable[[], object]) -> Logic:
    return lambda records: records.select("id", F.lit(value()).alias("made"), "_src")


CHANCE, CLOCK, PLACE = "which answers by chance", "which asks the clock", "which says where Spark reads"
BATCH, CODE, UNKNOWN = "which sees the records of one batch alone", "which runs code", "which is not known to answer"
OTHERS, OUTSIDE = "which may give other rows", "rows that are not written into the logic"
AGAIN, TODAY = "asks for something else each time", "is that of today"

REFUSED: Mapping[str, Refused] = {
    # Other records of the batch.
    "self_join": (_self_join, "Join of records with records"),
    "anti_self_join": (_unless_another, "Join of records with records"),
    "cross_self_join": (_sql("SELECT a.id, a._src FROM {records} a, {records} b"), "Join of records with records"),
    "join_of_a_with_clause": (
        _sql("WITH x AS (SELECT * FROM {records}) SELECT x.* FROM x JOIN (SELECT id FROM x) y ON x.id = y.id"),
        "Join of records with records",
    ),
    "limit": (lambda records: records.limit(2), f"GlobalLimit, {OTHERS}"),
    "offset": (lambda records: records.offset(1), f"Offset, {OTHERS}"),
    "sample": (lambda records: records.sample(0.5, seed=3), f"Sample, {OTHERS}"),
    "split": (lambda records: records.randomSplit([0.5, 0.5], seed=3)[0], f"Sample, {OTHERS}"),
    "sort": (lambda records: records.orderBy("id"), f"Sort, {OTHERS}"),
    "repartition": (lambda records: records.repartition(3), f"Repartition, {OTHERS}"),
    "intersect": (
        _sql("SELECT id, _src FROM {records} INTERSECT SELECT id, _src FROM {records}"),
        f"Intersect, {OTHERS}",
    ),
    "except_all": (
        _sql("SELECT id, _src FROM {records} EXCEPT ALL SELECT id, _src FROM {records} WHERE id > 1"),
        f"Except All, {OTHERS}",
    ),
    "row_number": (_numbered("row_number()"), f"Window, {OTHERS}"),
    "lag": (_numbered("lag(id)"), f"Window, {OTHERS}"),
    "sum_over": (_numbered("sum(amount)"), f"Window, {OTHERS}"),
    "drop_duplicates": (lambda records: records.dropDuplicates(["id"]), "is declared stateless but uses Deduplicate"),
    "distinct": (lambda records: records.select("id", "_src").distinct(), "is declared stateless but uses Deduplicate"),
    "group": (
        lambda records: records.groupBy("kind").agg(F.max("_src").alias("_src")),
        "is declared stateless but uses Aggregate",
    ),
    "windows": (
        lambda records: records.groupBy(F.window("at", "1 minute")).agg(rewind.span("_src")),
        "is declared stateless but uses Aggregate",
    ),
    "subquery": (_sql("SELECT id, (SELECT max(id) FROM {records}) AS made, _src FROM {records}"), BATCH),
    "exists": (
        _sql("SELECT id, _src FROM {records} a WHERE EXISTS (SELECT 1 FROM {records} b WHERE b.id = a.id + 1)"),
        BATCH,
    ),
    "in_subquery": (
        _sql("SELECT id, _src FROM {records} WHERE id IN (SELECT id + 1 FROM {records})"),
        BATCH,
    ),
    "lateral_subquery": (
        _sql("SELECT id, m, _src FROM {records}, LATERAL (SELECT id + 1 AS m)"),
        f"LateralJoin, {OTHERS}",
    ),
    "observed": (lambda records: records.observe("seen", F.count(F.lit(1)).alias("n")), f"CollectMetrics, {OTHERS}"),
    # Rows that no record gave, and tables that may change.
    "full_join": (_kept_ready, "Join (full outer), which gives rows that no record gave"),
    "union_of_more": (_more_of_it, "Union with rows that no record gave"),
    "frame_of_python": (_frame_of_python, f"LogicalRDD, {OUTSIDE}"),
    "through_rdd": (_through_rdd, f"LogicalRDD, {OUTSIDE}"),
    # Chance.
    "rand": (_with("rand()"), f"rand(), {CHANCE}"),
    "rand_of_a_seed": (_where("rand(7) < 0.5"), f"rand(), {CHANCE}"),
    "randn": (_with("randn()"), f"randn(), {CHANCE}"),
    "uuid": (_with("uuid()"), f"uuid(), {CHANCE}"),
    "shuffle": (_with("shuffle(tags)"), f"shuffle(), {CHANCE}"),
    "uniform": (_with("uniform(1, 10)"), f"uniform(), {CHANCE}"),
    "randstr": (_with("randstr(4)"), f"randstr(), {CHANCE}"),
    "encrypted": (_with("hex(aes_encrypt(kind, '0000111122223333'))"), f"aes_encrypt(), {CHANCE}"),
    # The clock.
    "current_timestamp": (_with("current_timestamp()"), f"current_timestamp(), {CLOCK}"),
    "now": (_with("now()"), f"now(), {CLOCK}"),
    "current_date": (_where("day = current_date()"), f"current_date(), {CLOCK}"),
    "curdate": (_with("datediff(curdate(), day)"), f"current_date(), {CLOCK}"),
    "localtimestamp": (_with("localtimestamp()"), f"localtimestamp(), {CLOCK}"),
    "unix_timestamp_of_now": (_with("unix_timestamp()"), f"current_timestamp(), {CLOCK}"),
    "cast_to_an_instant": (_with("CAST(kind AS TIMESTAMP)"), TODAY),
    "tried_cast_to_an_instant": (_with("try_cast(kind AS TIMESTAMP)"), TODAY),
    "to_timestamp_without_a_form": (_with("to_timestamp(kind)"), TODAY),
    "compared_with_a_text": (_where("at > kind"), TODAY),
    "compared_with_a_time": (_where("at > '07:00'"), TODAY),
    "yesterday": (_with("CAST('yesterday' AS DATE)"), TODAY),
    "array_of_instants": (_with("CAST(tags AS ARRAY<TIMESTAMP>)"), TODAY),
    "json_of_instants": (_with("from_json(body, 'at TIMESTAMP').at"), TODAY),
    "variant_of_an_instant": (_with("variant_get(parse_json(body), '$.at', 'timestamp')"), TODAY),
    # Where Spark reads, and where it runs.
    "monotonically_increasing_id": (_with("monotonically_increasing_id()"), f"monotonically_increasing_id(), {PLACE}"),
    "spark_partition_id": (_with("spark_partition_id()"), f"spark_partition_id(), {PLACE}"),
    "input_file_name": (_with("input_file_name()"), f"input_file_name(), {PLACE}"),
    "zip_with_index": (lambda records: records.zipWithIndex("made"), f"AttachDistributedSequence, {OTHERS}"),
    "current_user": (_with("current_user()"), f"current_user(), {UNKNOWN}"),
    "current_timezone": (_with("current_timezone()"), f"current_timezone(), {UNKNOWN}"),
    "current_database": (_with("current_database()"), f"current_schema(), {UNKNOWN}"),
    "version": (_with("version()"), f"version(), {UNKNOWN}"),
    # Code that Spark cannot look into.
    "python_udf": (_python_udf, f"<lambda>() in Python, {CODE}"),
    "pandas_udf": (_pandas_udf, f"<lambda>() in Python, {CODE}"),
    "reflect": (_with("reflect('java.util.UUID', 'randomUUID')"), f"reflect(), {CODE}"),
    "java_method": (_with("java_method('java.lang.System', 'nanoTime')"), f"java_method(), {CODE}"),
    "map_in_pandas": (_map_in_pandas, f"MapInPandas, {OTHERS}"),
    "grouped_in_pandas": (_grouped_in_pandas, f"FlatMapGroupsInPandas, {OTHERS}"),
    # What Python asks while the plan is made.
    "time_of_python": (_literal(lambda: datetime.now(UTC).isoformat()), AGAIN),
    "clock_of_python": (_literal(time.perf_counter_ns), AGAIN),
    "chance_of_python": (_literal(random.SystemRandom().random), AGAIN),
    "uuid_of_python": (_literal(lambda: str(uuid.uuid4())), AGAIN),
}


def _asks_for_rows(records: DataFrame) -> DataFrame:
    return records.where("id > 1") if records.count() else records


def _asks_for_the_last(records: DataFrame) -> DataFrame:
    last = records.agg(F.max("id")).first()
    return records.where(F.col("id") == F.lit(last[0] if last else None))


ASKING: Mapping[str, Logic] = {"count": _asks_for_rows, "last": _asks_for_the_last}
"""What looks at the records while the plan is made: noticed over a stream, which has none yet."""


def _table(records: DataFrame, *more: str) -> DataFrame:
    """Return a table that is written into the logic."""
    rows = ", ".join(f"('{kind}', {number})" for number, kind in enumerate(["a", "b", *more]))
    return records.sparkSession.sql(f"SELECT * FROM VALUES {rows} AS t(kind, number)")


def _looked_up(how: str, *columns: str) -> Logic:
    return lambda records: records.join(F.broadcast(_table(records)), "kind", how).select("id", *columns, "_src")


def _looked_up_from_the_right(records: DataFrame) -> DataFrame:
    return _table(records).join(records, "kind", "right").select("id", "number", "_src")


def _mapped(records: DataFrame) -> DataFrame:
    names = F.create_map(F.lit("a"), F.lit("first"), F.lit("b"), F.lit("second"))
    return records.select("id", names[F.col("kind")].alias("made"), "_src")


def _many_steps(records: DataFrame) -> DataFrame:
    made = records
    for number in range(20):
        made = made.withColumn("id", F.col("id") * 3 + number)
    return made.select("id", "_src")


def _rejecting(records: DataFrame) -> DataFrame:
    reason = F.when(F.col("kind").isNull(), "no kind").when(F.col("amount") < 0, "below zero")
    return records.select("id", "kind", reason.alias("_reject"), "_src")


def _cleaned(records: DataFrame) -> DataFrame:
    return records.select("id", "kind", "amount", "_src").na.drop(subset=["id"]).na.fill({"kind": "none"}).fillna(0.0)


def _through_a_view(records: DataFrame) -> DataFrame:
    records.createOrReplaceTempView(VIEW)
    return records.sparkSession.sql(f"SELECT id, upper(kind) AS made, _src FROM {VIEW} WHERE id % 2 = 0")


ACCEPTED: Mapping[str, Logic] = {
    "as_it_is": lambda records: records,
    "renamed": lambda records: records.select(F.col("id").alias("number"), "kind", "_src"),
    "dropped": lambda records: records.drop("extras", "lines"),
    "filtered": _where("amount > 10 AND kind IN ('a', 'b')"),
    "rejecting": _rejecting,
    "cleaned": _cleaned,
    "many_steps": _many_steps,
    "through_a_view": _through_a_view,
    "with_clause": _sql("WITH x AS (SELECT * FROM {records} WHERE id > 3) SELECT id, kind, _src FROM x"),
    "arithmetic": _with("round(abs(amount) * 1.2, 2) + id % 7 - pmod(id, 3)"),
    "tried": _with("try_cast(kind AS INT) + try_divide(id, id - 3)"),
    "conditions": _with("CASE WHEN amount > 50 THEN 'much' WHEN id BETWEEN 3 AND 9 THEN nullif(kind, 'a') ELSE '' END"),
    "texts": _with(
        "concat_ws('-', upper(kind), lpad(CAST(id AS STRING), 5, '0'), regexp_replace(body, '[0-9]+', '#'))"
    ),
    "patterns": _where("kind LIKE ANY ('a%', 'b%') OR kind RLIKE '^c' OR contains(body, '7')"),
    "hashes": _with("concat(sha2(body, 256), '-', hex(xxhash64(_src.partition, _src.offset)))"),
    "times": _with("date_format(date_trunc('HOUR', at) + INTERVAL 1 DAY, 'yyyy-MM-dd HH:mm')"),
    "time_of_the_record": _with("unix_millis(coalesce(at, _src.timestamp))"),
    "days": _with("datediff(date_add(last_day(day), dayofweek(day)), DATE '2025-01-01')"),
    "zones": _with(
        "extract(HOUR FROM from_utc_timestamp(at, 'Asia/Tokyo') - to_utc_timestamp(at, 'America/New_York'))"
    ),
    "compared_with_an_instant": _where("at > '2025-09-04 07:00:00' OR day = '2025-09-05'"),
    "parsed_time": _with("try_to_timestamp(get_json_object(body, '$.at'), 'yyyy-MM-dd HH:mm')"),
    "parsed_day": _with("try_to_date(kind)"),
    "window_of_one": lambda records: records.select("id", F.window("at", "10 minutes").start.alias("made"), "_src"),
    "json": _with("to_json(struct(id, from_json(body, 'n INT, at STRING').n AS n))"),
    "json_with_a_form": _with("from_json(body, 'at TIMESTAMP', map('timestampFormat', 'yyyy-MM-dd HH:mm')).at"),
    "variant": _with("try_variant_get(try_parse_json(body), '$.n', 'int')"),
    "arrays": _with("array_join(array_distinct(array_sort(concat(tags, array('z')))), ',')"),
    "lambdas": _with("aggregate(filter(transform(lines, l -> l.n), n -> n > 1), 0, (sum, n) -> sum + n)"),
    "maps": _with("map_filter(map_concat(extras, map('new', kind)), (k, v) -> v IS NOT NULL)"),
    "structs": lambda records: records.select(
        "id", F.struct("kind", "amount").withField("n", F.size("tags")).dropFields("kind").alias("made"), "_src"
    ),
    "looked_up": _looked_up("left_semi"),
    "not_looked_up": _looked_up("left_anti", "kind"),
    "mapped": _mapped,
    "json_tuple": lambda records: records.select(F.json_tuple("body", "n", "at").alias("n", "time"), "_src"),
}
SEVERAL: Mapping[str, Logic] = {
    "exploded": lambda records: records.select("id", F.explode("tags").alias("made"), "_src"),
    "exploded_outer": lambda records: records.select("id", F.posexplode_outer("lines").alias("n", "line"), "_src"),
    "inlined": lambda records: records.select("id", F.inline("lines"), "_src"),
    "map_exploded": lambda records: records.select(F.explode("extras").alias("k", "v"), "_src"),
    "stacked": lambda records: records.select("id", F.expr("stack(2, 'kind', kind, 'body', body) AS (k, v)"), "_src"),
    "unpivoted": lambda records: records.selectExpr("id", "kind", "body", "_src").unpivot(
        ["id", "_src"], ["kind", "body"], "k", "v"
    ),
    "lateral_view": _sql("SELECT id, t.n, _src FROM {records} LATERAL VIEW explode(sequence(0, id % 3)) t AS n"),
    "union": lambda records: records.where("id > 4").union(records.where("kind = 'a'")),
    "union_by_name": lambda records: records.select("id", "_src").unionByName(
        records.selectExpr("-id AS id", "kind", "_src"), allowMissingColumns=True
    ),
    "sliding_windows": lambda records: records.select(
        F.window("at", "10 minutes", "5 minutes").start.alias("made"), "_src"
    ),
    "joined_with_a_table": _looked_up("left", "number"),
    "joined_inner": _looked_up("inner", "number"),
    "joined_from_the_right": _looked_up_from_the_right,
    "with_each_of_a_range": lambda records: records.crossJoin(records.sparkSession.range(2).toDF("n")).select(
        "id", "n", "_src"
    ),
    "with_clause_twice": _sql("WITH x AS (SELECT id, _src FROM {records}) SELECT * FROM x UNION ALL SELECT * FROM x"),
}
"""Those that may give several rows of a record."""
ALL_ACCEPTED: Mapping[str, Logic] = {**ACCEPTED, **SEVERAL}


def _grouped(*made: str, before: Logic | None = None, after: Logic | None = None) -> Logic:
    """Return a logic that groups by kind and window."""

    def logic(records: DataFrame) -> DataFrame:
        timed = (before or (lambda frame: frame))(records).withWatermark("at", "10 minutes")
        columns = [F.expr(text).alias(f"made{number}") for number, text in enumerate(made)]
        counted = timed.groupBy("kind", F.window("at", "10 minutes")).agg(rewind.span("_src"), *columns)
        result = counted.select("*", F.col("window.start").alias("starts"), F.col("window.end").alias("ends"))
        return (after or (lambda frame: frame))(result.drop("window"))

    return logic


STATEFUL_ACCEPTED: Mapping[str, Logic] = {
    "counted": _grouped("count(1)", "sum(amount)", "max(at)", "avg(amount)", "stddev(amount)"),
    "chosen": _grouped("max_by(id, at)", "min_by(id, at)", "bool_or(amount > 3)", "count_if(id > 3)"),
    "collected": _grouped("sort_array(collect_list(id))", "sort_array(collect_set(body))"),
    "filtered": _grouped("count(1)", before=lambda records: records.where("id > 3")),
    "exploded": _grouped("max(tag)", before=lambda records: records.withColumn("tag", F.explode("tags"))),
    "finished": _grouped("count(1)", after=lambda rows: rows.withColumn("much", F.col("made0") > 3)),
    "deduplicated": lambda records: (
        records.withWatermark("at", "10 minutes")
        .dropDuplicatesWithinWatermark(["id"])
        .selectExpr("*", "at AS starts", "at AS ends")
    ),
    "deduplicated_for_ever": lambda records: records.dropDuplicates(["id"]).selectExpr(
        "*", "at AS starts", "at AS ends"
    ),
}
STATEFUL_REFUSED: Mapping[str, Refused] = {
    "first": (_grouped("first(id)"), "first(), which depends on the order"),
    "last": (_grouped("last(id)"), "last(), which depends on the order"),
    "collected": (_grouped("collect_list(id)"), "collect_list(), which depends on the order"),
    "collected_set": (_grouped("array_join(collect_set(kind), '-')"), "collect_set(), which depends on the order"),
    "mode": (_grouped("mode(id)"), f"mode(), {UNKNOWN}"),
    "chance_before": (_grouped("count(1)", before=lambda r: r.where("rand() < 0.5")), f"rand(), {CHANCE}"),
    "clock_within": (_grouped("max(now())"), f"now(), {CLOCK}"),
    "clock_after": (
        _grouped("count(1)", after=lambda rows: rows.withColumn("told", F.current_timestamp())),
        f"current_timestamp(), {CLOCK}",
    ),
    "sample_before": (_grouped("count(1)", before=lambda records: records.sample(0.5)), f"Sample, {OTHERS}"),
    "limit_before": (_grouped("count(1)", before=lambda records: records.limit(5)), f"GlobalLimit, {OTHERS}"),
    "sort_after": (_grouped("count(1)", after=lambda rows: rows.orderBy("kind")), f"Sort, {OTHERS}"),
    "self_join_before": (
        _grouped("count(1)", before=lambda r: r.join(r.select("id").alias("o"), "id")),
        "Join of records with records",
    ),
    "numbered_before": (
        _grouped("max(n)", before=lambda r: r.selectExpr("*", "row_number() OVER (ORDER BY id) AS n")),
        f"Window, {OTHERS}",
    ),
}
