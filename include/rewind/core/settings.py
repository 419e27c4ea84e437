"""Where things are: one value read from the environment, passed on as an argument."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rewind.core.errors import RefusedError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
ENVIRONMENT_KEYS = (
    "REWIND_HOME",
    "REWIND_DATA",
    "REWIND_REGISTRY_URL",
    "REWIND_KAFKA_BOOTSTRAP",
    "REWIND_KAFKA_OPTIONS_FILE",
    "REWIND_PIPELINES",
    "REWIND_JOBS",
    "REWIND_JARS",
    "REWIND_SPARK_MASTER",
    "REWIND_DRIVER_MEMORY",
)


@dataclass(frozen=True)
class Settings:
    """The places and addresses of one installation.

    Attributes:
        home: Folder of everything that is local to this installation (`REWIND_HOME`).
        data: Folder of mirrors, generations and evidence, seen by drivers and executors alike (`REWIND_DATA`).
        registry_url: SQLAlchemy URL of the registry (`REWIND_REGISTRY_URL`).
        bootstrap: Kafka bootstrap servers, `host:port[,host:port]` (`REWIND_KAFKA_BOOTSTRAP`).
        kafka_options_file: Optional 0600 file of further Kafka client options (`REWIND_KAFKA_OPTIONS_FILE`).
        read_token_file: Optional 0600 file with the token of those that only read (`REWIND_READ_TOKEN_FILE`).
        pipelines: Folder of the declared pipelines (`REWIND_PIPELINES`).
        jobs: Folder of the spark-submit mains (`REWIND_JOBS`).
        jars: Folder that set-up filled, with `spark/`, `kafka/` and `rewind.jsa` (`REWIND_JARS`).
        spark_master: Spark master of the jobs (`REWIND_SPARK_MASTER`).
        driver_memory: Heap of a driver, in Spark's notation (`REWIND_DRIVER_MEMORY`).
    """

    home: Path
    data: Path
    registry_url: str
    bootstrap: str
    kafka_options_file: Path | None
    pipelines: Path
    jobs: Path
    jars: Path
    spark_master: str
    driver_memory: str
    read_token_file: Path | None = None

    @property
    def mirrors(self) -> Path:
        """Folder with one Delta table a mirrored topic."""
        return self.data / "mirror"

    @property
    def generations(self) -> Path:
        """Folder with one folder a generation: bundle, checkpoint, logs."""
        return self.data / "generations"

    @property
    def tables(self) -> Path:
        """Folder with one Delta table a generation that writes to tables, and one for its dead letters."""
        return self.data / "tables"

    @property
    def evidence(self) -> Path:
        """Folder with one folder a rewind: what its verdict rests on."""
        return self.data / "evidence"

    def environment(self) -> dict[str, str]:
        """Return the variables from which `from_environment` makes this value again."""
        values = {
            "REWIND_HOME": str(self.home),
            "REWIND_DATA": str(self.data),
            "REWIND_REGISTRY_URL": self.registry_url,
            "REWIND_KAFKA_BOOTSTRAP": self.bootstrap,
            "REWIND_PIPELINES": str(self.pipelines),
            "REWIND_JOBS": str(self.jobs),
            "REWIND_JARS": str(self.jars),
            "REWIND_SPARK_MASTER": self.spark_master,
            "REWIND_DRIVER_MEMORY": self.driver_memory,
        }
        if self.kafka_options_file is not None:
            values["REWIND_KAFKA_OPTIONS_FILE"] = str(self.kafka_options_file)
        if self.read_token_file is not None:
            values["REWIND_READ_TOKEN_FILE"] = str(self.read_token_file)
        return values


def from_environment(environment: Mapping[str, str]) -> Settings:
    """Return the settings that the variables describe.

    Raises:
        RefusedError: `REWIND_HOME` or `REWIND_KAFKA_BOOTSTRAP` is not set, or a folder is no folder of a host.
    """
    home = _folder(environment, "REWIND_HOME", Path(_required(environment, "REWIND_HOME")))
    project = home.parent
    options_file, token_file = environment.get("REWIND_KAFKA_OPTIONS_FILE"), environment.get("REWIND_READ_TOKEN_FILE")
    return Settings(
        home=home,
        data=_folder(environment, "REWIND_DATA", home / "data"),
        registry_url=environment.get("REWIND_REGISTRY_URL") or f"sqlite:///{home}/registry.db",
        bootstrap=_required(environment, "REWIND_KAFKA_BOOTSTRAP"),
        kafka_options_file=Path(options_file) if options_file else None,
        pipelines=_folder(environment, "REWIND_PIPELINES", project / "include" / "pipelines"),
        jobs=_folder(environment, "REWIND_JOBS", project / "jobs"),
        jars=_folder(environment, "REWIND_JARS", home / "jars"),
        spark_master=environment.get("REWIND_SPARK_MASTER") or "local[2]",
        driver_memory=environment.get("REWIND_DRIVER_MEMORY") or "1g",
        read_token_file=Path(token_file) if token_file else None,
    )


def pipelines_folder(environment: Mapping[str, str], checkout: Path) -> Path:
    """Return the folder of the declared pipelines: the settings' own, or the checkout's where there is no stack."""
    try:
        return from_environment(environment).pipelines
    except RefusedError:
        return Path(environment.get("REWIND_PIPELINES") or checkout / "include" / "pipelines")


def _folder(environment: Mapping[str, str], key: str, usual: Path) -> Path:
    text = environment.get(key)
    if text and _SCHEME.match(text):
        # As a path it would be a folder of that name beside whatever runs.
        cure = "Name a folder that all hosts have at the same place; one of an object store is mounted first"
        raise RefusedError(key, f"{text} is no folder", cure)
    return (Path(text) if text else usual).resolve()


def _required(environment: Mapping[str, str], key: str) -> str:
    value = environment.get(key)
    if not value:
        raise RefusedError(key, "is not set", "Start the stack with `make up`, or export it")
    return value
