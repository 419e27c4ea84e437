"""Header names and the text of a source coordinate: the contract with readers of an output."""

from __future__ import annotations

from dataclasses import dataclass

JOB = "rewind-job"
TOKEN = "rewind-token"  # noqa: S105 - the name of a header
SOURCE = "rewind-source"
REPAIR = "rewind-repair"
REASON = "rewind-reason"
VERSION = "rewind-version"
SPAN = "rewind-span"

EPOCH_WIDTH = 10
"""Characters of a version that are its epoch."""


def version(epoch: int, batch: int, repair: int = 0) -> str:
    """Return the version of a keyed result: of two rows of a key the one with the higher text is the newer.

    Args:
        epoch: The pointer's epoch at which its job is, or is to be, live.
        batch: The micro-batch that wrote it; of a repair, the newest of the job that it repairs.
        repair: Number of the repair, 0 for none.
    """
    written = f"{epoch_text(epoch)}-{batch:019d}"
    return f"{written}-r{repair:05d}" if repair else written


def epoch_text(epoch: int) -> str:
    """Return the first `EPOCH_WIDTH` characters of the versions of an epoch: none of them is lower as text."""
    return f"{epoch:0{EPOCH_WIDTH}d}"


@dataclass(frozen=True, order=True)
class Coordinate:
    """Where an output row came from.

    Attributes:
        topic_id: Kafka's id of the source topic; a recreated topic has another.
        partition: Source partition.
        offset: Source offset.
        row: Number of the row among those made from the record, 0 for the first.
    """

    topic_id: str
    partition: int
    offset: int
    row: int = 0

    def __str__(self) -> str:
        base = f"{self.topic_id}:{self.partition}:{self.offset}"
        return f"{base}:{self.row}" if self.row else base


def parse(text: str) -> Coordinate:
    """Return the coordinate that a `rewind-source` header holds.

    Raises:
        ValueError: The text has not three or four parts, or a part is no number.
    """
    topic_id, partition, offset, *row = text.split(":")
    if len(row) > 1:
        raise ValueError(f"{text!r} is no source coordinate")
    return Coordinate(topic_id, int(partition), int(offset), int(row[0]) if row else 0)
