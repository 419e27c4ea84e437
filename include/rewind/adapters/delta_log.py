"""The Delta commit log of a mirror, read as the small JSON files it is.

Delta protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, actions `txn`, `add`, `commitInfo`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from rewind.adapters import files


@dataclass(frozen=True)
class LogEntry:
    """One commit of a Delta table.

    Attributes:
        version: The version it made.
        transaction: `txnAppId` and `txnVersion`, when it carries them.
        metadata: Its user metadata.
        counts: Of a mirror, records it added per Kafka partition, from the statistics of its files.
        files: Paths of the files it added, relative to the table.
        removed: Files it took away.
        bytes: Bytes of those it added.
        timestamp: When it was made, in milliseconds since 1970.
    """

    version: int
    transaction: tuple[str, int] | None
    metadata: str
    counts: dict[int, int]
    files: tuple[str, ...]
    removed: int
    bytes: int
    timestamp: int


def versions(spark: SparkSession, path: str, after: int) -> list[int]:
    """Return the versions above `after` that the log still holds one by one, in order."""
    names = files.names(spark, f"{path}/_delta_log")
    found = [int(name.removesuffix(".json")) for name in names if name.endswith(".json") and name[:20].isdigit()]
    return sorted(version for version in found if version > after)


def entry(spark: SparkSession, path: str, version: int) -> LogEntry:
    """Return one commit.

    Raises:
        FileNotFoundError: The log no longer holds it by itself.
    """
    text = files.read_text(spark, f"{path}/_delta_log/{version:020d}.json")
    if text is None:
        raise FileNotFoundError(f"{path}: version {version}")
    actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    info = _one(actions, "commitInfo") or {}
    txn = _one(actions, "txn")
    added = [action["add"] for action in actions if "add" in action]
    return LogEntry(
        version=version,
        transaction=(txn["appId"], txn["version"]) if txn else None,
        metadata=info.get("userMetadata", ""),
        counts=_counts(added),
        files=tuple(unquote(add["path"]) for add in added),
        removed=sum("remove" in action for action in actions),
        bytes=sum(add["size"] for add in added),
        timestamp=info.get("timestamp", 0),
    )


def _one(actions: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((action[name] for action in actions if name in action), None)


def _counts(added: list[dict[str, Any]]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for add in added:
        statistics = json.loads(add.get("stats") or "{}")
        if "partition" in statistics.get("minValues", {}):
            partition = statistics["minValues"]["partition"]
            counts[partition] = counts.get(partition, 0) + statistics["numRecords"]
    return counts
