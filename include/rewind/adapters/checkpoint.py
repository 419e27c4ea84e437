"""What a streaming checkpoint says: which batches, from where to where.

The offset log writes a batch's end before the batch runs, the commit log after it; both hold one file a
batch (Spark's `OffsetSeqLog` and `CommitLog`).
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pyspark.sql import SparkSession

from rewind.adapters import files
from rewind.core.errors import IntegrityError
from rewind.core.offsets import Vector

CURE = "Restore the checkpoint from a backup, then run the stream again; without one, rewind with same_code"


def first_offsets(spark: SparkSession, checkpoint: str) -> Vector | None:
    """Return where a query's Kafka source began, or None for a query that never ran.

    Raises:
        IntegrityError: What stands there is no offsets.
    """
    return _parsed(spark, f"{checkpoint}/sources/0/0", lambda text: text[text.index("{") :])


def end_offsets(spark: SparkSession, checkpoint: str, batch: int) -> Vector | None:
    """Return the next offsets after a batch, or None when the batch was never begun.

    Raises:
        IntegrityError: What stands there is no offsets.
    """
    return _parsed(spark, f"{checkpoint}/offsets/{batch}", lambda text: text.splitlines()[2])


def last_committed(spark: SparkSession, checkpoint: str) -> int | None:
    """Return the newest committed batch, or None before the first."""
    batches = [int(name) for name in files.names(spark, f"{checkpoint}/commits") if name.isdigit()]
    return max(batches, default=None)


def start_offsets(spark: SparkSession, checkpoint: str, batch: int) -> Vector:
    """Return the first offsets of a batch: the end of the one before, or where the source began.

    A partition that was added since is absent: it starts at 0.
    """
    found = end_offsets(spark, checkpoint, batch - 1) if batch else first_offsets(spark, checkpoint)
    return found or {}


def _parsed(spark: SparkSession, path: str, body: Callable[[str], str]) -> Vector | None:
    text = files.read_text(spark, path)
    if text is None:
        return None
    try:
        (partitions,) = json.loads(body(text)).values()
        return {int(p): o for p, o in partitions.items()}
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise IntegrityError(f"checkpoint: {path} is torn or changed ({error}). {CURE}") from error


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query that owns a checkpoint; a fresh checkpoint has another one.

    Raises:
        FileNotFoundError: No query has ever used it.
    """
    text = files.read_text(spark, f"{checkpoint}/metadata")
    if text is None:
        raise FileNotFoundError(f"{checkpoint}/metadata")
    return str(json.loads(text)["id"])
