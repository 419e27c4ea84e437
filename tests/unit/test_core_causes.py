"""The cause of a failure in one line, out of what Python, py4j, Java and Spark really print."""

from __future__ import annotations

import pytest

from rewind.core import causes
from rewind.core.errors import IntegrityError

LOGIC = "/data/generations/visits-g2/bundle/code.zip/pipelines/visits/logic.py"
HEAD = "2025-09-04 07:00:00,123 ERROR [visits-g2] "

PYTHON = f"""Traceback (most recent call last):
  File "/data/generations/visits-g2/bundle/code.zip/rewind/steps/main.py", line 38, in run
    body(from_environment(os.environ))
  File "{LOGIC}", line 12, in transform
    return visits.select(F.col("page") / zero(rates))
                                         ^^^^^^^^^^^
  File "{LOGIC}", line 31, in zero
    return rates["eur"]
           ~~~~~^^^^^^^
KeyError: 'eur'
"""
NOT_OURS = """Traceback (most recent call last):
  File "/opt/rewind/jobs/stream.py", line 9, in <module>
    from rewind.steps import main, stream
ModuleNotFoundError: No module named 'rewind.steps.streaming.stream'
"""
SYNTAX = f"""Traceback (most recent call last):
  File "/data/bundle/code.zip/rewind/steps/logic.py", line 20, in of
    module = importlib.import_module(f"pipelines.{{name}}.logic")
  File "<frozen importlib._bootstrap>", line 1387, in _gcd_import
  File "{LOGIC}", line 8
    return visits.select((F.col("page"))
                        ^
SyntaxError: '(' was never closed
"""
DIRECTLY = f"""Traceback (most recent call last):
  File "{LOGIC}", line 7, in transform
    limit = int("ten")
ValueError: invalid literal for int() with base 10: 'ten'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/data/bundle/code.zip/rewind/steps/logic.py", line 44, in of
    raise TypeError("transform() failed") from error
TypeError: transform() failed
"""
MEANWHILE = f"""Traceback (most recent call last):
  File "{LOGIC}", line 7, in transform
    rates = CACHE["rates"]
KeyError: 'rates'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "{LOGIC}", line 9, in transform
    rates = json.loads(TEXT)
json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)
"""
ANALYSIS = f"""Traceback (most recent call last):
  File "{LOGIC}", line 5, in transform
    return visits.select(F.col("pgae").alias("visited_page"), F.col("_src"))
  File "/venv/lib/python3.12/site-packages/pyspark/sql/classic/dataframe.py", line 991, in select
    jdf = self._jdf.select(self._jcols(*cols))
  File "/venv/lib/python3.12/site-packages/pyspark/errors/exceptions/captured.py", line 269, in deco
    raise converted from None
pyspark.errors.exceptions.captured.AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or \
function parameter with name `pgae` cannot be resolved. Did you mean one of the following? [`page`, `_src`]. \
SQLSTATE: 42703;
'Project ['pgae AS visited_page#12, _src#3]
+- LogicalRDD [page#1, _src#3], false
"""
STREAM = f"""Traceback (most recent call last):
  File "/data/bundle/code.zip/rewind/steps/driver.py", line 130, in _follow
    query.awaitTermination(1)
  File "/venv/lib/python3.12/site-packages/pyspark/errors/exceptions/captured.py", line 269, in deco
    raise converted from None
pyspark.errors.exceptions.captured.StreamingQueryException: [STREAM_FAILED] Query [id = 6d0c, runId = 91aa] \
terminated with exception: Job aborted due to stage failure: Task 0 in stage 5.0 failed 1 times, most recent \
failure: Lost task 0.0 in stage 5.0 (TID 7) (127.0.0.1 executor driver): org.apache.spark.SparkNumberFormatException: \
[CAST_INVALID_INPUT] The value 'n/a' of the type "STRING" cannot be cast to "INT" because it is malformed. \
Use `try_cast` to tolerate malformed input and return NULL instead. SQLSTATE: 22018
== DataFrame ==
"cast" was called from
{LOGIC}:14

\tat org.apache.spark.sql.errors.QueryExecutionErrors$.invalidInputInCastToNumberError(QueryExecutionErrors.scala:145)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace: SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 6d0c, runId = 91aa]
Current Committed Offsets: {{KafkaV2[Subscribe[visits]]: {{"visits":{{"0":23}}}}}}
"""
BATCH = f"""Traceback (most recent call last):
  File "/data/bundle/code.zip/rewind/steps/query.py", line 80, in write
    return call(batch)
pyspark.errors.exceptions.captured.ArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to \
tolerate divisor being 0 and return NULL instead. SQLSTATE: 22012
== DataFrame ==
"__truediv__" was called from
{LOGIC}:22
"""
PY4J = """Traceback (most recent call last):
  File "/data/bundle/code.zip/rewind/adapters/session.py", line 44, in session
    spark.range(1).count()
  File "/venv/lib/python3.12/site-packages/py4j/protocol.py", line 327, in get_return_value
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: An error occurred while calling o63.load.
: org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat \
org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:53)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: java.util.concurrent.ExecutionException: org.apache.kafka.common.errors.SaslAuthenticationException: x
\tat java.base/java.util.concurrent.CompletableFuture.reportGet(CompletableFuture.java:396)
\t... 21 more
Caused by: org.apache.kafka.common.errors.SaslAuthenticationException: Authentication failed: Invalid credentials
\t... 3 more
"""
PY4J_ALONE = """Traceback (most recent call last):
  File "/x/y.py", line 1, in <module>
    jvm.go()
py4j.protocol.Py4JJavaError: An error occurred while calling o1.go.
: java.lang.IllegalStateException: no such store
\tat com.example.Store.go(Store.java:1)
"""
WORKER = f"""Traceback (most recent call last):
  File "/data/bundle/code.zip/rewind/steps/query.py", line 80, in write
    return call(batch)
py4j.protocol.Py4JJavaError: An error occurred while calling o88.count.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2935)
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "{LOGIC}", line 40, in <lambda>
    to_euro = F.udf(lambda cents: cents / 0)
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\t... 1 more
"""
SUBMIT = """25/09/04 07:00:00 WARN Utils: Your hostname resolves to a loopback address
Exception in thread "main" org.apache.spark.SparkException: [MASTER_URL] Could not parse Master URL: 'spark:/x'
\tat org.apache.spark.SparkContext$.createTaskScheduler(SparkContext.scala:3338)
25/09/04 07:00:01 INFO ShutdownHookManager: Shutdown hook called
"""
REFUSED = f"{HEAD}RefusedError: from: '{{}}' is bad. Give an instant\n25/09/04 07:00 INFO ShutdownHookManager: called\n"
BARE = """Traceback (most recent call last):
  File "/x/y.py", line 1, in <module>
    raise TimeoutError
TimeoutError
"""
OWN_LINE = """Traceback (most recent call last):
  File "/x/y.py", line 1, in <module>
    raise WorkerError
pyspark.errors.exceptions.captured.PythonException:
  An exception was thrown from the Python worker.
"""

CAUSES = {
    "python": (PYTHON, "KeyError: 'eur' (logic.py line 31: return rates[\"eur\"])"),
    "not in the logic": (NOT_OURS, "ModuleNotFoundError: No module named 'rewind.steps.streaming.stream'"),
    "syntax": (
        SYNTAX,
        "SyntaxError: '(' was never closed (logic.py line 8: return visits.select((F.col(\"page\")))",
    ),
    "raised from": (
        DIRECTLY,
        "ValueError: invalid literal for int() with base 10: 'ten' (logic.py line 7: limit = int(\"ten\"))",
    ),
    "raised meanwhile": (
        MEANWHILE,
        "JSONDecodeError: Expecting value: line 1 column 1 (char 0) (logic.py line 9: rates = json.loads(TEXT))",
    ),
    "analysis": (
        ANALYSIS,
        (
            "AnalysisException: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with "
            "name `pgae` cannot be resolved. Did you mean one of the following? [`page`, `_src`]. (logic.py line 5: "
            'return visits.select(F.col("pgae").alias("visited_page"), F.col("_src")))'
        ),
    ),
    "stream": (
        STREAM,
        (
            "SparkNumberFormatException: [CAST_INVALID_INPUT] The value 'n/a' of the type \"STRING\" cannot be cast to "
            '"INT" because it is malformed. Use `try_cast` to tolerate malformed input and return NULL instead. '
            "(logic.py line 14)"
        ),
    ),
    "batch": (
        BATCH,
        (
            "ArithmeticException: [DIVIDE_BY_ZERO] Division by zero. Use `try_divide` to tolerate divisor being 0 and "
            "return NULL instead. (logic.py line 22)"
        ),
    ),
    "py4j": (PY4J, "SaslAuthenticationException: Authentication failed: Invalid credentials"),
    "py4j without another cause": (PY4J_ALONE, "IllegalStateException: no such store"),
    "a worker's python": (
        WORKER,
        "ZeroDivisionError: division by zero (logic.py line 40: to_euro = F.udf(lambda cents: cents / 0))",
    ),
    "submit": (SUBMIT, "SparkException: [MASTER_URL] Could not parse Master URL: 'spark:/x'"),
    "one of ours": (REFUSED, "RefusedError: from: '{}' is bad. Give an instant"),
    "ours that quotes java": (
        f"{HEAD}RetryError: Kafka did not answer (Caused by: java.net.ConnectException: refused)",
        "RetryError: Kafka did not answer (Caused by: java.net.ConnectException: refused)",
    ),
    "no message": (BARE, "TimeoutError"),
    "a message of its own line": (OWN_LINE, "PythonException: An exception was thrown from the Python worker."),
    "plain lines": ("INFO up\nno such table: visits\n\tat nowhere\n\n", "no such table: visits"),
    "nothing": (" \n", "it left no output"),
}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause(name):
    text, cause = CAUSES[name]
    assert causes.cause(text) == cause
    if text.strip():
        # What went before, and what Spark says while it ends, change nothing.
        noise = f"{HEAD}IntegrityError: of before\n25/09/04 INFO up\n"
        logged = text if "ERROR [" in text else HEAD + text
        if name not in ("plain lines", "submit"):
            assert causes.cause(noise + logged) == cause


def test_what_is_kept_begins_with_the_cause_and_keeps_the_end():
    filler = "".join(f'  File "/x/{n}.py", line {n}, in f\n' for n in range(1_000))
    text = PYTHON.replace(":\n", f":\n{filler}", 1)
    kept = causes.told(HEAD + text, "driver.7.out")
    cause, source, rest = kept.split("\n", 2)
    assert (cause, source) == (CAUSES["python"][1], "driver.7.out")
    assert rest == causes.CUT + text.strip()[-causes.LONGEST_REST :]
    assert rest.endswith("KeyError: 'eur'")
    assert causes.headline(kept) == cause


def test_a_short_text_is_kept_whole_from_its_error_on():
    kept = causes.told(f"INFO up\n{HEAD}torn\nplan\n")
    assert kept == f"torn\n{HEAD}torn\nplan"


def test_a_long_message_is_cut():
    found = causes.cause(f"{HEAD}ValueError: {'x' * 900}")
    assert (len(found), found[-1]) == (causes.LONGEST_CAUSE, causes.CUT)


def test_what_an_older_release_kept_is_cut_too():
    assert causes.headline("y" * 2_000) == "y" * causes.LONGEST_CAUSE
    assert causes.headline(None) == ""


def test_an_error_of_ours_says_its_cause_and_any_other_is_traced():
    assert causes.of_error(IntegrityError("bundle: changed")) == "IntegrityError: bundle: changed"
    with pytest.raises(ValueError, match="ten") as raised:
        int("ten")
    assert causes.of_error(raised.value) == "ValueError: invalid literal for int() with base 10: 'ten'"
