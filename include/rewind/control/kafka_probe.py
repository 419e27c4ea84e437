"""Why a broker is not reached: kafka-python says only that it could not bootstrap, whatever the reason.

One connection is made by hand, up to the login, by the protocol's own bytes
(https://kafka.apache.org/protocol.html): each of its steps fails for reasons of its own.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any

from kafka.net.sasl import get_sasl_mechanism

from rewind.control.kafka_access import FIELD, PLAINTEXT, SASL_PLAINTEXT, SASL_SSL, SSL
from rewind.core.errors import RefusedError

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
    """Return why a broker that listens lets no client in, by the setting that is to be mended.

    None when nothing listens, or nothing of that kind is wrong.

    Args:
        options: Options of a kafka-python client.
    """
    for address in options["bootstrap_servers"]:
        host, _, port = address.rpartition(":")
        try:
            plain = socket.create_connection((host.strip("[]"), int(port)), SECONDS)
        except (OSError, ValueError):
            continue
        with plain:
            try:
                return _talk(plain, host.strip("[]"), address, options)
            except (OSError, struct.error, _ClosedError):
                continue
    return None


def _talk(plain: socket.socket, host: str, address: str, options: Mapping[str, Any]) -> RefusedError | None:
    protocol = options.get("security_protocol", PLAINTEXT)
    connection: socket.socket = plain
    if protocol in (SSL, SASL_SSL):
        found = _over_tls(plain, host, address, options)
        if isinstance(found, RefusedError):
            return found
        connection = found
    try:
        answered = _asked(connection, _VERSIONS, 0, b"")
    except (ssl.SSLError, _ClosedError) as error:
        return _without_a_certificate(address, error)
    if answered.startswith(_ALERT):
        return _refused(
            f"the broker at {address} speaks TLS", f"Set security_protocol to SSL or SASL_SSL, not {protocol}"
        )
    if protocol in (SASL_PLAINTEXT, SASL_SSL):
        return _logged_in(connection, host, address, options)
    try:
        _asked(connection, _METADATA, 1, struct.pack(">i", 0))
    except _ClosedError:
        told = f"the broker at {address} asks for a login"
        return _refused(told, f"Set security_protocol to {'SASL_SSL' if protocol == SSL else 'SASL_PLAINTEXT'}")
    return None


def _over_tls(
    plain: socket.socket, host: str, address: str, options: Mapping[str, Any]
) -> ssl.SSLSocket | RefusedError:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(options["ssl_cafile"]) if "ssl_cafile" in options else context.load_default_certs()
    if "ssl_certfile" in options:
        try:
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(options["ssl_certfile"], options["ssl_keyfile"], options.get("ssl_password", ""))
        except ssl.SSLError:
            names = "ssl_certfile, ssl_keyfile or ssl_password"
            return _refused(
                "certificate and key do not belong together, or the key's password is wrong", f"Mend {names}"
            )
    try:
        return context.wrap_socket(plain, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        told = f"the certificate of the broker at {address} is not trusted: {error.verify_message}"
        if error.verify_code in _OTHER_NAME:
            return RefusedError("REWIND_KAFKA_BOOTSTRAP", told, "Name the broker as its certificate does")
        return _refused(told, "Name a file with the certificate of its authority in ssl_cafile")
    except ssl.SSLError as error:
        return _refused(
            f"the broker at {address} speaks no TLS ({error.reason})", "Mend security_protocol, or the port"
        )


def _without_a_certificate(address: str, error: Exception) -> RefusedError:
    """Return the reason for which a broker hangs up right after TLS: it has seen no certificate that it trusts."""
    told = f" ({error.reason})" if isinstance(error, ssl.SSLError) and error.reason else ""
    told = f"the broker at {address} does not let this client in by its certificate{told}"
    return _refused(told, "Name a certificate of an authority that it trusts in ssl_certfile, its key in ssl_keyfile")


def _logged_in(connection: socket.socket, host: str, address: str, options: Mapping[str, Any]) -> RefusedError | None:
    mechanism = str(options["sasl_mechanism"])
    answer = _asked(connection, _HANDSHAKE, 1, _text(mechanism))
    (code,), names = struct.unpack_from(">h", answer), _texts(answer[2:])
    if code == _UNSUPPORTED:
        told = f"the broker at {address} knows no {mechanism}"
        return _refused(told, f"Set sasl_mechanism to {' or '.join(names) or 'one that it knows'}")
    if code == _NOT_HERE:
        return _refused(f"the broker at {address} asks for no login", "Set security_protocol to PLAINTEXT or SSL")
    login = get_sasl_mechanism(mechanism)(host=host, **options)
    while not login.is_done():
        sent = login.auth_bytes()
        answer = _asked(connection, _AUTHENTICATE, 0, struct.pack(">i", len(sent)) + sent)
        (code,) = struct.unpack_from(">h", answer)
        problem, rest = _nullable(answer[2:])
        if code:
            told = f"the broker at {address} refuses the login by {mechanism}: {problem or 'without a reason'}"
            return _refused(told, f"Mend {_of_login(options)}")
        (length,) = struct.unpack_from(">i", rest)
        login.receive(rest[4 : 4 + length])
    return None


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
