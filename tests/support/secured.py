"""A broker as companies run it: TLS of a private authority, SCRAM, client certificates, OAuth, and rights by list."""

from __future__ import annotations

import base64
import ipaddress
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from rewind.local import broker, ports

USER, PASSWORD, KEY_PASSWORD = "ann,=", 'p"w\\d; x="1', "key pass"
CLIENT, CLIENT_SECRET = "rewind", 'hush"1\\'
LISTENERS = ("SCRAM", "MUTUAL", "OAUTH", "PLAIN")
USERS = {"SCRAM": USER, "PLAIN": "bob", "MUTUAL": "ann", "OAUTH": CLIENT}
"""The user of each listener."""
KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP}
RIGHTS = {
    "Create": ACLOperation.CREATE,
    "Delete": ACLOperation.DELETE,
    "Describe": ACLOperation.DESCRIBE,
    "DescribeConfigs": ACLOperation.DESCRIBE_CONFIGS,
    "Read": ACLOperation.READ,
    "Write": ACLOperation.WRITE,
}
DAY = timedelta(days=1)
SECURITY = "org.apache.kafka.common.security"

PROPERTIES = """\
listeners=PLAINTEXT://{{host}}:{{port}},CONTROLLER://{{host}}:{{controller}},{listeners}
advertised.listeners=PLAINTEXT://{{host}}:{{port}},{listeners}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SCRAM:SASL_SSL,MUTUAL:SSL,OAUTH:SASL_SSL,PLAIN:SASL_SSL
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
# Who comes by the inner listener has no name, and every right.
super.users=User:ANONYMOUS
ssl.keystore.type=PEM
ssl.keystore.location={folder}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/ca.pem
listener.name.mutual.ssl.client.auth=required
ssl.principal.mapping.rules=RULE:^CN=([^,]+).*$/$1/
listener.name.scram.sasl.enabled.mechanisms=SCRAM-SHA-512,SCRAM-SHA-256
listener.name.scram.scram-sha-512.sasl.jaas.config={security}.scram.ScramLoginModule required;
listener.name.scram.scram-sha-256.sasl.jaas.config={security}.scram.ScramLoginModule required;
listener.name.plain.sasl.enabled.mechanisms=PLAIN
listener.name.plain.plain.sasl.jaas.config={security}.plain.PlainLoginModule required user_bob="bobs";
listener.name.oauth.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.oauth.oauthbearer.sasl.jaas.config={security}.oauthbearer.OAuthBearerLoginModule required;
listener.name.oauth.oauthbearer.sasl.server.callback.handler.class={security}.oauthbearer.OAuthBearerValidatorCallbackHandler
listener.name.oauth.sasl.oauthbearer.jwks.endpoint.url={tokens}/keys
listener.name.oauth.sasl.oauthbearer.expected.audience=kafka
"""


@dataclass
class Secured:
    """A running broker.

    Attributes:
        folder: Where its certificates are: `ca.pem`, `client.pem`, `client.key` (with a password), `stranger.pem`.
        inner: Address for those who may do everything.
        addresses: Address of each listener.
        tokens: Endpoint of tokens.
    """

    folder: Path
    inner: str = ""
    addresses: dict[str, str] = field(default_factory=dict)
    tokens: str = ""

    def options(self, listener: str, **changed: Any) -> dict[str, str]:
        """Return the options that log in at a listener, some of them changed or left out (None)."""
        known = {
            "SCRAM": {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
            | {"sasl_plain_username": USER, "sasl_plain_password": PASSWORD},
            "PLAIN": {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
            | {"sasl_plain_username": "bob", "sasl_plain_password": "bobs"},
            "MUTUAL": {"security_protocol": "SSL", "ssl_certfile": "client.pem", "ssl_keyfile": "client.key"}
            | {"ssl_password": KEY_PASSWORD},
            "OAUTH": {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"}
            | {"sasl_oauth_token_url": f"{self.tokens}/token", "sasl_oauth_client_id": CLIENT}
            | {"sasl_oauth_client_secret": CLIENT_SECRET},
        }[listener]
        return {key: value for key, value in {"ssl_cafile": "ca.pem", **known, **changed}.items() if value is not None}

    def logins(self, admin: KafkaAdminClient) -> None:
        """Give the user of SCRAM its passwords."""
        for mechanism in (ScramMechanism.SCRAM_SHA_512, ScramMechanism.SCRAM_SHA_256):
            admin.alter_user_scram_credentials([UserScramCredentialUpsertion(USER, mechanism, PASSWORD)])

    def written(self, name: str, options: dict[str, str]) -> Path:
        """Write an options file beside the certificates and return it."""
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(options))
        path.chmod(0o600)
        return path


def grant(admin: KafkaAdminClient, user: str, right: str, kind: str, name: str, *, prefix: bool = False) -> None:
    """Grant a right on a topic or group, or on all whose name begins so."""
    pattern = ResourcePattern(
        KINDS[kind], name, ACLResourcePatternType.PREFIXED if prefix else ACLResourcePatternType.LITERAL
    )
    admin.create_acls([ACL(f"User:{user}", "*", RIGHTS[right], ACLPermissionType.ALLOW, pattern)])


def revoke(admin: KafkaAdminClient, user: str, right: str, kind: str, name: str) -> None:
    """Take a right back, whether it was on a name or on all that begin so."""
    pattern = ResourcePatternFilter(KINDS[kind], name, ACLResourcePatternType.ANY)
    admin.delete_acls([ACLFilter(f"User:{user}", "*", RIGHTS[right], ACLPermissionType.ALLOW, pattern)])


@contextmanager
def running(home: Path, jars: Path) -> Iterator[Secured]:
    """Run a broker below a folder, and an endpoint of tokens beside it."""
    folder = home / "certificates"
    folder.mkdir(parents=True)
    certificates(folder)
    with endpoint(folder) as tokens, pytest.MonkeyPatch.context() as patch:
        made = Secured(folder, tokens=tokens)
        for listener in LISTENERS:
            made.addresses[listener] = f"{ports.HOST}:{ports.choose(listener, None, home / 'ports.json')}"
        listeners = ",".join(f"{name}://{address}" for name, address in made.addresses.items())
        more = PROPERTIES.format(listeners=listeners, folder=folder, tokens=tokens, security=SECURITY)
        java = broker._java
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={tokens}/keys"
        patch.setattr(broker, "PROPERTIES", broker.PROPERTIES + more)
        patch.setattr(broker, "_java", lambda place, path, *given: java(place, path, allowed, *given))
        started = broker.start(home, jars=jars)
        made.inner = started.bootstrap
        try:
            yield made
        finally:
            started.kill()


def certificates(folder: Path) -> None:
    """Make an authority, certificates of it for broker and client, and another authority."""
    authority_key, authority = _certificate("authority")
    (folder / "ca.pem").write_bytes(_pem(authority))
    (folder / "stranger.pem").write_bytes(_pem(_certificate("stranger")[1]))
    key, server = _certificate("broker", authority_key)
    (folder / "server.pem").write_bytes(_pem(key) + _pem(server))
    key, client = _certificate("ann", authority_key)
    (folder / "client.pem").write_bytes(_pem(client))
    (folder / "client.key").write_bytes(_pem(key, KEY_PASSWORD))
    (folder / "client.key").chmod(0o600)


def _certificate(name: str, issuer: Any = None) -> tuple[Any, Any]:
    key = rsa.generate_private_key(65537, 2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    by = subject if issuer is None else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(by, subject, key.public_key(), x509.random_serial_number(), now - DAY, now + DAY)
    made = made.add_extension(x509.BasicConstraints(issuer is None, None), critical=True)
    if name == "broker":
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(ports.HOST))])
        made = made.add_extension(address, critical=False)
    return key, made.sign(issuer or key, hashes.SHA256())


def _pem(thing: Any, password: str = "") -> bytes:
    if isinstance(thing, x509.Certificate):
        return bytes(thing.public_bytes(serialization.Encoding.PEM))
    how = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return bytes(thing.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))


@contextmanager
def endpoint(folder: Path) -> Iterator[str]:
    """Serve tokens for the client, and the key that proves them."""
    key = rsa.generate_private_key(65537, 2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) | {
        "kid": "k",
        "use": "sig",
        "alg": "RS256",
    }
    login = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(200, {"keys": [public]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != f"Basic {login}":
                self._send(401, {"error": "invalid_client"})
                return
            now = datetime.now(UTC)
            claims = {"sub": CLIENT, "aud": "kafka", "iat": now, "exp": now + DAY, "scope": "kafka"}
            token = jwt.encode(claims, key, "RS256", {"kid": "k"})
            self._send(200, {"access_token": token, "expires_in": 600, "token_type": "Bearer"})

        def _send(self, code: int, body: Any) -> None:
            content = json.dumps(body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer((ports.HOST, 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://{ports.HOST}:{server.server_port}"
    finally:
        server.shutdown()
