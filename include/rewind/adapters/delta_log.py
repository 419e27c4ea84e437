"""The Delta commit log of a table, read as the small JSON files it is.

Delta protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md, actions `txn`, `add`, `remove`, `metaData`,
`commitInfo`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from rewind.adapters import files
from rewind.core.errors import IntegrityError
from rewind.core.periods import milliseconds

_reached: dict[str, int] = {}
"""The newest version of a table that this process has seen, by path."""


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
        operation: What Delta calls it.
        parameters: Of the operation.
        metrics: Of the operation, as texts.
        by: Who made it: the user, or the engine where no user is told.
        put: Files it added with other rows than there were.
        took: Files it took away with their rows.
        table: Delta's id of the table and its columns, where the commit states them.
        times: Of a mirror, the earliest and latest Kafka timestamp of the records it added, in milliseconds since 1970,
            per Kafka partition, from the same statistics; absent where a file tells none.
    """

    version: int
    transaction: tuple[str, int] | None
    metadata: str
    counts: dict[int, int]
    files: tuple[str, ...]
    removed: int
    bytes: int
    timestamp: int
    operation: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    by: str = ""
    put: int = 0
    took: int = 0
    table: tuple[str, tuple[str, ...]] | None = None
    times: dict[int, tuple[int, int]] = field(default_factory=dict)


def versions(spark: SparkSession, path: str, after: int) -> list[int]:
    """Return the versions above `after` that the log still holds one by one, in order.

    Where it still holds `after` itself it holds all that came later, for the oldest leave it first: each is asked for
    by name, since a log of months has hundreds of thousands of names to list.
    """
    if after < 0 or not _holds(spark, path, after):
        names = files.names(spark, f"{path}/_delta_log")
        found = [int(name.removesuffix(".json")) for name in names if name.endswith(".json") and name[:20].isdigit()]
        return sorted(version for version in found if version > after)
    return list(itertools.takewhile(lambda version: _holds(spark, path, version), itertools.count(after + 1)))


def newest(spark: SparkSession, path: str) -> int:
    """Return the newest version, -1 where there is no table; the log is listed once a process."""
    known = _reached.get(path, -1)
    if known >= 0 and not _holds(spark, path, known):
        # Another table was made at the path.
        known = -1
    _reached[path] = max(versions(spark, path, known), default=known)
    return _reached[path]


def _holds(spark: SparkSession, path: str, version: int) -> bool:
    return files.exists(spark, _file(path, version))


def _file(path: str, version: int) -> str:
    return f"{path}/_delta_log/{version:020d}.json"


def entry(spark: SparkSession, path: str, version: int) -> LogEntry:
    """Return one commit.

    Raises:
        FileNotFoundError: The log no longer holds it by itself.
    """
    text = read(spark, path, version)
    if text is None:
        raise FileNotFoundError(f"{path}: version {version}")
    return parsed(version, text)


def read(spark: SparkSession, path: str, version: int) -> str | None:
    """Return the file of one commit, or None when the log does not hold it by itself.

    Raises:
        IntegrityError: It is no text.
    """
    try:
        return files.read_text(spark, _file(path, version))
    except UnicodeDecodeError as error:
        raise _torn(version, error) from error


def parsed(version: int, text: str) -> LogEntry:
    """Return the commit that a file of the log tells of.

    Raises:
        IntegrityError: It is torn.
    """
    try:
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    except ValueError as error:
        raise _torn(version, error) from error
    info = _one(actions, "commitInfo") or {}
    txn = _one(actions, "txn")
    added = [action["add"] for action in actions if "add" in action]
    removed = [action["remove"] for action in actions if "remove" in action]
    return LogEntry(
        version=version,
        transaction=(txn["appId"], txn["version"]) if txn else None,
        metadata=info.get("userMetadata", ""),
        counts=_counts(added),
        times=_times(added),
        files=tuple(unquote(add["path"]) for add in added),
        removed=len(removed),
        bytes=sum(add["size"] for add in added),
        timestamp=info.get("timestamp", 0),
        operation=info.get("operation", ""),
        parameters=info.get("operationParameters") or {},
        metrics=info.get("operationMetrics") or {},
        by=info.get("userName") or info.get("userId") or info.get("engineInfo", "somebody"),
        put=sum(add["dataChange"] for add in added),
        took=sum(remove["dataChange"] for remove in removed),
        table=_table(_one(actions, "metaData")),
    )


def _torn(version: int, error: ValueError) -> IntegrityError:
    return IntegrityError(f"version {version} of a table's log is torn or changed ({error}): restore it from a backup")


def _one(actions: list[dict[str, Any]], name: str) -> dict[str, Any] | None:
    return next((action[name] for action in actions if name in action), None)


def _counts(added: list[dict[str, Any]]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for partition, statistics in _of_partitions(added):
        counts[partition] = counts.get(partition, 0) + statistics["numRecords"]
    return counts


def _times(added: list[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    bounds: dict[int, list[int | None]] = {}
    for partition, statistics in _of_partitions(added):
        ends = (statistics.get(name, {}).get("timestamp") for name in ("minValues", "maxValues"))
        bounds.setdefault(partition, []).extend(map(_instant, ends))
    known = {p: [at for at in found if at is not None] for p, found in bounds.items()}
    return {p: (min(ats), max(ats)) for p, ats in known.items() if len(ats) == len(bounds[p])}


def _instant(text: str | None) -> int | None:
    # A clock may be wrong by thousands of years, which the calendar of Python does not reach.
    try:
        return None if text is None else milliseconds(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None


def _of_partitions(added: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Return the Kafka partition of each file that tells it, with the statistics of the file."""
    for add in added:
        statistics = json.loads(add.get("stats") or "{}")
        if "partition" in statistics.get("minValues", {}):
            yield statistics["minValues"]["partition"], statistics


def _table(metadata: Mapping[str, Any] | None) -> tuple[str, tuple[str, ...]] | None:
    if metadata is None:
        return None
    fields = json.loads(metadata.get("schemaString") or '{"fields":[]}')["fields"]
    return metadata["id"], tuple(field["name"] for field in fields)
