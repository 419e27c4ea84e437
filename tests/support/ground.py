"""A broker and an installation of a test's own, so that what is done to them disturbs no other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rewind.core.settings import from_environment
from rewind.local import broker as local_broker
from rewind.runtime.drivers import supervise
from tests.support.workshop import PROJECT, Workshop


@dataclass(frozen=True)
class Ground:
    """A pipeline, and the broker below it.

    Attributes:
        shop: The pipeline.
        home: Home of the broker.
        jars: Its jars.
    """

    shop: Workshop
    home: Path
    jars: Path

    def kill_broker(self) -> None:
        """Kill the broker, as a crash does."""
        running = local_broker.find(self.home)
        if running is not None:
            running.kill()

    def start_broker(self) -> None:
        """Start it again, with its data."""
        local_broker.start(self.home, jars=self.jars)


@contextmanager
def ground(
    folder: Path, jars: Path, name: str, home: Path | None = None, partitions: int = 2, **declared: Any
) -> Iterator[Ground]:
    """Make a broker, an installation and a pipeline in a folder; all of it ends with the block.

    Args:
        folder: Where.
        jars: The jars of set-up.
        name: Name of the pipeline.
        home: Home of the installation; None for one in the folder.
        partitions: Of the source topic.
        declared: See `workshop.declare`.
    """
    own = local_broker.start(folder / "broker", jars=jars)
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    places = {"REWIND_HOME": home or folder / "home", "REWIND_JARS": jars, "REWIND_PIPELINES": pipelines}
    environment = {key: str(place) for key, place in (places | {"REWIND_JOBS": PROJECT / "jobs"}).items()}
    settings = from_environment(environment | {"REWIND_KAFKA_BOOTSTRAP": own.bootstrap})
    settings.data.mkdir(parents=True)
    made = Ground(Workshop(settings, name, partitions, **declared), folder / "broker", jars)
    try:
        yield made
    finally:
        supervise.stop_all(settings, timeout=20)
        made.kill_broker()
