"""What the issue `secure` asks to be shown at full length; its other lines are marked in the tiers.

`make accept WHAT=secure` runs both.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient

from rewind.control import announce, database, deaths, generations, leases, manifest, streams, supervise
from rewind.control.broker import Broker
from rewind.control.database import now
from rewind.core.errors import RetryError
from rewind.core.settings import Settings
from tests.scenarios.crashes import NOTHING_LEFT, REWIND, Life
from tests.support import postgres, secured
from tests.support.host_agent import FASTER, OWNER, Host
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]
RECORDS = 300
LOOKS = 200
LEAST = {
    "topic": {
        "{source}": ("Read", "DescribeConfigs"),
        "{output}": ("Create", "Write", "Read", "DescribeConfigs", "Delete"),
        announce.TOPIC: ("Create", "Write", "Read", "DescribeConfigs"),
    },
    "group": {"{name}-": ("Read", "Describe", "Delete"), "mirror-{source}": ("Read", "Describe")},
}
"""The rights that a pipeline needs; names stand for all that begin so."""


PLANTED = {
    "AIRFLOW__CORE__FERNET_KEY": "planted-fernet",
    "AIRFLOW__API_AUTH__JWT_SECRET": "planted-jwt",
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:planted-database@db/airflow",
    "AIRFLOW_CONN_KAFKA": '{"password": "planted-connection"}',
    "REWIND_AIRFLOW_PASSWORD": "planted-login",
}
"""What a submit's parent has in its environment, and no driver may get."""
OF_LOGINS = (secured.PASSWORD, secured.KEY_PASSWORD, secured.CLIENT_SECRET)


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
        ("topic", announce.TOPIC, "Write"),
        ("topic", announce.TOPIC, "Read"),
    ),
    "collect_garbage": (
        ("topic", "{output}", "Delete"),
        ("group", "{name}-", "Delete"),
    ),
}
"""The rights that a step asks for; it does without all others."""


class Counting(Life):
    """A life of a pipeline with state."""

    def begin(self, records: int) -> None:
        for p in range(2):
            at = (f"2025-09-04T{n // 60:02}:{n % 60:02}:00" for n in range(p, records, 2))
            bodies = (
                {"event_id": f"v{p}-{n}", "visit_id": n, "user_id": n % 5, "event_time": t} for n, t in enumerate(at)
            )
            self.shop.produce(*((None, json.dumps(body).encode()) for body in bodies), partition=p)
        self.live()


@pytest.mark.parametrize(
    ("listener", "like"),
    [("SCRAM", ""), ("SCRAM", "visits_window_counter"), ("MUTUAL", ""), ("OAUTH", "")],
)
def test_shows_1_a_life_on_a_secured_broker(
    figure: Figure,
    tmp_path: Path,
    jars: Path,
    make_settings: Callable[..., Settings],
    monkeypatch: pytest.MonkeyPatch,
    listener: str,
    like: str,
) -> None:
    for name, value in PLANTED.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SPARK_CONF_DIR", str(with_event_log(tmp_path)))
    folder = tmp_path / "pipelines"
    folder.mkdir()
    with secured.running(tmp_path / "secured", jars) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.inner)
        broker.logins(admin)
        given = {"source": "life-in", "output": "life-out", "name": "life"}
        for kind, names in LEAST.items():
            for name, rights in names.items():
                for right in rights:
                    secured.grant(admin, secured.USERS[listener], right, kind, name.format(**given), prefix=True)
        admin.close()
        options = broker.written("options", broker.options(listener))
        places = {"REWIND_PIPELINES": str(folder), "REWIND_KAFKA_OPTIONS_FILE": str(options)}
        settings = make_settings(broker.addresses[listener], **places)
        shop = Workshop(settings, "life", 2, outside=broker.inner, **({"like": like} if like else {}))
        try:
            counts = lived((Counting if like else Life)(shop, ()))
            leaks = [*in_files(settings.home), *in_files(tmp_path / "events"), *in_processes(settings)]
        finally:
            database.upgrade(settings.registry_url)
            supervise.stop_all(settings, timeout=20)
    figure(f"life_{listener}{'_with_state' if like else ''}", counts)
    assert any((tmp_path / "events").rglob("*")), "what Spark logs was looked through"
    assert leaks == []


class Watched:
    """A life whose steps run as a user from whom rights are taken, while its streams keep all of theirs."""

    def __init__(self, life: Life, broker: secured.Secured, admin: KafkaAdminClient) -> None:
        self.life, self.admin, self.shop = life, admin, life.shop
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


def test_shows_2_each_least_right_is_missed_in_each_step(
    figure: Figure, tmp_path: Path, jars: Path, make_settings: Callable[..., Settings]
) -> None:
    folder = tmp_path / "pipelines"
    folder.mkdir()
    with secured.running(tmp_path / "secured", jars) as broker:
        admin = KafkaAdminClient(bootstrap_servers=broker.inner)
        broker.logins(admin)
        settings = make_settings(broker.inner, REWIND_PIPELINES=str(folder))
        life = Life(Workshop(settings, "life", 2, outside=broker.inner), ())
        try:
            life.begin(RECORDS)
            watched = Watched(life, broker, admin)
            asked = json.dumps({"dry_run": False, "same_code": True})
            refused = {"plan": watched.step("plan", "--rewind-id", REWIND, "--pipeline", "life", "--request", asked)}
            life.step("spin_up", "--rewind-id", REWIND)
            refused["backfill"] = watched.step("backfill", "--rewind-id", REWIND)
            job = life.candidate()
            life.shop.start(job)
            life.shop.caught_up(job)
            refused["validate"] = watched.step("validate", "--rewind-id", REWIND)
            life.shop.approve(REWIND)
            refused["cut_over"] = watched.step("cut_over", "--rewind-id", REWIND)
            life.roll_back()
            with life.shop.registry() as connection:
                generations.set_grace(connection, job, now())
            refused["collect_garbage"] = watched.step("collect_garbage")
            assert life.left_of(job) == NOTHING_LEFT
        finally:
            supervise.stop_all(settings, timeout=20)
            admin.close()
    figure("rights_missed_in_steps", refused)


class Fleet:
    """Two hosts with a supervisor each and one with the page, over one registry; a driver on one of the first two."""

    def __init__(self, settings: Settings, folder: Path, seed: int) -> None:
        self.settings, self.folder, self.draw = settings, folder, random.Random(seed)
        self.boots = 0
        self.hosts = {name: self.up(name) for name in ("a", "b", "page")}
        self.looks = self.deaths = self.failures = self.starts = 0
        self.slowest = 0.0

    def up(self, name: str) -> Host:
        self.boots += 1
        return Host(name, f"boot-{self.boots}", self.folder, self.settings)

    def look(self, name: str) -> None:
        seen = self.hosts[name].asks("look")
        self.looks += 1
        self.failures += seen["failed"]
        assert self.failures <= self.deaths, f"{name} counted a failure of a driver that had not ended"
        self.starts += seen["started"]
        if seen["started"] and self.draw.random() < 0.7:
            self.alive()

    def views(self) -> dict[str, str]:
        return {name: host.asks("view") for name, host in self.hosts.items()}

    def until(self, shown: Callable[[dict[str, str]], bool], seconds: float) -> float:
        """Wait until the hosts show something, and return how long that took."""
        began = time.monotonic()
        while not shown(views := self.views()):
            assert time.monotonic() - began < seconds, views
            time.sleep(0.02)
        return time.monotonic() - began

    def dead(self) -> None:
        """Wait until all hosts show the driver as dead, or as about to be started again."""
        took = self.until(lambda views: set(views.values()) <= {"dead", "waiting"}, 2 * 60 / FASTER)
        self.slowest = max(self.slowest, took * FASTER)

    def alive(self) -> None:
        """Wait until all hosts show that it works."""
        self.until(lambda views: sorted(views.values()) == ["alive", *["elsewhere"] * (len(views) - 1)], 30)

    def where(self) -> str:
        return next(name for name, state in self.views().items() if state == "alive")

    def freeze(self, host: Host) -> None:
        """Freeze the driver of a host; not while it holds a file that nobody can take from it."""
        host.asks(f"signal {signal.SIGSTOP:d}")
        while self.settings.registry_url.startswith("sqlite") and not self.free():
            host.asks(f"signal {signal.SIGCONT:d}")
            time.sleep(self.draw.random() / 100)
            host.asks(f"signal {signal.SIGSTOP:d}")

    def free(self) -> bool:
        try:
            with database.transaction(self.settings.registry_url, 200):
                return True
        except RetryError:
            return False

    def something_happens(self) -> str:
        name, did = self.where(), self.draw.choice(["nothing", "kill", "freeze", "cut", "vanish"])
        host = self.hosts[name]
        other = {"a": "b", "b": "a"}[name]
        if did == "kill":
            assert len(host.asks(f"signal {signal.SIGKILL:d}")) == 1
            self.deaths += 1
            # The other one may look first, and must wait for this one.
            self.look(other)
            self.dead()
        elif did in ("freeze", "cut"):
            self.freeze(host) if did == "freeze" else host.cut(off=True)
            self.look(self.draw.choice("ab"))
            self.dead()
            self.look(other)
            host.asks(f"signal {signal.SIGCONT:d}") if did == "freeze" else host.cut(off=False)
            self.alive()
        elif did == "vanish":
            host.vanish()
            self.deaths += 1
            del self.hosts[name]
            self.look(other)
            self.dead()
            with database.transaction(self.settings.registry_url) as connection:
                token = deaths.held(connection, OWNER).token
            deaths.declare(self.settings, OWNER, token, "ann", "its host is gone")
            self.look(other)
            self.hosts[name] = self.up(name)
        return did

    def end(self) -> None:
        for host in self.hosts.values():
            host.vanish()

    def writers(self) -> list[tuple[float, float, int]]:
        """Return when each driver wrote first and last, and with which token, in order."""
        spans: dict[tuple[str, str, str], list[float]] = {}
        for line in (self.folder / "writes").read_text().splitlines():
            at, *who = line.split()
            spans.setdefault((who[0], who[1], who[2]), []).append(float(at))
        return sorted((min(at), max(at), int(token)) for (token, _, _), at in spans.items())


@pytest.mark.parametrize("database_of", ["SQLite", "PostgreSQL"])
def test_shows_5_two_supervisors_and_a_page_on_hosts_of_their_own(
    figure: Figure, tmp_path: Path, make_settings: Callable[..., Settings], database_of: str
) -> None:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/registry.db"
        if database_of == "PostgreSQL":
            url = postgres.another(stack.enter_context(postgres.server()), "rewind")
        settings = make_settings(REWIND_REGISTRY_URL=url)
        database.upgrade(settings.registry_url)
        with database.transaction(settings.registry_url) as connection:
            streams.wish(connection, OWNER, streams.GENERATION, streams.RUN)
        fleet = Fleet(settings, tmp_path, 22)
        stack.callback(fleet.end)
        did: Counter[str] = Counter()
        while fleet.looks < LOOKS:
            fleet.look(fleet.draw.choice("ab"))
            if "alive" in fleet.views().values():
                did[fleet.something_happens()] += 1
        writers = fleet.writers()
        assert all(earlier[1] < later[0] for earlier, later in itertools.pairwise(writers)), "two drivers wrote"
        assert [token for _, _, token in writers] == sorted({token for _, _, token in writers})
        assert fleet.slowest <= 60
    figure(f"hosts_{database_of}_happened", dict(did))
    figure(f"hosts_{database_of}_looks_starts_deaths", [fleet.looks, fleet.starts, fleet.deaths])
    figure(f"hosts_{database_of}_slowest_dead_shown_s", round(fleet.slowest))


def with_event_log(folder: Path) -> Path:
    """Return a folder of Spark's configuration that has each application write its events below a folder."""
    for name in ("conf", "events"):
        (folder / name).mkdir()
    settings = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    settings["spark.eventLog.dir"] = f"file:{folder}/events"
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "conf" / "spark-defaults.conf").write_text(text)
    return folder / "conf"


def secrets() -> list[bytes]:
    """Return each secret as it is, and as a JSON text and the line of a login hold it."""
    plain = [value for text in PLANTED.values() for value in re.findall(r"planted-\w+", text)] + list(OF_LOGINS)
    return [form.encode() for value in plain for form in {value, json.dumps(value)[1:-1]}]


def in_files(folder: Path) -> list[tuple[str, bytes]]:
    """Return which files below a folder hold which secret: registry, logs, evidence, bundles, checkpoints, tables."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [(str(path), secret) for path in files for secret in secrets() if secret in path.read_bytes()]


def in_processes(settings: Settings) -> list[tuple[str, bytes]]:
    """Return which drivers hold which secret in their environment or arguments."""
    with database.transaction(settings.registry_url) as connection:
        held = [leases.read(connection, stream.owner) for stream in streams.all_of(connection)]
    pids = [process.pid for lease in held if lease and lease.holder for process in lease.holder.processes]
    assert pids, "live runs"
    places = [Path(f"/proc/{pid}/{name}") for pid in pids for name in ("environ", "cmdline")]
    return [(str(place), secret) for place in places for secret in secrets() if secret in place.read_bytes()]


def lived(life: Life) -> dict[str, int]:
    """Deploy, rewind, switch, roll back and collect; return the verdict's rows by class."""
    life.begin(RECORDS)
    new = life.rewind()
    counts = life.shop.verdict(REWIND).counts
    assert counts["rows"] == counts["equal"] > 0
    life.roll_back()
    assert life.states() == {"life-g1": "live", new: "standby"}
    life.collect(new)
    assert life.left_of(new) == NOTHING_LEFT
    assert life.epochs() == [1, 2, 3]
    return {name: n for name, n in counts.items() if n}
