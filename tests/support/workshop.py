"""A pipeline of a test's own, driven by the product's jobs through real spark-submits, without Airflow."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from rewind.core import names, offsets
from rewind.core.offsets import Vector
from rewind.core.planning.plan import Plan
from rewind.core.settings import Settings
from rewind.declared import expectations, pipelines
from rewind.registry import database, generations, leases, progress, rewinds, streams, verdicts
from rewind.registry.database import now, writing
from rewind.runtime.drivers import bundle, submit, supervise
from rewind.runtime.drivers.bundle import Bundle
from rewind.runtime.kafka.broker import Broker

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 240.0
FEW = 100_000
"""How many records a main is told to work on: tests have few."""


@dataclass(frozen=True)
class Ended:
    """How a submitted main ended: its exit code and all it printed."""

    code: int
    output: str


@dataclass(frozen=True)
class Record:
    """A record of an output topic, headers as texts."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, str]
    at: datetime


class Workshop:
    """One pipeline on one topic, in the places that the settings name.

    Attributes:
        patience: Seconds within which a main must end.
        outside: Address by which producers and readers of the test reach the broker.
    """

    patience = PATIENCE

    def __init__(self, settings: Settings, name: str, partitions: int, **declared: Any) -> None:
        self.settings = settings
        self.pipeline = name
        self.topic = declared.pop("topic", f"{name}-in")
        self.outside = declared.pop("outside", settings.bootstrap)
        self.mirror = names.mirror_owner(self.topic)
        database.upgrade(settings.registry_url)
        declare(settings.pipelines, name, self.topic, **declared)
        self.create_topic(self.topic, partitions)

    def create_topic(self, topic: str, partitions: int, **configs: str) -> None:
        with self._admin() as admin:
            # Records of the documents' year would fall to a retention by time at once.
            spec = {"num_partitions": partitions, "configs": {"retention.ms": "-1", **configs}}
            admin.create_topics({topic: spec}, wait_for_metadata=True)

    def delete_topic(self, topic: str) -> None:
        found = Broker(self.settings).topic(topic)
        assert found is not None
        Broker(self.settings).delete_topic(topic, found.id)

    def add_partitions(self, count: int) -> None:
        with self._admin() as admin:
            admin.create_partitions({self.topic: count})
        wait_for("the new partitions", lambda: len(self.end()) == count)

    def produce(
        self,
        *records: tuple[bytes | None, bytes | None],
        partition: int = 0,
        topic: str | None = None,
        at: Callable[[int], datetime] | None = None,
    ) -> None:
        """Write records; `at` gives the Kafka timestamp of the n-th, which else is now."""
        producer = KafkaProducer(bootstrap_servers=self.outside, linger_ms=20)
        for n, (key, value) in enumerate(records):
            stamp = None if at is None else int(at(n).timestamp() * 1000)
            producer.send(topic or self.topic, key=key, value=value, partition=partition, timestamp_ms=stamp)
        producer.flush()
        producer.close()

    def end(self) -> Vector:
        found = Broker(self.settings).topic(self.topic)
        assert found is not None
        return found.latest

    def submit(
        self,
        job: str,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        patience: float | None = None,
        code: Bundle | None = None,
    ) -> Ended:
        """Submit a main of the code as it is now, or of a bundle, and wait for its end."""
        code = code or bundle.build(self.settings, self.pipeline)
        made = submit.make(self.settings, code, job, arguments, name=job, environment=environment, records=FEW)
        done = subprocess.run(
            submit.command(made),
            env=submit.environment(made),
            capture_output=True,
            text=True,
            timeout=patience or self.patience,
            check=False,
        )
        return Ended(done.returncode, done.stdout + done.stderr)

    def run(self, job: str, *arguments: str, patience: float | None = None) -> Ended:
        ended = self.submit(job, *arguments, patience=patience)
        assert ended.code == 0, ended.output[-4000:]
        return ended

    def deploy(self, start: str = "earliest") -> str:
        self.run("deploy", "--pipeline", self.pipeline, "--from", start)
        with self.registry() as connection:
            found = generations.live(connection, self.pipeline)
        assert found is not None
        return found[0].job_id

    def plan(self, rewind_id: str, **parameters: Any) -> Ended:
        request = json.dumps({"dry_run": False, **parameters})
        return self.submit("plan", "--rewind-id", rewind_id, "--pipeline", self.pipeline, "--request", request)

    def planned(self, rewind_id: str, **parameters: Any) -> Plan:
        ended = self.plan(rewind_id, **parameters)
        assert ended.code == 0, ended.output[-4000:]
        with self.registry() as connection:
            return rewinds.read_plan(connection, rewinds.read(connection, rewind_id).plan_id)

    def step(self, step: str, rewind_id: str) -> Ended:
        return self.run(step, "--rewind-id", rewind_id)

    def abort(self, rewind_id: str, reason: str = "tested") -> Ended:
        return self.run("abort", "--rewind-id", rewind_id, "--pipeline", self.pipeline, f"--reason={reason}")

    def approve(self, rewind_id: str, reason: str = "") -> None:
        with self.registry() as connection:
            verdicts.answer(connection, rewind_id, "approve", "tester", reason)

    def verdict(self, rewind_id: str) -> verdicts.Verdict:
        with self.registry() as connection:
            found = verdicts.newest(connection, rewind_id)
        assert found is not None
        return found

    def wish(self, owner: str, wanted: str = streams.RUN) -> None:
        kind = streams.MIRROR if owner == self.mirror else streams.GENERATION
        with self.registry() as connection:
            streams.wish(connection, owner, kind, wanted)

    def start(self, owner: str) -> None:
        """Wish a stream to run and supervise it until its driver holds its lease."""
        self.wish(owner)
        wait_for(f"{owner} running", lambda: self.look(owner) == supervise.RUNNING)

    def stop(self, owner: str) -> None:
        """Drain a stream and wait until its driver has ended."""
        self.wish(owner, streams.DRAIN)
        supervise.end(self.settings, owner)
        # Its supervisor sees the end, so that a later start does not count it as a failure.
        assert self.look(owner) == supervise.DRAINED

    def look(self, owner: str) -> str:
        sighting = supervise.look(self.settings, owner)
        assert sighting.state != supervise.QUARANTINED, sighting.message
        return sighting.state

    def position(self, owner: str) -> Vector:
        with self.registry() as connection:
            found = generations.find(connection, owner)
            return progress.position(connection, owner, found.handoff if found else None)

    def caught_up(self, owner: str) -> None:
        """Wait until a stream has read to the end of the topic, supervised meanwhile."""
        end = self.end()

        def there() -> bool:
            self.look(owner)
            return offsets.reached(self.position(owner), end)

        wait_for(f"{owner} at {end}", there)

    def holder(self, owner: str) -> leases.Holder | None:
        with self.registry() as connection:
            found = leases.read(connection, owner)
        return found.holder if found and found.holder and leases.alive(found.holder) else None

    def read(self, topic: str) -> list[Record]:
        """Return all records of a topic, by partition and offset."""
        found = Broker(self.settings).topic(topic)
        assert found is not None, topic
        consumer = KafkaConsumer(
            bootstrap_servers=self.outside, enable_auto_commit=False, isolation_level="read_committed"
        )
        places = [TopicPartition(topic, p) for p in found.latest]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        records: list[Any] = []

        def drained() -> bool:
            records.extend(r for batch in consumer.poll(200).values() for r in batch)
            return all(consumer.position(tp) >= found.latest[tp.partition] for tp in places)

        wait_for(f"all of {topic}", drained, 60)
        consumer.close()
        return [
            Record(
                partition=r.partition,
                offset=r.offset,
                key=r.key,
                value=r.value,
                headers={k: v.decode() for k, v in r.headers},
                at=datetime.fromtimestamp(r.timestamp / 1000, UTC).replace(tzinfo=None),
            )
            for r in sorted(records, key=lambda r: (r.partition, r.offset))
        ]

    def longest_gap(self, job_id: str, since: datetime) -> float:
        """Return for how long at most a job wrote nothing since an instant (UTC), in seconds."""
        with self.registry() as connection:
            topic = generations.read(connection, job_id).output_topic
        # What a step whose clock was ahead has backfilled is dated in the future, and no stream wrote it.
        at = [since, *sorted(record.at for record in self.read(topic) if since <= record.at <= now())]
        return max(((later - earlier).total_seconds() for earlier, later in itertools.pairwise(at)), default=0.0)

    def edit_logic(self, old: str, new: str) -> None:
        path = self.settings.pipelines / self.pipeline / "logic.py"
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def declared(self) -> Any:
        return pipelines.load(self.settings.pipelines, self.pipeline)

    def registry(self) -> Any:
        return writing(self.settings.registry_url)

    def _admin(self) -> Any:
        return _closing(KafkaAdminClient(bootstrap_servers=self.outside))


class _closing:  # noqa: N801
    def __init__(self, thing: Any) -> None:
        self._thing = thing

    def __enter__(self) -> Any:
        return self._thing

    def __exit__(self, *_: object) -> None:
        self._thing.close()


def declare(folder: Path, name: str, topic: str, **more: Any) -> None:
    """Declare a copy of a pipeline (`like`, or `visits_converter`) under a name and on a topic.

    What `more` names replaces parts of its YAML, but for `output`, the base of the name of its output, `form`, whether
    that is a `topic` or a `table`, and `output_also`, more fields of it. Its expectations come along if `expectations`
    says so: to judge them takes longer than all else of a small validation.
    """
    left_out = ["__pycache__"] if more.pop("expectations", False) else ["__pycache__", expectations.FILE]
    shutil.copytree(
        PROJECT / "include" / "pipelines" / more.pop("like", "visits_converter"),
        folder / name,
        ignore=shutil.ignore_patterns(*left_out),
    )
    shutil.copyfile(PROJECT / "include" / "pipelines" / "__init__.py", folder / "__init__.py")
    path = folder / name / "pipeline.yaml"
    body = yaml.safe_load(path.read_text())
    body["source"]["topic"] = topic
    form = "table" if "table" in body["output"] else "topic"
    fields = {field: value for field, value in body["output"].items() if field != form}
    base = {more.pop("form", form): more.pop("output", f"{name}-out")}
    body["output"] = {**fields, **base, **more.pop("output_also", {})}
    path.write_text(yaml.safe_dump({**body, **more}))


def wait_for(what: str, condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Wait until a condition holds; it is asked again and again, and its failure to come names it."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)
