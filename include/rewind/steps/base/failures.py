"""What Spark and the disk throw, as errors that say what to do: told by the words of their causes."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass

from rewind.core.errors import IntegrityError, QuarantineError, RetryError, RewindError


@dataclass(frozen=True)
class Kind:
    """One kind of failure.

    Attributes:
        signs: Words of which one stands in its text.
        error: The error it becomes.
        told: What it is, and the cure.
    """

    signs: tuple[str, ...]
    error: type[RewindError]
    told: str


RETRIABLE = (
    "Timeout",
    "Disconnect",
    "Network",
    "NotLeaderOrFollower",
    "LeaderNotAvailable",
    "NotEnoughReplicas",
    "CoordinatorNotAvailable",
    "NotCoordinator",
    "BrokerNotAvailable",
    "RetriableCommitFailed",
)
"""Errors of Kafka that end by themselves once its brokers are well."""
GUARDED = ("Topic", "Group", "Cluster", "TransactionalId")
"""What Kafka guards by rights."""
KINDS = (
    Kind(
        ("No space left on device", "database or disk is full"),
        RetryError,
        "a disk is full: free some of it, then run this again",
    ),
    Kind(
        tuple(f"org.apache.kafka.common.errors.{name}AuthorizationException" for name in GUARDED),
        QuarantineError,
        "the broker denies this user a right: grant it (docs/secure.md), then run this again",
    ),
    Kind(
        tuple(f"org.apache.kafka.common.errors.{name}AuthenticationException" for name in ("Sasl", "Ssl")),
        QuarantineError,
        "the broker refuses the login: fix REWIND_KAFKA_OPTIONS_FILE (docs/secure.md), then run this again",
    ),
    Kind(
        (
            *(f"org.apache.kafka.common.errors.{name}Exception" for name in RETRIABLE),
            "Failed to construct kafka consumer",
            "Failed to construct kafka producer",
            "Connection to node",
        ),
        RetryError,
        "Kafka did not answer: is it up (`make status`)? Then run this again",
    ),
    Kind(
        ("Multiple streaming queries are concurrently using",),
        IntegrityError,
        "the checkpoint lost a file, or another query works in it: restore it from a backup, then run this again",
    ),
    Kind(
        (
            "ChecksumException",
            "FAILED_READ_FILE",
            "FileNotFoundException",
            "is not a Parquet file",
            "DELTA_",
            "_delta_log",
            "MalformedInputException",
            "JsonParseException",
            # All that a query tells of the two before.
            "exception: Unexpected end-of-input",
            "exception: Input length = 1",
        ),
        IntegrityError,
        "a file is torn, changed or missing: restore it from a backup, then run this again",
    ),
)
"""Tried in this order: a job that reads files and writes to Kafka names both."""
SET_ASIDE = re.compile(rf"{re.escape(QuarantineError.__module__)}\.{QuarantineError.__name__}: (.+)")
"""What a batch raised, after it went through the JVM."""


def typed(error: BaseException) -> BaseException:
    """Return the error to raise in the place of one: itself, when it is one of ours or says nothing known."""
    if isinstance(error, RewindError) or not _foreign(error):
        return error
    text = str(error)
    if (ours := SET_ASIDE.search(text)) is not None:
        return QuarantineError(ours[1])
    kind = next((kind for kind in KINDS if any(sign in text for sign in kind.signs)), None)
    return error if kind is None else kind.error(f"{kind.told} ({_gist(text, kind)})")


def _foreign(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.ENOSPC
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _gist(text: str, kind: Kind) -> str:
    """Return the first line that names the cause."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if any(sign in line for sign in kind.signs)), "")[:500]
