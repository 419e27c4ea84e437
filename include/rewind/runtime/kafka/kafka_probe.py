"""Why a broker is not reached: kafka-python says only that it could not bootstrap, whatever the reason.

One connection is made by hand, up to the login, by the protocol's own bytes
(https://kafka.apache.org/protocol.html): each of its steps fails for reasons of its own.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka.net.sasl import get_sasl_mechanism

from rewind.core.errors import RefusedError
from rewind.runtime.kafka.kafka_access import FIELD, PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL

SECONDS = 5.0
_METADATA, _HANDSHAKE, _VERSIONS, _AUTHENTICATE = 3, 17, 18, 36
_UNSUPPORTED, _NOT_HERE = 33, 34
_ALERT = b"\x15\x03"
"""How TLS answers what is no TLS."""
_OTHER_NAME = (62, 64)
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH."""


class _ClosedError(Exception):
    """The broker hung up."""


def why_refused(options: Mapping[str, Any]) -> RefusedError | None:
    """Return why a broker that listens lets no client in, by the setting that is to be fixed.

    None when nothing listens, or nothing of that kind is wrong.

    Args:
        options: Options of a kafka-python client.
    """
    for address in options["bootstrap_servers"]:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), SECONDS) as plain:
                _Visit((host.strip("[]"), int(port)), f"the broker at {address}", options).make(plain)
        except RefusedError as refused:
            return refused
        except (OSError, ValueError, struct.error, _ClosedError):
            continue
    return None


@dataclass(frozen=True)
class _Visit:
    """One connection to a broker: a step that it refuses raises why."""

    place: tuple[str, int]
    broker: str
    options: Mapping[str, Any]

    def make(self, plain: socket.socket) -> None:
        protocol = self.options.get("security_protocol", PLAINTEXT)
        connection = self._over_tls(plain) if protocol in (SSL, SASL_SSL) else plain
        try:
            answer = _asked(connection, _VERSIONS, 0, b"")
        except ssl.SSLError as error:
            told = f"{self.broker} does not let this client in by its certificate ({error.reason})"
            cure = "Name one of an authority that it trusts in ssl_certfile, and its key in ssl_keyfile"
            raise _refused(told, cure) from None
        if answer.startswith(_ALERT):
            raise _refused(f"{self.broker} speaks TLS", f"Set security_protocol to SSL or SASL_SSL, not {protocol}")
        if protocol in (SASL_PLAINTEXT, SASL_SSL):
            self._log_in(connection)
            return
        try:
            _asked(connection, _METADATA, 1, struct.pack(">i", 0))
        except _ClosedError:
            cure = f"Set security_protocol to {SASL_SSL if protocol == SSL else SASL_PLAINTEXT}"
            raise _refused(f"{self.broker} asks for a login", cure) from None

    def _over_tls(self, plain: socket.socket) -> ssl.SSLSocket:
        try:
            return self._context().wrap_socket(plain, server_hostname=self.place[0])
        except ssl.SSLCertVerificationError as error:
            told = f"the certificate of {self.broker} is not trusted: {error.verify_message.rstrip('.')}"
            if error.verify_code in _OTHER_NAME:
                cure = "Name the broker as its certificate does"
                raise RefusedError("REWIND_KAFKA_BOOTSTRAP", told, cure) from None
            raise _refused(told, "Name a file with the certificate of its authority in ssl_cafile") from None
        except ssl.SSLError:
            # Whatever stands before a broker that is down may hang up as well.
            if not self._speaks_plainly():
                raise
            raise _refused(f"{self.broker} speaks no TLS", "Fix security_protocol, or the port") from None

    def _context(self) -> ssl.SSLContext:
        context, given = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), self.options
        context.load_verify_locations(given["ssl_cafile"]) if "ssl_cafile" in given else context.load_default_certs()
        if "ssl_certfile" in given:
            try:
                # Without a password OpenSSL would ask for one at the terminal.
                context.load_cert_chain(given["ssl_certfile"], given["ssl_keyfile"], given.get("ssl_password", ""))
            except ssl.SSLError:
                told = "certificate and key do not belong together, or the key's password is wrong"
                raise _refused(told, "Fix ssl_certfile, ssl_keyfile or ssl_password") from None
        return context

    def _speaks_plainly(self) -> bool:
        try:
            with socket.create_connection(self.place, SECONDS) as plain:
                return not _asked(plain, _VERSIONS, 0, b"").startswith(_ALERT)
        except (OSError, _ClosedError):
            return False

    def _log_in(self, connection: socket.socket) -> None:
        mechanism = str(self.options["sasl_mechanism"])
        answer = _asked(connection, _HANDSHAKE, 1, _text(mechanism))
        (code,), names = struct.unpack_from(">h", answer), _texts(answer[2:])
        if code == _UNSUPPORTED:
            cure = f"Set sasl_mechanism to {' or '.join(names) or 'one that it knows'}"
            raise _refused(f"{self.broker} knows no {mechanism}", cure)
        if code == _NOT_HERE:
            raise _refused(f"{self.broker} asks for no login", "Set security_protocol to PLAINTEXT or SSL")
        login = get_sasl_mechanism(mechanism)(host=self.place[0], **self.options)
        while not login.is_done():
            sent = login.auth_bytes()
            answer = _asked(connection, _AUTHENTICATE, 0, struct.pack(">i", len(sent)) + sent)
            (code,) = struct.unpack_from(">h", answer)
            problem, rest = _nullable(answer[2:])
            if code:
                told = f"{self.broker} refuses the login by {mechanism}: {problem or 'without a reason'}"
                raise _refused(told, f"Fix {_of_login(self.options)}")
            (length,) = struct.unpack_from(">i", rest)
            login.receive(rest[4 : 4 + length])


def _of_login(options: Mapping[str, Any]) -> str:
    by_token = "sasl_oauth_token_provider" in options
    return "sasl_oauth_client_id and its rights" if by_token else "sasl_plain_username or sasl_plain_password"


def _refused(problem: str, cure: str) -> RefusedError:
    return RefusedError(FIELD, problem, cure)


def _asked(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    """Send a request and return its answer without the header; of TLS the first bytes as they are."""
    request = struct.pack(">hhi", key, version, 1) + _text("rewind") + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    first = _received(connection, 4)
    if first.startswith(_ALERT):
        return first
    return _received(connection, struct.unpack(">i", first)[0])[4:]


def _received(connection: socket.socket, length: int) -> bytes:
    found = b""
    while len(found) < length:
        part = connection.recv(length - len(found))
        if not part:
            raise _ClosedError
        found += part
    return found


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _nullable(data: bytes) -> tuple[str, bytes]:
    (length,) = struct.unpack_from(">h", data)
    end = 2 + max(0, length)
    return data[2:end].decode(errors="replace"), data[end:]


def _texts(data: bytes) -> list[str]:
    (count,), rest, found = struct.unpack_from(">i", data), data[4:], []
    for _ in range(count):
        text, rest = _nullable(rest)
        found.append(text)
    return found
