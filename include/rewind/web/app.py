"""The routes of the page. Whoever mounts it says who may read, and who may run which DAG."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import resources
from typing import Any

from fastapi import Depends, FastAPI, HTTPException, Request, Response

from rewind.airflow_api.in_process import AirflowPort
from rewind.core.errors import RefusedError, RetryError
from rewind.core.settings import Settings
from rewind.declared import forms
from rewind.registry import generations
from rewind.registry.snapshot import snapshot
from rewind.runtime import evidence, ownership
from rewind.web import compare_page, files, generation_page, history, offers, overview, read_only, rewind_page
from rewind.web.access import READS_ALL, Access, Viewer, viewers
from rewind.web.actions import FORMS, Act, act
from rewind.web.guard import Guard
from rewind.web.state import State
from rewind.web.wire import Kept, encoded

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
DOCS_TYPES = {kind: TYPES[kind] for kind in ("html", "css", "svg")} | {
    "png": "image/png",
    "gif": "image/gif",
    "ico": "image/x-icon",
}
"""What pages of Great Expectations are made of; a script of theirs is shown as text, and none runs."""
TEXT = "text/plain; charset=utf-8"


def build(state: State, access: Access, airflow: AirflowPort) -> FastAPI:
    """Return the app; each of its routes asks who it is first, and shows what that person may see."""
    app = FastAPI(
        title="Rewind",
        dependencies=[Depends(access.person)],
        openapi_url=None,
        exception_handlers=_PLAIN,
    )
    _add_pages(app)
    _add_lists(app, state, access)
    _add_views(app, state, access)
    _add_files(app, state, access)
    _add_actions(app, state, access, airflow)
    read_only.add(app, state.settings, access)
    reads = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, exception_handlers=_PLAIN)
    read_only.add(reads, state.settings, READS_ALL)
    app.add_middleware(read_only.TokenGate, reads=reads, settings=state.settings)
    app.add_middleware(Guard)
    return app


def _add_pages(app: FastAPI) -> None:
    @app.get("/")
    def index() -> Response:
        return _asset("index.html")

    @app.get("/assets/{name}")
    def asset(name: str) -> Response:
        return _asset(name)


def _add_lists(app: FastAPI, state: State, access: Access) -> None:
    asks, kept = Depends(viewers(access)), Kept()

    @app.get("/api/overview")
    def of_all(request: Request, viewer: Viewer = asks) -> Response:
        found = state.look()
        part = viewer.part(found)
        names = tuple(view.name for view in part.pipelines)
        return _sent(request, *kept.encoded(found, names, lambda: overview.overview(part)))

    @app.get("/api/history")
    def of_the_past(request: Request, viewer: Viewer = asks) -> Response:
        found = viewer.part(state.look())
        return _json(request, history.history(state.settings(), found))


def _add_views(app: FastAPI, state: State, access: Access) -> None:
    asks = Depends(viewers(access))

    @app.get("/api/rewinds/{rewind_id}")
    def of_a_rewind(request: Request, rewind_id: str, viewer: Viewer = asks) -> Response:
        settings = state.settings()
        found = state.look(_seen(settings, viewer, rewind_id))
        body = rewind_page.rewind_page(settings, found, rewind_id)
        for offer in body["offers"]:
            offer["allowed"] = viewer.may_run(offers.dag_of(offer["name"], body["pipeline"]))
        return _json(request, body)

    @app.get("/api/generations/{job_id}")
    def of_a_generation(request: Request, job_id: str, viewer: Viewer = asks) -> Response:
        settings = state.settings()
        with snapshot(settings.registry_url) as connection:
            pipeline = generations.read(connection, job_id).pipeline
        viewer.check(pipeline)
        return _json(request, generation_page.generation_page(settings, state.look(pipeline), job_id))

    @app.get("/api/compare/{one}/{other}")
    def of_two(request: Request, one: str, other: str, viewer: Viewer = asks) -> Response:
        settings = state.settings()
        for rewind_id in (one, other):
            _seen(settings, viewer, rewind_id)
        return _json(request, compare_page.compare_page(settings, state, (one, other)))

    @app.get("/api/run")
    def of_a_run(request: Request, dag_id: str, run_id: str, viewer: Viewer = asks) -> Response:
        viewer.check_dag(dag_id)
        return _json(request, {"rewind_id": forms.rewind_id(dag_id, run_id)})


def _add_files(app: FastAPI, state: State, access: Access) -> None:
    asks = Depends(viewers(access))

    @app.get("/api/rewinds/{rewind_id}/evidence/{name}")
    def of_a_check(rewind_id: str, name: str, viewer: Viewer = asks) -> Response:
        settings = state.settings()
        _seen(settings, viewer, rewind_id)
        content = files.tail(evidence.folder_of(settings, rewind_id), name, files.LONGEST_EVIDENCE)
        return _document(content) if name.endswith(".html") else _text(content)

    @app.get("/api/rewinds/{rewind_id}/docs/{path:path}")
    def of_great_expectations(rewind_id: str, path: str, viewer: Viewer = asks) -> Response:
        settings = state.settings()
        _seen(settings, viewer, rewind_id)
        content, suffix = files.page_below(evidence.folder_of(settings, rewind_id), path)
        kind = DOCS_TYPES.get(suffix)
        return _text(content) if kind is None else _document(content, kind)

    @app.get("/api/streams/{owner}/logs/{name}")
    def log(owner: str, name: str, viewer: Viewer = asks) -> Response:
        settings = state.settings()
        sources = {view.name: view.source_topic for view in state.look().pipelines}
        with snapshot(settings.registry_url) as connection:
            pipelines = ownership.of_stream(connection, owner, sources)
        viewer.check_any(pipelines, owner)
        return _text(files.tail(files.logs_folder(settings, owner), name, files.TAIL))


def _add_actions(app: FastAPI, state: State, access: Access, airflow: AirflowPort) -> None:
    asks = Depends(viewers(access))

    @app.post("/api/rewinds/{rewind_id}/actions/{action}")
    async def action_on(
        request: Request, rewind_id: str, action: str, asked: dict[str, Any], viewer: Viewer = asks
    ) -> Response:
        if action not in offers.DAGS:
            raise RefusedError("action", f"{action!r} is unknown", f"Actions are {', '.join(offers.DAGS)}")
        settings = state.settings()
        pipeline, rewind = await asyncio.to_thread(_anew, state, viewer, rewind_id)
        dag_id = offers.dag_of(action, pipeline.name)
        if not await asyncio.to_thread(viewer.may_run, dag_id):
            raise HTTPException(403, f"running {dag_id} is not allowed to you")
        try:
            given = forms.checked(asked, FORMS[action], action)
        except RefusedError as refused:
            raise HTTPException(422, str(refused)) from refused
        reason, rate = given.get("reason") or "", given.get("rate")
        wanted = Act(request, settings, airflow, pipeline, rewind, viewer.name, reason, rate)
        try:
            done = await act(action, wanted)
        except RefusedError as refused:
            raise HTTPException(409, str(refused)) from refused
        finally:
            state.forget()
        return _json(request, {"done": done})


def _anew(state: State, viewer: Viewer, rewind_id: str) -> Any:
    # What is on offer is decided by the registry as it is now, not by what a browser was shown.
    state.forget()
    settings = state.settings()
    return rewind_page.seen(settings, state.look(_seen(settings, viewer, rewind_id)), rewind_id)


def _seen(settings: Settings, viewer: Viewer, rewind_id: str) -> str:
    """Return the pipeline of a rewind or a night, which the viewer must see."""
    with snapshot(settings.registry_url) as connection:
        pipeline = ownership.of_rewind(connection, rewind_id)
    viewer.check(pipeline)
    return pipeline


def _json(request: Request, body: Mapping[str, Any]) -> Response:
    return _sent(request, *encoded(body))


def _sent(request: Request, content: bytes, tag: str) -> Response:
    headers = {**HEADERS, "ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type="application/json", headers=headers)


def _document(content: bytes, kind: str = TYPES["html"]) -> Response:
    # Whatever stands in it: it may bring its own style and pictures, and do nothing else.
    alone = "default-src 'none'; style-src 'self' 'unsafe-inline'; img-src 'self'; sandbox; frame-ancestors 'self'"
    return Response(content, media_type=kind, headers={**HEADERS, "Content-Security-Policy": alone})


def _text(content: bytes) -> Response:
    return Response(content, media_type=TEXT, headers=HEADERS)


def _asset(name: str) -> Response:
    found = resources.files("rewind.web") / "assets" / name
    kind = TYPES.get(name.rpartition(".")[2])
    if "/" in name or name.startswith(".") or kind is None or not found.is_file():
        raise HTTPException(404, "there is no such file")
    return Response(found.read_bytes(), media_type=kind, headers=HEADERS)


async def _refused(_request: Request, problem: Any) -> Response:
    return Response(str(problem), 404, media_type=TEXT, headers=HEADERS)


async def _unreachable(_request: Request, problem: Any) -> Response:
    return Response(str(problem), 503, media_type=TEXT, headers=HEADERS)


_PLAIN: dict[Any, Any] = {RefusedError: _refused, RetryError: _unreachable}
