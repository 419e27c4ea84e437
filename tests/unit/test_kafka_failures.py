"""What Spark throws when Kafka lets it not in, or not do something: final, and told with its cure."""

from __future__ import annotations

import pytest

from rewind.core.errors import QuarantineError, RetryError
from rewind.steps import failures


class ThrownByJava(Exception):  # noqa: N818 - as Py4J names its own
    """An error of the JVM, as it comes through Py4J."""

    __module__ = "py4j.protocol"


KAFKA = "org.apache.kafka.common.errors"


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        (
            f"{KAFKA}.TopicAuthorizationException: Not authorized to access topics: [out-g1]",
            QuarantineError,
            r"denies this user a right.*docs/secure.md.*\[out-g1\]",
        ),
        (
            f"{KAFKA}.ClusterAuthorizationException: Cluster authorization failed.",
            QuarantineError,
            "denies this user a right",
        ),
        (
            f"{KAFKA}.SaslAuthenticationException: Authentication failed: Invalid username or password",
            QuarantineError,
            "refuses the login: mend REWIND_KAFKA_OPTIONS_FILE",
        ),
        (f"{KAFKA}.SslAuthenticationException: SSL handshake failed", QuarantineError, "refuses the login"),
        # The producer says that it could not be made, and beneath it why.
        (
            f"KafkaException: Failed to construct kafka producer\nCaused by: {KAFKA}.SaslAuthenticationException: no",
            QuarantineError,
            "refuses the login",
        ),
        (f"{KAFKA}.TimeoutException: Topic out-g1 not present in metadata", RetryError, "Kafka did not answer"),
    ],
)
def test_what_a_retry_does_not_heal_is_not_tried_again(text, error, told):
    found = failures.typed(ThrownByJava(f"An error occurred while calling o1.save.\n: {text}\n\tat org.apache"))
    assert type(found) is error
    with pytest.raises(error, match=told):
        raise found
