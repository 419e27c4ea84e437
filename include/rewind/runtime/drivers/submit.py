"""One spark-submit, as a value: the operators, the detached drivers and the tests all submit from it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rewind.core.settings import Settings
from rewind.runtime.drivers import driver_environment, jvm
from rewind.runtime.drivers.bundle import Bundle

SHORT_STEPS = frozenset({"spin_up", "collect_garbage", "deploy", "abort", "plan", "rollback"})
"""Steps that run little in the JVM: the first compiler alone makes them cheaper."""
LIGHT_ON_ONE_MACHINE = frozenset({"stream", "mirror"})
"""The same where driver and tasks share one machine: there the second compiler took nearly half the CPU seconds
of a stream's first minutes, from the very tasks that it was to make faster. Backfills and comparisons gain by it,
if they are long enough."""
FEW_RECORDS = 500_000
"""The same for any job that works on no more records than this: a backfill of 300,000 took 26 CPU seconds instead of
38, and 18 instead of 22 by the clock; one of 1,000,000 took as many, and longer."""

REDACTED = "(?i)secret|password|token|access[.]?key|jaas|keystore|private key"
"""What Spark shows as stars in plans and event logs, by name or value: its own pattern, and logins to Kafka."""


@dataclass(frozen=True)
class Submit:
    """Everything one spark-submit is given.

    Attributes:
        application: The main.
        arguments: Its arguments; no secrets.
        py_files: The zip with our packages.
        class_path: Class path of driver and executors, joined by `:`.
        conf: Spark settings.
        environment: Variables of the process beside those inherited (`driver_environment`).
        name: Name of the application.
        master: Spark master.
    """

    application: Path
    arguments: Sequence[str]
    py_files: Path
    class_path: str
    conf: Mapping[str, str]
    environment: Mapping[str, str]
    name: str
    master: str


def make(
    settings: Settings,
    bundle: Bundle,
    job: str,
    arguments: Sequence[str],
    *,
    name: str,
    conf: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    records: int | None = None,
) -> Submit:
    """Return the submit of a main in a bundle.

    Args:
        settings: The installation.
        bundle: Whose code runs.
        job: Name of the main, without `.py`.
        arguments: What the main is given.
        name: Name of the application, to be found in lists of processes.
        conf: Settings beside the usual ones.
        environment: Variables beside the usual ones.
        records: How many records the job works on, where that is known.
    """
    class_path = jvm.spark_class_path(settings.jars)
    return Submit(
        application=bundle.main(job),
        arguments=[str(a) for a in arguments],
        py_files=bundle.zip,
        class_path=class_path,
        conf={**usual_conf(settings, job, records), **(conf or {})},
        environment={
            **settings.environment(),
            # A checkout on the path must not win over the bundle.
            "PYTHONPATH": "",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "JAVA_HOME": str(jvm.java_home()),
            **_local_address(settings.spark_master),
            **(environment or {}),
        },
        name=name,
        master=settings.spark_master,
    )


def is_short(settings: Settings, job: str, records: int | None = None) -> bool:
    """Return whether a job runs with the first compiler alone; `records` is how many it works on, if that is known."""
    few = records is not None and records <= FEW_RECORDS
    on_one_machine = settings.spark_master.startswith("local")
    return job in SHORT_STEPS or (on_one_machine and (few or job in LIGHT_ON_ONE_MACHINE))


def usual_conf(settings: Settings, job: str, records: int | None = None) -> dict[str, str]:
    """Return the Spark settings of a job of ours; `records` as in `is_short`."""
    short = is_short(settings, job, records)
    return {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": jvm.driver_java_options(settings.jars, short=short),
        "spark.executor.extraClassPath": jvm.spark_class_path(settings.jars),
        "spark.ui.enabled": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": str(settings.home / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.log.level": "WARN",
        "spark.redaction.regex": REDACTED,
    }


def _local_address(master: str) -> dict[str, str]:
    # A driver whose executors are threads of its own need not be reachable from outside.
    return {"SPARK_LOCAL_IP": "127.0.0.1"} if master.startswith("local") else {}


def command(made: Submit) -> list[str]:
    """Return the command line of a submit."""
    spark_submit = Path(sys.executable).parent / "spark-submit"
    options = ["--master", made.master, "--name", made.name, "--py-files", str(made.py_files)]
    options += ["--driver-class-path", made.class_path]
    for key, value in made.conf.items():
        options += ["--conf", f"{key}={value}"]
    return [str(spark_submit), *options, str(made.application), *made.arguments]


def environment(made: Submit) -> dict[str, str]:
    """Return the whole environment of a submit's process."""
    return {**driver_environment.inherited(os.environ), **made.environment}
