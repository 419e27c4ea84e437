"""Files torn, flipped or missing: a step is refused clearly or survives, and goes on once they are restored."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from pyspark.sql import SparkSession

from rewind.adapters import mirror
from rewind.core.errors import RewindError
from rewind.runtime.drivers import supervise
from tests.scenarios.sweep import Sweep, Trace
from tests.support.workshop import wait_for


def torn(file: Path) -> None:
    """Cut the second half off."""
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flipped(file: Path) -> None:
    """Invert a part in the middle."""
    body = bytearray(file.read_bytes())
    middle = slice(len(body) // 3, 2 * len(body) // 3 + 1)
    body[middle] = bytes(byte ^ 0xFF for byte in body[middle])
    file.write_bytes(body)


def missing(file: Path) -> None:
    """Take it away."""
    file.unlink()


DAMAGES = (torn, flipped, missing)


def registry(sweep: Sweep) -> Path:
    """Return the registry's file, with all of it in that one file."""
    file = Path(sweep.shop.settings.registry_url.removeprefix("sqlite:///"))
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return file


def delta_log(sweep: Sweep) -> Path:
    """Return the newest commit of the mirror."""
    return max((Path(mirror.table_path(sweep.shop.settings, sweep.shop.topic)) / "_delta_log").glob("*.json"))


def parquet(sweep: Sweep) -> Path:
    """Return a file of the mirror."""
    return max(Path(mirror.table_path(sweep.shop.settings, sweep.shop.topic)).rglob("*.parquet"))


FILES = (registry, delta_log, parquet)


def taken(
    sweep: Sweep, spark: SparkSession, step: str, find: Callable[[Sweep], Path], damage: Callable[[Path], None]
) -> str:
    """Damage a file, run a step, restore the file, run the step again; return how the first run went."""
    sweep.restore(step)
    file = find(sweep)
    whole = file.read_bytes()
    damage(file)
    forget(spark)
    try:
        sweep.run(step, Trace())
        outcome = "survived"
    except RewindError as refused:
        outcome = f"refused: {type(refused).__name__}: {refused}"
    file.write_bytes(whole)
    forget(spark)
    sweep.run(step, Trace())
    sweep.compare(step, (find.__name__, damage.__name__))
    return outcome


def forget(spark: SparkSession) -> None:
    """Let the session read tables anew: it would answer from what it has seen."""
    jvm = spark._jvm
    assert jvm is not None
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def checkpoint(sweep: Sweep, log: str, damage: Callable[[Path], None]) -> str:
    """Damage the newest file of live's checkpoint, start its driver, and start it again with the file restored."""
    sweep.restore("plan")
    sweep.close()
    shop, job = sweep.shop, f"{sweep.shop.pipeline}-g1"
    with shop.registry() as connection:
        sweep.forget_played(connection, job)
    folder = supervise.checkpoint_folder(shop.settings, job) / log
    file = max((path for path in folder.iterdir() if path.name.isdigit()), key=lambda path: int(path.name))
    whole = file.read_bytes()
    damage(file)
    end = shop.end()
    shop.produce((b"k", b"{}"))

    def ended() -> bool:
        sighting = supervise.look(shop.settings, job)
        return sighting.state in (supervise.WAITING, supervise.QUARANTINED) or shop.position(job) != end

    wait_for("an answer of the driver", ended)
    outcome = "survived" if shop.position(job) != end else f"refused: {sweep.last_failure(job)}"
    if outcome != "survived":
        file.write_bytes(whole)
    shop.start(job)
    shop.caught_up(job)
    shop.stop(job)
    sources = [r.headers["rewind-source"] for t in ("", "-dead") for r in shop.read(f"{shop.pipeline}-out-g1{t}")]
    assert len(set(sources)) == sum(shop.end().values()), "nothing is lost"
    return outcome
