"""What readers and scrapers ask for: the pointer and the metrics, by a login or by the read-only token."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, MutableMapping
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Response
from fastapi.routing import APIRoute
from starlette.routing import Match

from rewind.control import metrics, read_token
from rewind.control.pointer import resolve
from rewind.core import names
from rewind.core.errors import RefusedError
from rewind.web.state import State

Token = Callable[[], str | None]
UNCACHED = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""A pointer that a cache keeps would send readers to a topic that is about to be deleted."""


def add_readers(app: FastAPI, state: State, reader: Callable[..., Any], token: Token) -> None:
    """Add the routes twice: for who presents the token, and, after those, for who has a login.

    The first ones are not there for anybody else, so that no other route can ever be opened by the token.
    """
    for router in (APIRouter(route_class=_routes_for(token)), APIRouter(dependencies=[Depends(reader)])):
        _add(router, state)
        app.include_router(router)


def _add(router: APIRouter, state: State) -> None:
    @router.get("/pointer/{pipeline}")
    def pointer(pipeline: str) -> Response:
        found = resolve(names.checked(pipeline, "pipeline"), state.settings().registry_url)
        return Response(json.dumps(found.to_json()), media_type="application/json", headers=UNCACHED)

    @router.get("/metrics")
    def all_metrics() -> Response:
        settings = state.settings()
        text = metrics.read(settings, state.broker(settings))
        return Response(text, media_type=metrics.CONTENT_TYPE, headers=UNCACHED)


def _routes_for(token: Token) -> type[APIRoute]:
    class TokenRoute(APIRoute):
        def matches(self, scope: MutableMapping[str, Any]) -> tuple[Match, MutableMapping[str, Any]]:
            found = super().matches(scope)
            return found if found[0] == Match.NONE or _presented(scope, token) else (Match.NONE, {})

    return TokenRoute


def _presented(scope: MutableMapping[str, Any], token: Token) -> bool:
    header = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
    try:
        return read_token.presented(header.decode("latin-1"), token())
    except RefusedError as unusable:
        # Who has a login still gets in.
        logging.getLogger(__name__).error("the read-only token: %s", unusable)
        return False
