"""Two pipelines in one installation, and what of the page belongs to which: for the tests of who sees what."""

from __future__ import annotations

import json

from sqlalchemy import insert, select

from rewind.core.settings import Settings
from rewind.registry import database, schema
from tests.support import page_states
from tests.support.page_states import LIVE, NAME, REWIND_ID, TOPIC

OTHER = "orders"
RENAMED = {NAME: OTHER, TOPIC: "baskets", REWIND_ID: "rw-9876543210", page_states.plan().id: "d2c1b0a98765"}
"""What stands in the rows of the second pipeline instead of the first one's."""
OF_ONE = (
    f"api/rewinds/{REWIND_ID}",
    f"api/rewinds/{REWIND_ID}/evidence/verdict-1.json",
    f"api/rewinds/{REWIND_ID}/docs/data-docs-1/index.html",
    "api/rewinds/NIGHT/evidence/night.json",
    f"api/generations/{LIVE}",
    f"api/compare/{REWIND_ID}/{REWIND_ID}",
    "api/compare/NIGHT/NIGHT",
    f"api/run?dag_id=rewind_{NAME}&run_id=r1",
    f"api/streams/{LIVE}/logs/driver.1.log",
    f"api/streams/mirror-{TOPIC}/logs/driver.1.log",
    f"pointer/{NAME}",
)


def renamed(value):
    if isinstance(value, dict | list):
        return json.loads(renamed(json.dumps(value)))
    if isinstance(value, str):
        for one, other in RENAMED.items():
            value = value.replace(one, other)
    return value


TRICKS = [
    (f"api/rewinds/{renamed(REWIND_ID)}?dag_id=rewind_visits", {}),
    (f"api/rewinds/{renamed(REWIND_ID)}/evidence/verdict-1.json?dag_id=rewind_visits", {}),
    ("api/overview?dag_id=rewind_orders", {}),
    ("metrics?dag_id=rewind_orders", {}),
    ("pointer/orders?dag_id=rewind_visits", {}),
    ("api/run?dag_id=rewind_orders&run_id=r1&dag_id=rewind_visits", {}),
    ("api/run?dag_id=~&run_id=r1", {}),
    (f"api/compare/{REWIND_ID}/{renamed(REWIND_ID)}", {}),
    (f"api/compare/{renamed(REWIND_ID)}/{REWIND_ID}", {}),
    (f"api/rewinds/{REWIND_ID}/evidence/..%2F{renamed(REWIND_ID)}%2Fverdict-1.json", {}),
    (f"api/rewinds/{REWIND_ID}/docs/..%2F{renamed(REWIND_ID)}%2Fverdict-1.json", {}),
    (f"api/rewinds/{REWIND_ID}/docs/data-docs-1/..%2F..%2F{renamed(REWIND_ID)}%2Fdata-docs-1%2Findex.html", {}),
    (f"api/rewinds/{REWIND_ID}%2F..%2F{renamed(REWIND_ID)}", {}),
    (f"api/streams/{LIVE}/logs/..%2F..%2Forders-g1%2Fdriver.1.log", {}),
    (f"api/streams/{LIVE}%2F..%2Forders-g1/logs/driver.1.log", {}),
    ("api/streams/mirror-baskets/logs/driver.1.log", {}),
    ("api/generations/ORDERS-G1", {}),
    ("api/generations/orders-g1%00", {}),
    (f"api/rewinds/{renamed(REWIND_ID)}", {"X-Forwarded-User": "admin"}),
    (f"api/rewinds/{renamed(REWIND_ID)}", {"X-HTTP-Method-Override": "HEAD"}),
    (f"api/rewinds/{renamed(REWIND_ID)}", {"If-None-Match": "*"}),
]


def seed(site: Settings) -> str:
    """Give each of two pipelines a rewind, nights, evidence and logs; return the id of a night of the first."""
    page_states.seed(site, "failed verdict")
    page_states.declare(site, "orders")
    (site.pipelines / "orders" / "pipeline.yaml").write_text(renamed(page_states.YAML))
    with database.writing(site.registry_url) as connection:
        for table in schema.metadata.sorted_tables:
            for row in connection.execute(select(table)).mappings().all():
                copied = {name: renamed(value) for name, value in row.items()}
                if copied != dict(row):
                    numbered = table.autoincrement_column
                    copied.pop(numbered.name if numbered is not None else "", None)
                    connection.execute(insert(table).values(**copied))
        night = connection.scalar(select(schema.nights.c.replay_id).where(schema.nights.c.pipeline == NAME).limit(1))
    logs = site.home / "logs" / "streams"
    for path in (
        site.evidence / REWIND_ID / "verdict-1.json",
        site.evidence / REWIND_ID / "data-docs-1" / "index.html",
        site.evidence / night / "night.json",
        logs / LIVE / "driver.1.log",
        logs / f"mirror-{TOPIC}" / "driver.1.log",
    ):
        for text, written in ((NAME, path), ("orders", type(path)(renamed(str(path))))):
            written.parent.mkdir(parents=True, exist_ok=True)
            written.write_text(f"a row of {text}")
    return night
