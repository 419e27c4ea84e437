"""`serve-pointer`: the live pointer as JSON over HTTP, for readers that are not Python. It only reads."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from rewind.cli import context
from rewind.control.pointer import resolve
from rewind.core import names
from rewind.core.errors import RefusedError, RetryError

PREFIX = "/pointer/"
HOST, PORT = "127.0.0.1", 8765


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("serve-pointer", help=f"serve {PREFIX}<pipeline> as JSON over HTTP")
    parser.add_argument("--host", default=HOST, help=f"address to listen at ({HOST})")
    parser.add_argument("--port", type=int, default=PORT, help=f"port to listen at ({PORT}); 0 takes a free one")
    parser.set_defaults(func=_serve)


def server(registry_url: str, host: str, port: int) -> ThreadingHTTPServer:
    """Return a server that is bound but does not serve yet.

    Raises:
        RefusedError: The port is taken, or the address is not one of this host.
    """
    handler = type("PointerHandler", (_Handler,), {"registry_url": registry_url})
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
            raise RefusedError("path", f"{asked!r} is unknown", f"Ask for {PREFIX}<pipeline>")
        name = names.checked(unquote(asked.removeprefix(PREFIX)), "pipeline")
        return 200, resolve(name, registry_url).to_json()
    except RefusedError as error:
        return 404, {"error": str(error)}
    except RetryError as error:
        return 503, {"error": str(error)}


class _Handler(BaseHTTPRequestHandler):
    registry_url = ""
    server_version = "rewind"
    sys_version = ""

    def do_GET(self) -> None:
        """Answer one request."""
        status, body = answer(self.registry_url, self.path)
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        # A pointer that a cache keeps would send readers to a topic that is about to be deleted.
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        """Keep quiet: readers poll."""


def _serve(arguments: argparse.Namespace) -> int:
    with server(context.settings().registry_url, arguments.host, arguments.port) as made:
        print(f"serving http://{made.server_address[0]!s}:{made.server_address[1]}{PREFIX}<pipeline>", flush=True)
        made.serve_forever()
    return 0
