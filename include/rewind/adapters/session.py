"""The Spark session of a job."""

from __future__ import annotations

from pyspark.sql import SparkSession


def session(name: str, time_zone: str) -> SparkSession:
    """Return the session of a main: the settings come from the submit, the time zone from the frozen configuration."""
    made: SparkSession = SparkSession.builder.appName(name).getOrCreate()
    made.conf.set("spark.sql.session.timeZone", time_zone)
    return made
