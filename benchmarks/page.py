"""What the page costs on a large installation: `PYTHONPATH=include .venv/bin/python -m benchmarks.page`.

Prints the time to the first data of a fresh process, and the share of a core that polling takes while nothing changes
and while each stream commits a batch a second. Airflow's own check of a login is not in it.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from fastapi.testclient import TestClient

from rewind.airflow_api.in_process import AirflowPort
from rewind.core.settings import Settings, from_environment
from rewind.registry.database import writing
from rewind.web.app import Access, build
from rewind.web.state import State
from tests.scenarios import page_load
from tests.scenarios.page_load import Ends, Load

LOAD = Load()
INTERVAL, POLLS = 5.0, 8
"""Seconds between the polls of a browser, as in `api.js`, and how many are measured."""
BROWSERS = 3


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = installation(Path(folder))
        page_load.seed(settings, LOAD)
        for name, value in measured(settings).items():
            print(f"{name:32} {value:8.3f}")


def installation(folder: Path) -> Settings:
    places = {"REWIND_HOME": str(folder), "REWIND_PIPELINES": str(folder / "declared")}
    return from_environment({**places, "REWIND_KAFKA_BOOTSTRAP": "127.0.0.1:1"})


def measured(settings: Settings) -> dict[str, float]:
    """Return seconds to the first data, and the shares of a core in percent."""
    client = TestClient(build(State(lambda: settings, lambda _: Ends()), _open(), AirflowPort(lambda: None)))
    begun, spent = time.monotonic(), time.process_time()
    answer = client.get("/api/overview")
    first, of_cpu = time.monotonic() - begun, time.process_time() - spent
    assert len(answer.json()["pipelines"]) == LOAD.pipelines
    return {
        "seconds to the first data": first,
        "of these CPU seconds": of_cpu,
        "% of a core, quiet registry": _share(client, lambda: None),
        "% of a core, busy registry": _share(client, _commits(settings)),
    }


def _share(client: TestClient, between: Callable[[], None]) -> float:
    """Return what polling takes of a core, in percent; what is written between the polls is not counted."""
    tags, spent = [""] * BROWSERS, 0.0
    for _ in range(POLLS):
        for browser, tag in enumerate(tags):
            begun = time.process_time()
            answer = client.get("/api/overview", headers={"If-None-Match": tag})
            spent += time.process_time() - begun
            assert answer.status_code in (200, 304)
            tags[browser] = answer.headers["etag"]
        between()
        # A poll comes when its time has come, whatever the last one took.
        threading.Event().wait(INTERVAL)
    return 100 * spent / (POLLS * INTERVAL)


def _commits(settings: Settings) -> Callable[[], None]:
    batches = iter(range(LOAD.batches // LOAD.pipelines, 10**6))

    def commit() -> None:
        with writing(settings.registry_url) as connection:
            for _ in range(int(INTERVAL)):
                page_load.advance(connection, LOAD, next(batches))

    return commit


def _open() -> Access:
    return Access(lambda: "ada", lambda _person, _dag_id: True)


if __name__ == "__main__":
    main()
