"""Steps of a rewind on a broker with rights by list, run without each right in turn."""

from __future__ import annotations

import re
from typing import Any

from kafka import KafkaAdminClient

from rewind.registry import generations, manifest
from rewind.runtime import announce
from rewind.runtime.kafka.broker import Broker
from tests.scenarios.crashes import Life
from tests.support import secured

LEAST = {
    "topic": {
        "{source}": ("Read", "DescribeConfigs"),
        "{output}": ("Create", "Write", "Read", "DescribeConfigs", "Delete"),
        announce.TOPIC: ("Create", "Write", "Read", "DescribeConfigs"),
    },
    "group": {"{name}-": ("Read", "Describe", "Delete"), "mirror-{source}": ("Read", "Describe")},
}
"""The rights that a pipeline needs; names stand for all that begin so."""
OF_STEPS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "plan": (
        ("topic", "{source}", "Read"),
        ("topic", "{source}", "DescribeConfigs"),
        ("topic", "{output}", "Create"),
        ("topic", "{output}", "Read"),
        ("topic", "{output}", "DescribeConfigs"),
        ("topic", announce.TOPIC, "Write"),
        ("topic", announce.TOPIC, "Read"),
        ("group", "{name}-", "Read"),
        ("group", "{name}-", "Delete"),
    ),
    "backfill": (
        ("topic", "{source}", "Read"),
        ("topic", "{source}", "DescribeConfigs"),
        ("topic", "{output}", "Write"),
        ("topic", "{output}", "Read"),
        ("topic", "{output}", "DescribeConfigs"),
        ("topic", "{output}", "Delete"),
        ("group", "{name}-", "Read"),
        ("group", "{name}-", "Delete"),
    ),
    "validate": (("topic", "{output}", "Read"), ("topic", "{output}", "DescribeConfigs")),
    "cut_over": (
        ("topic", "{output}", "Read"),
        ("topic", "{output}", "DescribeConfigs"),
        ("topic", announce.TOPIC, "Write"),
        ("topic", announce.TOPIC, "Read"),
    ),
    "collect_garbage": (
        ("topic", "{output}", "DescribeConfigs"),
        ("topic", "{output}", "Delete"),
        ("group", "{name}-", "Delete"),
    ),
}
"""The rights that a step asks for; it does without all others."""


class Watched:
    """A life whose steps run as a user from whom rights are taken, while its streams keep all of theirs."""

    def __init__(self, life: Life, broker: secured.Secured, admin: KafkaAdminClient) -> None:
        self.admin, self.shop = admin, life.shop
        self.given = {"source": "life-in", "output": "life-out", "name": "life"}
        options = broker.written("of-steps", broker.options("PLAIN"))
        self.environment = {
            "REWIND_KAFKA_OPTIONS_FILE": str(options),
            "REWIND_KAFKA_BOOTSTRAP": broker.addresses["PLAIN"],
        }
        self.all = {(kind, name, right) for kind, names in LEAST.items() for name in names for right in names[name]}
        for one in self.all:
            self.grant(one)

    def grant(self, one: tuple[str, str, str]) -> None:
        kind, name, right = one
        secured.grant(self.admin, "bob", right, kind, name.format(**self.given), prefix=True)

    def revoke(self, one: tuple[str, str, str]) -> None:
        kind, name, right = one
        secured.revoke(self.admin, "bob", right, kind, name.format(**self.given))

    def world(self) -> dict[str, Any]:
        """What may not have changed when a step was refused."""
        with self.shop.registry() as connection:
            pointer = generations.live(connection, "life")
            jobs = generations.all_of(connection, "life")
            ledger = [line for job in jobs for line in manifest.ledger(connection, job.job_id)]
        topics = sorted(name for name in self.admin.list_topics() if not name.startswith("__"))
        made = [name for name in topics if name.startswith("life-out-g2")]
        broker = Broker(self.shop.settings)
        ends = {name: broker.topic(name).latest for name in made}  # type: ignore[union-attr]
        folders = sorted(path.name for path in self.shop.settings.generations.iterdir())
        return {"pointer": pointer, "jobs": [(j.job_id, j.state) for j in jobs], "ledger": ledger} | {
            "topics": topics,
            "ends": ends,
            "folders": folders,
        }

    def step(self, step: str, *arguments: str) -> int:
        """Run a step without each right that it asks for, then without any other; return how often it was refused."""
        for kind, name, right in OF_STEPS[step]:
            before = self.world()
            self.revoke((kind, name, right))
            ended = self.shop.submit(step, *arguments, environment=self.environment)
            self.grant((kind, name, right))
            of = re.escape(name.format(**self.given))
            told = re.search(rf"{kind}: the broker denies (\w+) on {of}\S* to User:bob", ended.output)
            assert ended.code != 0, f"{step} did without {right} on {kind} {name}"
            # Without the right that implies it a thing is not even seen.
            assert told, f"{step} without {right} on {kind} {name}: {ended.output}"
            assert told[1] in (right, "Describe"), told[0]
            assert "kafka-acls" in ended.output
            assert self.world() == before, f"{step} without {right} on {kind} {name}"
        others = self.all - {*OF_STEPS[step]}
        for one in others:
            self.revoke(one)
        ended = self.shop.submit(step, *arguments, environment=self.environment)
        assert ended.code == 0, ended.output[-4_000:]
        for one in others:
            self.grant(one)
        return len(OF_STEPS[step])
