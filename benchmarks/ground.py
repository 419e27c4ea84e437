"""A broker, a topic of visits, a mirror of it, and the product's own steps, each a real spark-submit."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import rounds
from benchmarks.peers import environment as peers
from benchmarks.places import JARS, PROJECT, WORK
from benchmarks.rounds import Spent
from rewind.core.settings import Settings, from_environment
from rewind.local import broker as local_broker
from rewind.runtime.drivers import bundle, submit
from tests.support.workshop import Workshop

PARTITIONS = 2


class Ground:
    """A pipeline whose topic holds some records, all of them mirrored, and whose live job has nothing to do."""

    def __init__(self, settings: Settings, records: int) -> None:
        """Fill the topic, deploy at its end, and mirror it."""
        self.records = records
        self.shop = Workshop(settings, "bench", PARTITIONS)
        self._rewinds = 0
        fill = peers.command("fill", settings.bootstrap, self.shop.topic, PARTITIONS, records)
        rounds.of_process(fill)
        self.shop.deploy("latest")
        self.shop.start(self.shop.mirror)
        self.shop.caught_up(self.shop.mirror)
        self.shop.stop(self.shop.mirror)

    def step(self, job: str, *arguments: str) -> Spent:
        """Submit a main as an operator would, and return what it took."""
        settings = self.shop.settings
        made = submit.make(
            settings, bundle.build(settings, self.shop.pipeline), job, arguments, name=job, records=self.records
        )
        return rounds.of_process(submit.command(made), submit.environment(made), settings.home / f"{job}.log")

    def planned(self) -> tuple[str, Spent]:
        """Plan a rewind of the whole history; return its id and what that took."""
        self._rewinds += 1
        rewind_id = f"rw-{self._rewinds:010d}"
        asked = json.dumps({"dry_run": False, "same_code": True, "from": "earliest"})
        return rewind_id, self.step(
            "plan", "--rewind-id", rewind_id, "--pipeline", self.shop.pipeline, "--request", asked
        )

    def of_rewind(self, step: str, rewind_id: str) -> Spent:
        """Run one more step of a rewind."""
        return self.step(step, "--rewind-id", rewind_id)

    def abort(self, rewind_id: str) -> None:
        """Take a rewind back, so that another may begin."""
        self.step("abort", "--rewind-id", rewind_id, "--pipeline", self.shop.pipeline, "--reason=measured")


@contextmanager
def ground(records: int) -> Iterator[Ground]:
    """Yield a ground that is gone afterwards."""
    WORK.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=WORK))
    running = local_broker.start(folder, jars=JARS)
    try:
        (folder / "pipelines").mkdir()
        places = {"REWIND_HOME": folder / "home", "REWIND_PIPELINES": folder / "pipelines", "REWIND_JARS": JARS}
        places |= {"REWIND_JOBS": PROJECT / "jobs"}
        chosen = {name: str(place) for name, place in places.items()}
        yield Ground(from_environment({**chosen, "REWIND_KAFKA_BOOTSTRAP": running.bootstrap}), records)
    finally:
        running.kill()
        shutil.rmtree(folder, ignore_errors=True)
