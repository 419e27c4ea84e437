"""What of its parent's environment a driver gets: it runs code of pipelines for months, beside Airflow's secrets."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from rewind.core import crash

MORE = "REWIND_DRIVER_ENVIRONMENT"
"""The variable that names further ones, apart by commas; `*` stands for any text."""
INHERITED = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "LC_*",
    "TZ",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "JAVA_HOME",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "PYTHON*",
    "SPARK_*",
    "PYSPARK_*",
    "HADOOP_*",
    "YARN_*",
    "KRB5*",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "REWIND_MIRROR_RETAIN_HOURS",
    MORE,
    crash.VARIABLE,
    crash.FREEZE,
)
"""What Python, Java, Spark and Hadoop read, and settings of ours that stand in no `Settings`: none of it is secret."""


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a parent that a driver gets too.

    All others stay behind: Airflow's keys, its connections and its database's password are none of a pipeline's.
    """
    names = [*INHERITED, *(name.strip() for name in environment.get(MORE, "").split(",") if name.strip())]
    return {key: value for key, value in environment.items() if any(fnmatchcase(key, name) for name in names)}
