"""One KRaft broker on loopback, from jars, for the local stack and for tests."""

from __future__ import annotations

import base64
import functools
import os
import uuid
from dataclasses import dataclass
from pathlib import Path

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from rewind.core.errors import RewindError
from rewind.local import ports, processes, readiness
from rewind.local.processes import Command, Process
from rewind.local.readiness import WAITS
from rewind.local.waiting import Waiting
from rewind.runtime.drivers import jvm

NAME = "broker"
PORT_FIELD = "REWIND_KAFKA_PORT"
CONTROLLER_FIELD = "controller"
STOP_SECONDS = 15

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={data}
auto.create.topics.enable=false
# One broker, so one replica of everything.
default.replication.factor=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# What is deleted should be gone soon: tests and the demo look.
file.delete.delay.ms=1000
log.segment.delete.delay.ms=1000
log.cleaner.backoff.ms=1000
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
"""

LOGGING = """\
<Configuration status="error">
  <Appenders>
    <Console name="out"><PatternLayout pattern="%d %p %m (%c{1})%n"/></Console>
  </Appenders>
  <Loggers>
    <Root level="warn"><AppenderRef ref="out"/></Root>
    <Logger name="kafka.server.KafkaRaftServer" level="info"/>
  </Loggers>
</Configuration>
"""


@dataclass(frozen=True)
class Broker:
    """A running broker.

    Attributes:
        port: Port of its listener for clients.
        process: Its process.
    """

    port: int
    process: Process

    @property
    def bootstrap(self) -> str:
        """Address for clients, `host:port`."""
        return f"{ports.HOST}:{self.port}"

    def stop(self) -> None:
        """Stop it in order, its data kept."""
        processes.stop([self.process], STOP_SECONDS)

    def kill(self) -> None:
        """Kill it, as a crash does, its data kept."""
        processes.kill([self.process])


def start(home: Path, port: int | None = None, *, jars: Path | None = None, waits: Waiting = WAITS) -> Broker:
    """Return the broker of `home`, started unless it runs, and answering.

    Args:
        home: Folder whose `kafka/`, `logs/` and `stack/` are the broker's.
        port: Port of its listener; None takes that of last time, else a free one.
        jars: Folder that set-up filled, `home/jars` by default.
        waits: How to wait for it.

    Raises:
        RefusedError: The port is taken, or Java or the jars are missing.
        RewindError: It died or stood still before it answered.
    """
    broker = _running(home, port) or _start(home, port, jars or home / "jars", waits)
    answers = functools.partial(is_answering, broker.bootstrap)
    readiness.wait_for(answers, "an answer of the broker", broker.process, waits)
    return broker


def is_answering(bootstrap: str) -> bool:
    """Tell whether a broker at the address answers a request."""
    try:
        admin = KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=2000, bootstrap_timeout_ms=2000)
    except (KafkaError, OSError):
        return False
    try:
        return bool(admin.describe_cluster()["brokers"])
    except (KafkaError, OSError, KeyError):
        return False
    finally:
        admin.close()


def find(home: Path) -> Broker | None:
    """Return the broker of `home` if it runs, else None."""
    process = processes.load(NAME, home / "stack")
    port = ports.remembered(PORT_FIELD, home / "stack" / "ports.json")
    return Broker(port, process) if process is not None and process.alive and port is not None else None


def _running(home: Path, port: int | None) -> Broker | None:
    broker = find(home)
    if broker is not None and port not in (None, broker.port):
        broker.stop()
        return None
    return broker


def _start(home: Path, port: int | None, jars: Path, waits: Waiting) -> Broker:
    class_path = jvm.kafka_class_path(jars)
    state = home / "stack" / "ports.json"
    chosen = ports.choose(PORT_FIELD, port, state)
    properties = _configure(home / "kafka", chosen, ports.choose(CONTROLLER_FIELD, None, state))
    _format(properties, class_path, waits)
    process = processes.ensure([_command(home, properties, class_path)], home / "stack")[0]
    return Broker(chosen, process)


def _configure(folder: Path, port: int, controller: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "log4j2.xml").write_text(LOGGING)
    properties = folder / "server.properties"
    values = {"host": ports.HOST, "port": port, "controller": controller, "data": folder / "data"}
    properties.write_text(PROPERTIES.format(**values))
    return properties


def _format(properties: Path, class_path: str, waits: Waiting) -> None:
    if (properties.parent / "data" / "meta.properties").exists():
        return
    cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A")
    tool = [*_java(properties.parent, class_path, "-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool", "format"]
    command = [*tool, "-t", cluster, "-c", str(properties)]
    code, said = readiness.run(command, os.environ, "the broker's storage", waits)
    if code:
        raise RewindError(f"the broker's storage could not be formatted: {said}")


def _command(home: Path, properties: Path, class_path: str) -> Command:
    argv = [*_java(properties.parent, class_path, "-Xms256m", "-Xmx512m"), "kafka.Kafka", str(properties)]
    # Nothing of the caller's settings: they would restart the broker whenever `up` comes from another shell.
    environment = {key: os.environ[key] for key in ("PATH", "HOME", "TZ", "LANG") if key in os.environ}
    return Command(NAME, argv, environment, home / "logs" / f"{NAME}.log", properties.parent, [properties])


def _java(folder: Path, class_path: str, *options: str) -> list[str]:
    logging = f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}"
    return [str(jvm.java_home() / "bin" / "java"), *options, logging, "-cp", class_path]
