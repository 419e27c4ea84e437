"""The page's app alone on a port, for a browser: one person, and an Airflow that only notes what it is asked."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from fastapi import FastAPI, Request

from rewind.airflow_api.in_process import AirflowPort
from rewind.core.settings import Settings
from rewind.declared.forms import rewind_id
from rewind.web.access import Access
from rewind.web.app import build
from rewind.web.state import State
from tests.support.page_states import NAME, Ends


@dataclass
class Site:
    """A running page.

    Attributes:
        url: Its address.
        acting: Whether the person may run DAGs.
        run: Id of the run that asks.
        calls: What Airflow was asked to do.
    """

    url: str = ""
    acting: bool = True
    run: str = "r1"
    calls: list[tuple[str, str, Any]] = field(default_factory=list)


def airflow_stub(site: Site) -> FastAPI:
    """Return an app that answers as Airflow's API does where the page asks it."""
    app = FastAPI()

    @app.get("/api/v2/dags/{dag_id}/dagRuns/~/hitlDetails")
    def asked(dag_id: str) -> Any:
        task = {"dag_run_id": site.run, "task_id": "approve", "start_date": "2025-09-04T07:00:00Z"}
        return {"hitl_details": [{"task_instance": task}]}

    @app.api_route("/api/v2/{path:path}", methods=["POST", "PATCH"])
    async def noted(path: str, request: Request) -> Any:
        site.calls.append((request.method, path, await request.json()))
        return {"dag_run_id": "manual__1"}

    return app


def page_app(settings: Settings, site: Site) -> FastAPI:
    state = State(lambda: settings, lambda _: Ends())
    access = Access(lambda: "ada", lambda _person, dag_ids: dag_ids, lambda _person, _dag_id: site.acting, str)
    stub = airflow_stub(site)
    app = FastAPI()
    app.mount("/rewind", build(state, access, AirflowPort(lambda: stub)))
    return app


@contextmanager
def serving(settings: Settings) -> Iterator[Site]:
    """Serve the page on a free port."""
    site = Site()
    server = uvicorn.Server(uvicorn.Config(page_app(settings, site), port=0, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.02)
    site.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/rewind/"
    try:
        yield site
    finally:
        server.should_exit = True
        thread.join(20)


def id_of(site: Site) -> str:
    """Return the id of the rewind whose run asks."""
    return rewind_id(f"rewind_{NAME}", site.run)
