"""`serve-pointer`: the live pointer as JSON over HTTP, and the state as metrics for Prometheus. It only reads."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from rewind.cli import context
from rewind.core import names
from rewind.core.errors import RefusedError, RetryError
from rewind.core.settings import Settings
from rewind.runtime.secrets import read_token
from rewind.views import metrics
from rewind.views.pointer import resolve

PREFIX, METRICS = "/pointer/", "/metrics"
HOST, PORT = "127.0.0.1", 8765


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("serve-pointer", help=f"serve {PREFIX}<pipeline> and {METRICS} over HTTP")
    parser.add_argument("--host", default=HOST, help=f"address to listen at ({HOST})")
    parser.add_argument("--port", type=int, default=PORT, help=f"port to listen at ({PORT}); 0 takes a free one")
    parser.set_defaults(func=_serve)


def server(settings: Settings, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that is bound but does not serve yet.

    Raises:
        RefusedError: The port is taken, the address is not one of this host, or the file of the token is not as it
            must be.
    """
    if settings.read_token_file is not None:
        # Now rather than at the first request.
        read_token.bears(settings, "")
    handler = type("PointerHandler", (_Handler,), {"settings": settings})
    try:
        return ThreadingHTTPServer((host, port), handler)
    except OSError as error:
        raise RefusedError(
            "--port", f"{host}:{port} cannot be listened at ({error.strerror})", "Choose another"
        ) from None


def answer(registry_url: str, path: str) -> tuple[int, Mapping[str, Any]]:
    """Return status and body for a path: 200, 404 for what is unknown, 503 when the registry does not answer."""
    asked = urlsplit(path).path
    try:
        if not asked.startswith(PREFIX):
            raise RefusedError("path", f"{asked!r} is unknown", f"Ask for {PREFIX}<pipeline> or {METRICS}")
        name = names.checked(unquote(asked.removeprefix(PREFIX)), "pipeline")
        return 200, resolve(name, registry_url).to_json()
    except RefusedError as error:
        return 404, {"error": str(error)}
    except RetryError as error:
        return 503, {"error": str(error)}


class _Handler(BaseHTTPRequestHandler):
    settings: Settings
    server_version = "rewind"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        if not self._may():
            self._send(401, b'{"error": "the read-only token is needed, as Authorization: Bearer"}', "application/json")
            return
        if urlsplit(self.path).path == METRICS:
            text = metrics.read(self.settings, context.broker(self.settings))
            self._send(200, text.encode(), metrics.CONTENT_TYPE)
            return
        status, body = answer(self.settings.registry_url, self.path)
        self._send(status, json.dumps(body).encode(), "application/json")

    def _may(self) -> bool:
        if self.settings.read_token_file is None:
            return True
        return read_token.bears(self.settings, self.headers.get("Authorization", ""))

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        # A pointer that a cache keeps would send readers to a topic that is about to be deleted.
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Keep quiet: readers poll."""


def _serve(arguments: argparse.Namespace) -> int:
    with server(context.settings(), arguments.host, arguments.port) as made:
        address = f"http://{made.server_address[0]!s}:{made.server_address[1]}"
        print(f"serving {address}{PREFIX}<pipeline> and {address}{METRICS}", flush=True)
        made.serve_forever()
    return 0
