"""What the issue `secure` asks to be shown at full length; its other lines are marked in the tiers.

`make accept WHAT=secure` runs both.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from kafka import KafkaAdminClient

from rewind.control import announce, database, supervise
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
    figure: Figure, tmp_path: Path, jars: Path, make_settings: Callable[..., Settings], listener: str, like: str
) -> None:
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
        options = broker.written("options", broker.options(listener))
        places = {"REWIND_PIPELINES": str(folder), "REWIND_KAFKA_OPTIONS_FILE": str(options)}
        settings = make_settings(broker.addresses[listener], **places)
        shop = Workshop(settings, "life", 2, outside=broker.inner, **({"like": like} if like else {}))
        try:
            counts = lived((Counting if like else Life)(shop, ()))
        finally:
            database.upgrade(settings.registry_url)
            supervise.stop_all(settings, timeout=20)
    figure(f"life_{listener}{'_with_state' if like else ''}", counts)


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
