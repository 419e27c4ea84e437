"""Delta tables as files that no JVM wrote: a log on the disk, and beside it the rows that each version shows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rewind.adapters import files

Row = tuple[str, int]
"""A row: who wrote it first, and how often somebody changed it since."""


@dataclass
class Table:
    """A table: its files as Delta 4.4 writes them, and its rows by version, which no code of ours has worked out."""

    path: Path
    table_id: str = "t-1"
    columns: list[str] = field(default_factory=lambda: ["partition", "offset"])
    rows: list[frozenset[Row]] = field(default_factory=list)
    shapes: list[list[str]] = field(default_factory=list)
    rewritten: set[int] = field(default_factory=set)

    @property
    def version(self) -> int:
        return len(self.rows) - 1

    @property
    def now(self) -> frozenset[Row]:
        return self.rows[-1] if self.rows else frozenset()

    def create(self) -> Table:
        (self.path / "_delta_log").mkdir(parents=True)
        self.commit("CREATE TABLE", self.now, meta=True)
        return self

    def commit(
        self,
        operation: str,
        after: Iterable[Row],
        *,
        parameters: dict[str, Any] | None = None,
        metrics: dict[str, str] | None = None,
        txn: tuple[str, int] | None = None,
        metadata: str = "",
        moves: bool = True,
        rewrites: bool = False,
        meta: bool = False,
    ) -> int:
        """Write the next version, whose files change as the rows do.

        Args:
            operation: What Delta calls it.
            after: The rows from then on.
            parameters: Of the operation.
            metrics: Of the operation.
            txn: Its write id.
            metadata: Its user metadata.
            moves: What `dataChange` says.
            rewrites: Whether all files are others, though the rows be the same.
            meta: Whether it states the table's columns.
        """
        kept = frozenset(after)
        put, took = (kept, self.now) if rewrites else (kept - self.now, self.now - kept)
        info = {"timestamp": 1_756_969_200_000 + len(self.rows), "operation": operation, "engineInfo": "Spark"}
        info |= {"txnId": f"{self.table_id}-{len(self.rows)}"}
        info |= {"operationParameters": parameters or {}, "operationMetrics": metrics or {}}
        info |= {"userMetadata": metadata} if metadata else {}
        actions: list[dict[str, Any]] = [{"commitInfo": info}]
        actions += [{"txn": {"appId": txn[0], "version": txn[1]}}] if txn else []
        if meta:
            schema = json.dumps({"type": "struct", "fields": [{"name": name} for name in self.columns]})
            actions.append({"metaData": {"id": self.table_id, "schemaString": schema}})
        actions += [{"remove": {"path": "old", "dataChange": moves}}] if took else []
        actions += [{"add": {"path": f"{len(self.rows)}", "size": 1, "dataChange": moves}}] if put else []
        file = self.path / "_delta_log" / f"{len(self.rows):020d}.json"
        file.write_text("\n".join(map(json.dumps, actions)))
        self.rows.append(kept)
        self.shapes.append(list(self.columns))
        self.rewritten |= {self.version} if rewrites else set()
        return self.version

    def write(self, application: str, number: int, *, metadata: str = '{"ranges": {}}', rows: int = 1) -> int:
        """Append as we do."""
        new = {(f"{application}:{number}:{n}", 0) for n in range(rows)}
        pair = (application, number)
        return self.commit("WRITE", self.now | new, parameters={"mode": "Append"}, txn=pair, metadata=metadata)

    def append(self) -> int:
        """Append as somebody else does."""
        return self.commit("WRITE", self.now | {(f"foreign:{len(self.rows)}", 0)}, parameters={"mode": "Append"})

    def delete(self, *rows: Row) -> int:
        metrics = {"numDeletedRows": str(len(rows))}
        return self.commit("DELETE", self.now - set(rows), parameters={"predicate": '["x"]'}, metrics=metrics)

    def update(self, *rows: Row) -> int:
        return self.commit("UPDATE", self.now - set(rows) | {(name, n + 1) for name, n in rows})

    def merge(self, *rows: Row) -> int:
        return self.commit("MERGE", self.now - set(rows) | {(name, n + 1) for name, n in rows})

    def truncate(self) -> int:
        return self.commit("TRUNCATE", ())

    def overwrite(self, *, moves: bool = True) -> int:
        new = {(f"foreign:{len(self.rows)}", 0)}
        return self.commit("WRITE", new, parameters={"mode": "Overwrite"}, moves=moves)

    def replace(self) -> int:
        self.table_id += "'"
        return self.commit("CREATE OR REPLACE TABLE", (), meta=True)

    def restore(self, to: int) -> int:
        self.columns = list(self.shapes[to])
        others = any(version > to for version in self.rewritten)
        at = {"version": to, "timestamp": None}
        return self.commit("RESTORE", self.rows[to], parameters=at, meta=True, rewrites=others)

    def restore_to_time(self, to: int) -> int:
        at = {"version": None, "timestamp": "2025-09-04 09:00:00"}
        return self.commit("RESTORE", self.rows[to], parameters=at, meta=True)

    def optimize(self) -> int:
        return self.commit("OPTIMIZE", self.now, moves=False, rewrites=True)

    def compact(self) -> int:
        """Rewrite the files as a mirror does."""
        rows = str(len(self.now))
        metrics = {"numDeletedRows": rows, "numOutputRows": rows}
        return self.commit(
            "WRITE", self.now, parameters={"mode": "Overwrite"}, metrics=metrics, moves=False, rewrites=True
        )

    def vacuum(self) -> int:
        self.commit("VACUUM START", self.now)
        return self.commit("VACUUM END", self.now)

    def set_property(self) -> int:
        return self.commit("SET TBLPROPERTIES", self.now, meta=True)

    def add_column(self) -> int:
        self.columns.append(f"c{len(self.rows)}")
        return self.commit("ADD COLUMNS", self.now, meta=True)

    def drop_column(self) -> int:
        self.columns.pop()
        return self.commit("DROP COLUMNS", self.now, meta=True)

    def made_anew(self) -> None:
        """Drop the table and make another in its place."""
        for file in (self.path / "_delta_log").glob("*.json"):
            file.unlink()
        self.rows, self.table_id = [], "t-2"
        self.commit("CREATE TABLE", (), meta=True)

    def put_back(self, to: int) -> None:
        """Put the folder back as it was at a version."""
        for version in range(to + 1, len(self.rows)):
            (self.path / "_delta_log" / f"{version:020d}.json").unlink()
        del self.rows[to + 1 :]


def read_locally(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let `adapters.files` read the disk without a JVM; return the list of what is read from then on."""
    asked: list[str] = []

    def text(_: object, path: str) -> str | None:
        asked.append(path)
        return Path(path).read_text() if Path(path).exists() else None

    def names(_: object, path: str) -> list[str]:
        found = sorted(file.name for file in Path(path).glob("*"))
        asked.extend(found)
        return found

    def exists(_: object, path: str) -> bool:
        return Path(path).exists()

    monkeypatch.setattr(files, "read_text", text)
    monkeypatch.setattr(files, "exists", exists)
    monkeypatch.setattr(files, "names", names)
    return asked
