"""A mail server that keeps what it is sent, for Airflow's own notifier by mail."""

from __future__ import annotations

import email
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import policy
from email.message import EmailMessage
from typing import Any

from rewind.airflow_api.client import AirflowApi

ANSWERS = {"DATA": b"354 go on", "QUIT": b"221 bye"}


class Mailbox:
    """What has been received.

    Attributes:
        port: Of the server, on 127.0.0.1.
        mails: In the order in which they came.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.mails: list[EmailMessage] = []

    def connect(self, api: AirflowApi) -> None:
        """Let an Airflow send its mails here."""
        extra = json.dumps({"disable_ssl": True, "disable_tls": True})
        server = {"connection_id": "smtp_default", "conn_type": "smtp", "host": "127.0.0.1", "port": self.port}
        api.call("POST", "/api/v2/connections", {**server, "extra": extra})

    def told(self, subject: str) -> str:
        """Return the text of the first mail of a subject, empty before it comes."""
        found = next((mail for mail in self.mails if mail["Subject"] == subject), None)
        body = None if found is None else found.get_body(("html", "plain"))
        return "" if body is None else str(body.get_content())


@contextmanager
def mailbox() -> Iterator[Mailbox]:
    """Serve a mailbox on a free port."""

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                word = line.decode().strip().upper()[:4]
                self.wfile.write(ANSWERS.get(word, b"250 well") + b"\r\n")
                if word == "DATA":
                    made.mails.append(self._mail())
                    self.wfile.write(b"250 kept\r\n")
                if word == "QUIT":
                    return

        def _mail(self) -> Any:
            lines = iter(self.rfile.readline, b".\r\n")
            return email.message_from_bytes(b"".join(line.removeprefix(b".") for line in lines), policy=policy.default)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        made = Mailbox(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            server.shutdown()
            thread.join(20)
