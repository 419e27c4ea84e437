"""What the issue `secure` asks to be shown at full length; its other lines are marked in the tiers.

`make accept WHAT=secure` runs both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from rewind.control import announce, database, leases, streams, supervise
from rewind.core.settings import Settings
from tests.scenarios.crashes import NOTHING_LEFT, REWIND, Life
from tests.support import secured
from tests.support.workshop import Workshop

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(3_600)]

Figure = Callable[[str, object], None]
RECORDS = 300
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
