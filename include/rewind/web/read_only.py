"""What programs read: the live pointer and the metrics, with a login of Airflow's or with the read-only token."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from rewind.core import names
from rewind.core.errors import RefusedError
from rewind.core.settings import Settings
from rewind.runtime.kafka import reachability
from rewind.runtime.secrets import read_token
from rewind.views import metrics
from rewind.views.pointer import resolve
from rewind.web.access import Access, Viewer, viewers


def add(app: FastAPI, settings: Callable[[], Settings], access: Access) -> None:
    """Add the two routes to an app, each telling what its caller sees."""
    asks = Depends(viewers(access))
    # A pointer that a cache keeps would send readers to a topic that is about to be deleted.
    fresh = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}

    @app.get("/pointer/{pipeline}")
    def pointer(pipeline: str, viewer: Viewer = asks) -> Response:
        viewer.check(names.checked(pipeline, "pipeline"))
        found = resolve(pipeline, settings().registry_url)
        return JSONResponse(found.to_json(), headers=fresh)

    @app.get("/metrics")
    def exposed(viewer: Viewer = asks) -> Response:
        chosen = settings()
        text = metrics.read(chosen, reachability.broker(chosen), viewer.part)
        return Response(text, media_type=metrics.CONTENT_TYPE, headers=fresh)


class TokenGate:
    """Lets requests that bear the token through to an app that asks nobody; all others go the usual way."""

    def __init__(self, app: ASGIApp, reads: FastAPI, settings: Callable[[], Settings]) -> None:
        """Stand before `app`, with `reads` beside it."""
        self._app, self._reads, self._settings = app, reads, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        wanted = scope["type"] == "http" and self._is_read(scope) and self._bears(Request(scope))
        await (self._reads if wanted else self._app)(scope, receive, send)

    def _is_read(self, scope: Scope) -> bool:
        return any(route.matches(scope)[0] == Match.FULL for route in self._reads.routes)

    def _bears(self, request: Request) -> bool:
        authorization = request.headers.get("authorization", "")
        try:
            return bool(authorization) and read_token.bears(self._settings(), authorization)
        except RefusedError:
            # A file that is not as it must be opens nothing.
            return False
