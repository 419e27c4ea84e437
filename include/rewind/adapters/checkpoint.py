"""What a streaming checkpoint says: which batches, from where to where.

The offset log writes a batch's end before the batch runs, the commit log after it; both hold one file a
batch (Spark's `OffsetSeqLog` and `CommitLog`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pyspark.sql import SparkSession

from rewind.adapters import files
from rewind.core.errors import IntegrityError
from rewind.core.offsets import Ranges, Vector, between

CURE = "Restore the checkpoint from a backup, then run the stream again; without one, rewind with same_code"

FEED, LIVE = "feed", "live"
"""Names of the two sources of a stateful pipeline's query: its history, then Kafka."""

T = TypeVar("T")


@dataclass(frozen=True)
class Logged:
    """What the offset log says of a batch.

    Attributes:
        source: Name of the source it read; empty in a log of the first format, which has no names.
        end: Where that source's part of it ends, as the source writes it.
        watermark: The watermark by which it closes results, in milliseconds since 1970; 0 before the first.
    """

    source: str
    end: str
    watermark: int


def first_offsets(spark: SparkSession, checkpoint: str) -> Vector | None:
    """Return where a query's Kafka source began, or None for a query that never read it.

    Raises:
        IntegrityError: What stands there is no offsets.
    """
    for source in ("0", LIVE):
        found = _parsed(spark, f"{checkpoint}/sources/{source}/0", lambda text: _vector(text[text.index("{") :]))
        if found is not None:
            return found
    return None


def logged(spark: SparkSession, checkpoint: str, batch: int) -> Logged | None:
    """Return what the offset log says of a batch, or None when the batch was never begun.

    Raises:
        IntegrityError: What stands there is no offset log of a query with one source.
    """
    return _parsed(spark, f"{checkpoint}/offsets/{batch}", _logged)


def end_offsets(spark: SparkSession, checkpoint: str, batch: int) -> Vector | None:
    """Return the next Kafka offsets after a batch, or None when it was never begun, or read a feed.

    Raises:
        IntegrityError: What stands there is no offsets.
    """
    return _parsed(spark, f"{checkpoint}/offsets/{batch}", _kafka_end)


def last_committed(spark: SparkSession, checkpoint: str) -> int | None:
    """Return the newest committed batch, or None before the first."""
    return _newest(spark, f"{checkpoint}/commits")


def last_begun(spark: SparkSession, checkpoint: str) -> int | None:
    """Return the newest batch that was begun, or None before the first; it may be committed or not."""
    return _newest(spark, f"{checkpoint}/offsets")


def _newest(spark: SparkSession, folder: str) -> int | None:
    return max((int(name) for name in files.names(spark, folder) if name.isdigit()), default=None)


def start_offsets(spark: SparkSession, checkpoint: str, batch: int) -> Vector:
    """Return the first Kafka offsets of a batch: the end of the one before, or where the source began.

    A partition that was added since is absent: it starts at 0.
    """
    found = end_offsets(spark, checkpoint, batch - 1) if batch else None
    return (first_offsets(spark, checkpoint) if found is None else found) or {}


def uncommitted(spark: SparkSession, checkpoint: str) -> Ranges:
    """Return the Kafka offsets of a batch that was begun and not committed; empty when there is none.

    What it has written so far is written again when it is run again.
    """
    begun = last_begun(spark, checkpoint)
    if begun is None or begun == last_committed(spark, checkpoint):
        return {}
    return between(start_offsets(spark, checkpoint, begun), end_offsets(spark, checkpoint, begun) or {})


def late_watermark(spark: SparkSession, checkpoint: str, batch: int) -> int:
    """Return the watermark by which a batch leaves late rows out: the one that closed the results of the batch before.

    In milliseconds since 1970; 0 for a first batch, which leaves nothing out.
    """
    before = logged(spark, checkpoint, batch - 1) if batch else None
    return before.watermark if before is not None else 0


def _logged(text: str) -> Logged:
    form, metadata, line = text.splitlines()
    source, _, end = line.partition(":") if form == "v2" else ("", "", line)
    return Logged(source, end, int(json.loads(metadata)["batchWatermarkMs"]))


def _kafka_end(text: str) -> Vector | None:
    found = _logged(text)
    return None if found.source == FEED else _vector(found.end)


def _vector(text: str) -> Vector:
    (partitions,) = json.loads(text).values()
    return {int(p): o for p, o in partitions.items()}


def _parsed(spark: SparkSession, path: str, body: Callable[[str], T]) -> T | None:
    text = files.read_text(spark, path)
    if text is None:
        return None
    try:
        return body(text)
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
