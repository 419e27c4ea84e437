"""Foreign errors become ones that say what to do; others stay what they are."""

from __future__ import annotations

import errno

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from rewind.core.errors import IntegrityError, QuarantineError, RefusedError, RetryError
from rewind.steps.base.failures import typed

AWAY = "Caused by: org.apache.kafka.common.errors.TimeoutException: Topic out not present"
TORN = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///m/part-0.parquet."
CUT = "[STREAM_FAILED] Query [id = x] terminated with exception: Unexpected end-of-input in field name"
TAKEN = "terminated with exception: Multiple streaming queries are concurrently using file:/c/commits. SQLSTATE: XXKST"
AGAIN = "then run this again"
KAFKA = "Caused by: org.apache.kafka.common.errors"
RIGHT = f"the broker denies this user a right: grant it (docs/secure.md), {AGAIN}"
LOGIN = f"the broker refuses the login: fix REWIND_KAFKA_OPTIONS_FILE (docs/secure.md), {AGAIN}"
FULL = "java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (
            f"Job aborted\n {AWAY}\n at x",
            RetryError,
            f"Kafka did not answer: is it up (`make status`)? Then run this again ({AWAY})",
        ),
        (
            TORN,
            IntegrityError,
            f"a file is torn, changed or missing: restore it from a backup, then run this again ({TORN})",
        ),
        (
            CUT,
            IntegrityError,
            f"a file is torn, changed or missing: restore it from a backup, then run this again ({CUT})",
        ),
        (
            TAKEN,
            IntegrityError,
            f"the checkpoint lost a file, or another query works in it: restore it from a backup, {AGAIN} ({TAKEN})",
        ),
        (FULL, RetryError, f"a disk is full: free some of it, then run this again ({FULL})"),
        *(
            (f"{text}\n\tat x", QuarantineError, f"{RIGHT} ({text})")
            for text in (
                f"{KAFKA}.TopicAuthorizationException: Not authorized to access topics: [out-g1]",
                f"{KAFKA}.ClusterAuthorizationException: Cluster authorization failed.",
            )
        ),
        *(
            # The producer says that it could not be made, and beneath it why.
            (f"{before}{text}\n\tat x", QuarantineError, f"{LOGIN} ({text})")
            for text in (
                f"{KAFKA}.SaslAuthenticationException: Authentication failed: Invalid username or password",
                f"{KAFKA}.SslAuthenticationException: SSL handshake failed",
            )
            for before in ("", "KafkaException: Failed to construct kafka producer\n")
        ),
    ],
)
@pytest.mark.parametrize("foreign", [PySparkException, Py4JError])
def test_what_spark_throws(foreign, text, error, told):
    found = typed(foreign(text))
    assert (type(found), str(found)) == (error, told)


def test_kafka_goes_before_files_since_a_job_names_both():
    text = "FAILED_READ_FILE\norg.apache.kafka.common.errors.TimeoutException"
    assert isinstance(typed(PySparkException(text)), RetryError)


def test_a_full_disk_of_python():
    assert isinstance(typed(OSError(errno.ENOSPC, "No space left on device")), RetryError)


@pytest.mark.parametrize(
    "error",
    [
        RefusedError("from", "FAILED_READ_FILE", ""),
        ValueError("FAILED_READ_FILE"),
        OSError(errno.EACCES, "No space left on device"),
        PySparkException("[CAST_INVALID_INPUT] something else"),
        # Never ends by itself: a stream that fails so has to be set aside.
        PySparkException("org.apache.kafka.common.errors.RecordTooLargeException: 2 MB"),
    ],
)
def test_all_else_stays(error):
    assert typed(error) is error


def test_what_a_batch_set_aside_stays_so_after_the_jvm():
    raised = "rewind.core.errors.QuarantineError: out-g1: DELETE at version 3"
    found = typed(PySparkException(f"terminated\n  File x, _delta_log\n{raised}\n\tat py4j"))
    assert (type(found), str(found)) == (QuarantineError, "out-g1: DELETE at version 3")
