"""The start-up archive: classes that drivers load, as the JVM maps them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from pathlib import Path

from provision import commands
from provision.places import HOME, JARS, PROJECT, VENV, digest, read
from provision.progress import Board
from rewind.runtime.drivers import jvm

STEP = "archive"
TRAINING = PROJECT / "scripts" / "train_archive.py"
ARCHIVE = JARS / jvm.ARCHIVE
STAMP = JARS / ".archive-stamp"
SESSION_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_AT = re.compile(r"TRAINING (\d+) of (\d+): (.+)")


def is_right(java: Path) -> bool:
    """Tell whether the archive was made with the jars and the Java that are there."""
    return ARCHIVE.exists() and read(STAMP) == _inputs(java)


def ensure(java: Path, board: Board) -> None:
    """Make the archive, again whenever a jar or the Java is not the one it was made with."""
    if is_right(java):
        return
    folder = HOME / "training"
    with board.step(STEP, "starting Spark"):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        STAMP.unlink(missing_ok=True)
        made = folder / jvm.ARCHIVE
        # With the first compiler alone: the archive is the same, and the second would never pay here.
        submit(java, f'-XX:TieredStopAtLevel=1 "-XX:ArchiveClassesAtExit={made}"', [str(folder)], board)
        # Proved by a real submit: a class path that differs from the training's disables an archive silently.
        submit(java, f"{jvm.driver_java_options(folder, short=True)} -Xshare:on", ["--prove"], board)
        made.replace(ARCHIVE)
        STAMP.write_text(_inputs(java))
        shutil.rmtree(folder, ignore_errors=True)


def submit(java: Path, java_options: str, arguments: list[str], board: Board) -> None:
    """Run the training main as a job is run: same class path, nothing of the caller's Spark settings."""
    conf = {**SESSION_CONF, "spark.driver.extraJavaOptions": java_options}
    command = [str(VENV / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--driver-class-path", jvm.spark_class_path(JARS)]
    command += [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    ignored = ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS")
    environment = {key: value for key, value in os.environ.items() if key not in ignored}
    environment |= {"JAVA_HOME": str(java), "PYSPARK_PYTHON": str(VENV / "bin" / "python")}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}"}

    def watch(line: str) -> None:
        if at := _AT.search(line):
            board.show(STEP, at[3], int(at[1]) / int(at[2]))

    commands.run([*command, str(TRAINING), *arguments], STEP, environment=environment, watch=watch)


def _inputs(java: Path) -> str:
    """Return a digest of what an archive depends on: the JVM checks path, size and mtime of each jar."""
    jars = sorted(VENV.glob("lib/python*/site-packages/pyspark/jars/*.jar")) + sorted((JARS / "spark").glob("*.jar"))
    jars += [java / "lib" / "modules", java / "lib" / "server" / "libjvm.so"]
    facts = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars if jar.exists()]
    return hashlib.sha256(json.dumps([facts, SESSION_CONF, digest(TRAINING)]).encode()).hexdigest()
