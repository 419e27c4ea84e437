"""What is refused before anyone is asked who they are: what another site asks for, and bodies that nobody sends."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LONGEST_BODY = 64 * 1024
"""Bytes of the longest body that is read; the longest reason takes a quarter of it."""
OURS = ("same-origin", "none")
"""What a browser says of a request that our own page made, or a person."""


class Guard:
    """Stands before an app."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before `app`."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if scope["method"] not in ("GET", "HEAD") and (site := foreign(headers)):
            await PlainTextResponse(f"{site} may not act here", 403)(scope, receive, send)
            return
        body = await _read(headers, receive)
        if body is None:
            await PlainTextResponse(f"a body has {LONGEST_BODY} bytes at most", 413)(scope, receive, send)
            return
        await self._app(scope, _Once(body, receive), send)


def foreign(headers: Headers) -> str:
    """Return the site whose page sent a request, when that is not our own; else nothing.

    A browser says so itself in `Sec-Fetch-Site`; where it says nothing, as over plain HTTP, its `Origin` is compared
    with the host that was asked. A program sends neither.
    """
    origin, site = headers.get("origin", ""), headers.get("sec-fetch-site")
    if site is not None:
        return "" if site in OURS else origin or "another site"
    return origin if origin and urlsplit(origin).netloc != headers.get("host", "") else ""


async def _read(headers: Headers, receive: Receive) -> bytes | None:
    """Return the body; None when it is too long, of which no more is read than that takes."""
    length = headers.get("content-length", "0")
    if length.isdecimal() and int(length) > LONGEST_BODY:
        return None
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > LONGEST_BODY:
            return None
        more = message.get("more_body", False)
    return body


class _Once:
    """Gives a body that was read, then what comes after it."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}
