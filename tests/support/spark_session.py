"""One Spark session for the tests that look at tables and frames, with the settings that every job gets."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rewind.runtime.drivers import jvm
from tests.support import warm_submit
from tests.support.warm import WarmJvm

JAVA = (
    "-XX:+UseSerialGC",
    "-Xmn500m",
    "-XX:Tier4InvocationThreshold=40000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=100000",
    "-XX:Tier4BackEdgeThreshold=200000",
)
"""The second compiler for what is called most alone: it took a third of the CPU seconds of a JVM's first minutes."""


@pytest.fixture(scope="session")
def session(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    # Its connections are closed when Python ends, and would tell so to a stream of pytest that is closed already.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraClassPath": jvm.spark_class_path(jars),
        "spark.driver.extraJavaOptions": " ".join([jvm.driver_java_options(jars, short=False), *JAVA]),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "Europe/Paris",
        "spark.sql.execution.pythonUDF.arrow.enabled": "false",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        **warm_submit.SMALL,
        "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    yield made
    made.stop()


@pytest.fixture
def spark(session: SparkSession) -> SparkSession:
    """The session, in the documents' zone."""
    session.conf.set("spark.sql.session.timeZone", "Europe/Paris")
    return session


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Evaluate expressions by the Java that a real driver makes of them: for tests of what single values become."""
    for key in warm_submit.INTERPRETED:
        spark.conf.unset(key)
    yield
    for key, value in warm_submit.INTERPRETED.items():
        spark.conf.set(key, value)


@pytest.fixture(scope="session")
def warm_jvm(session: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> WarmJvm:
    """The session's JVM, for drivers that need none of their own."""
    return WarmJvm(session, tmp_path_factory.mktemp("warm"))
