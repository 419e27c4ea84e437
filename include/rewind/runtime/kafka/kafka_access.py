"""How Kafka is reached: one file that only its owner reads, for kafka-python and for Spark's Java client alike."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from kafka.net.sasl.oauth import AbstractTokenProvider

from rewind.core.errors import RefusedError, RetryError
from rewind.core.nearest import meant
from rewind.core.settings import Settings
from rewind.runtime.secrets import secret_file

FIELD = "REWIND_KAFKA_OPTIONS_FILE"
PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
LOGIN = ("sasl_plain_username", "sasl_plain_password")
TOKEN = ("sasl_oauth_token_url", "sasl_oauth_client_id", "sasl_oauth_client_secret")
NEEDED = {PLAIN: LOGIN, "SCRAM-SHA-256": LOGIN, "SCRAM-SHA-512": LOGIN, OAUTHBEARER: TOKEN}
"""What each SASL mechanism logs in with."""
FILES = ("ssl_cafile", "ssl_certfile", "ssl_keyfile")
OPTIONS = ("security_protocol", "sasl_mechanism", *LOGIN, *TOKEN, "sasl_oauth_scope", *FILES, "ssl_password")
"""What a file may set. Names are those of kafka-python where it has one."""
_MODULES = {
    PLAIN: "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    OAUTHBEARER: "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}
_TOKENS = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
_ESCAPED = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
_ANSWER_SECONDS = 10.0


def python_options(settings: Settings) -> dict[str, Any]:
    """Return the options of each kafka-python client of an installation.

    Raises:
        RefusedError: The file, or one that it names, is readable by others, lacks something or cannot be used.
    """
    given = _read(settings)
    options: dict[str, Any] = {name: value for name, value in given.items() if not name.startswith("sasl_oauth")}
    mechanism = given.get("sasl_mechanism", "")
    if mechanism == OAUTHBEARER:
        asked = (*TOKEN, "sasl_oauth_scope", "ssl_cafile")
        options["sasl_oauth_token_provider"] = _tokens(*(given.get(name, "") for name in asked))
    if mechanism.startswith("SCRAM"):
        # RFC 5802, 5.1: kafka-python leaves that to its caller, Java's client does it.
        options["sasl_plain_username"] = given["sasl_plain_username"].replace("=", "=3D").replace(",", "=2C")
    return {"bootstrap_servers": settings.bootstrap.split(","), **options}


def check_login(options: Mapping[str, Any]) -> None:
    """Check that a token is to be had, where the login is by one: a client that gets none says nothing of the reason.

    Raises:
        RefusedError: The endpoint knows no such client or secret.
        RetryError: It does not answer.
    """
    if (provider := options.get("sasl_oauth_token_provider")) is not None:
        provider.token()


def principal(options: Mapping[str, Any]) -> str:
    """Return by which name Kafka's rights know the user of a client, as `User:ann`; empty where only Kafka knows it."""
    name = str(options.get("sasl_plain_username", ""))
    if options.get("sasl_mechanism", "").startswith("SCRAM"):
        name = name.replace("=2C", ",").replace("=3D", "=")
    return f"User:{name}" if name else ""


def spark_options(settings: Settings) -> dict[str, str]:
    """Return the same for Spark's source and sink. Certificates and keys travel as texts: executors have no such files.

    Raises:
        RefusedError: As `python_options`.
    """
    given = _read(settings)
    options = {"bootstrap.servers": settings.bootstrap}
    if "security_protocol" in given:
        options["security.protocol"] = given["security_protocol"]
    if mechanism := given.get("sasl_mechanism"):
        options |= {"sasl.mechanism": mechanism, "sasl.jaas.config": _jaas(mechanism, given)}
    if mechanism == OAUTHBEARER:
        options["sasl.login.callback.handler.class"] = _TOKENS
        options["sasl.oauthbearer.token.endpoint.url"] = given["sasl_oauth_token_url"]
    if "ssl_cafile" in given:
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": Path(given["ssl_cafile"]).read_text()}
    if "ssl_certfile" in given:
        options |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": _open_key(given)}
        options["ssl.keystore.certificate.chain"] = Path(given["ssl_certfile"]).read_text()
    return {f"kafka.{name}": value for name, value in options.items()}


def _read(settings: Settings) -> dict[str, str]:
    path = settings.kafka_options_file
    if path is None:
        return {}
    # A name without a folder is that of a file beside this one.
    given = {name: str(path.parent / value) if name in FILES else value for name, value in _parsed(path).items()}
    _check_protocol(given)
    for name in FILES:
        if name in given:
            _check_pem(name, Path(given[name]))
    return given


def _parsed(path: Path) -> dict[str, str]:
    try:
        options = json.loads(secret_file.read(path, FIELD))
    except ValueError:
        raise RefusedError(FIELD, f"{path} is not JSON", "Write one JSON object of client options") from None
    if not isinstance(options, dict):
        raise RefusedError(FIELD, f"{path} is not a JSON object", "Write one JSON object of client options")
    for name, value in options.items():
        if name not in OPTIONS:
            raise RefusedError(FIELD, f"{name} may not be set", meant(name, OPTIONS))
        if not isinstance(value, str) or not value:
            raise RefusedError(FIELD, f"{name} is no text", "Write it in quotation marks, or leave it out")
    return options


def _check_protocol(given: Mapping[str, str]) -> None:
    """Check that what is given fits together: what is meant for another protocol would be passed over in silence."""
    protocol, mechanism = given.get("security_protocol", PLAINTEXT), given.get("sasl_mechanism")
    _one_of("security_protocol", protocol, PROTOCOLS)
    needed: tuple[str, ...] = ()
    if protocol in (SASL_PLAINTEXT, SASL_SSL):
        _one_of("sasl_mechanism", mechanism or "", tuple(NEEDED))
        needed = ("sasl_mechanism", *NEEDED[mechanism or PLAIN])
    useless = [name for name in given if name.startswith("sasl_") and name not in (*needed, "sasl_oauth_scope")]
    if protocol in (PLAINTEXT, SASL_PLAINTEXT):
        # An https endpoint of tokens may need the authority.
        useless += [name for name in given if name.startswith("ssl_") and mechanism != OAUTHBEARER]
    if "ssl_certfile" in given or "ssl_keyfile" in given:
        needed = (*needed, "ssl_certfile", "ssl_keyfile")
    if useless:
        told = f"{useless[0]} has no meaning with {protocol}{f' and {mechanism}' if mechanism else ''}"
        raise RefusedError(FIELD, told, "Take it out, or fix security_protocol and sasl_mechanism")
    if lacking := [name for name in needed if name not in given]:
        raise RefusedError(FIELD, f"{lacking[0]} is not set", f"{mechanism or protocol} needs it")
    if mechanism == OAUTHBEARER and urlsplit(given["sasl_oauth_token_url"]).scheme not in ("http", "https"):
        raise RefusedError(FIELD, "sasl_oauth_token_url is no http or https address", "Give the endpoint of tokens")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise RefusedError(
            FIELD, f"{name} is {value!r}" if value else f"{name} is not set", f"Use {', '.join(allowed)}"
        )


def _check_pem(name: str, path: Path) -> None:
    """Check that a file is PEM, which both clients read, and that only its owner reads a key."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RefusedError(FIELD, f"{name} {path} cannot be read ({error.strerror})", "Fix the name") from None
    if content[:4] == b"\xfe\xed\xfe\xed":
        into = f"keytool -importkeystore -srckeystore {path} -destkeystore store.p12 -deststoretype PKCS12"
        raise RefusedError(
            FIELD, f"{name} {path} is a JKS store, not PEM", f"Convert it: {into}; {_from_pkcs12('store.p12')}"
        )
    if content[:1] == b"\x30":
        raise RefusedError(
            FIELD, f"{name} {path} is a PKCS#12 store, not PEM", f"Convert it: {_from_pkcs12(str(path))}"
        )
    text = content.decode(errors="replace")
    if name != "ssl_keyfile":
        if "-----BEGIN CERTIFICATE-----" not in text:
            raise RefusedError(FIELD, f"{name} {path} holds no certificate", "Give a PEM file with BEGIN CERTIFICATE")
        return
    secret_file.read(path, f"{FIELD}: {name}")
    if "PRIVATE KEY-----" not in text:
        raise RefusedError(FIELD, f"{name} {path} holds no key", "Give a PEM file with BEGIN PRIVATE KEY")


def _from_pkcs12(store: str) -> str:
    key = f"openssl pkcs12 -in {store} -nocerts -out key.pem"
    return f"openssl pkcs12 -in {store} -nokeys -out certificates.pem; {key}"


def _open_key(given: Mapping[str, str]) -> str:
    """Return a client's key as PKCS#8 without its password: Kafka's Java client reads few kinds of encrypted ones."""
    from cryptography.hazmat.primitives import serialization

    password = given["ssl_password"].encode() if "ssl_password" in given else None
    try:
        key = serialization.load_pem_private_key(Path(given["ssl_keyfile"]).read_bytes(), password)
    except (TypeError, ValueError) as error:
        raise RefusedError(
            FIELD, f"ssl_keyfile cannot be opened: {error}", "Fix ssl_password, or leave it out"
        ) from None
    how = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return key.private_bytes(*how).decode()


def _jaas(mechanism: str, given: Mapping[str, str]) -> str:
    """Return the login line of a mechanism, as https://kafka.apache.org/documentation/#security_sasl has it."""
    values = {"username": given.get("sasl_plain_username"), "password": given.get("sasl_plain_password")}
    if mechanism == OAUTHBEARER:
        values = {"clientId": given["sasl_oauth_client_id"], "clientSecret": given["sasl_oauth_client_secret"]}
        values["scope"] = given.get("sasl_oauth_scope")
        if "ssl_cafile" in given and given["sasl_oauth_token_url"].startswith("https:"):
            values |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": given["ssl_cafile"]}
    told = "".join(f' {name}="{_quoted(value)}"' for name, value in values.items() if value is not None)
    return f"{_MODULES[mechanism]} required{told};"


def _quoted(text: str) -> str:
    # Java's StreamTokenizer takes a string apart.
    return "".join(_ESCAPED.get(character, character) for character in text)


@lru_cache
def _tokens(url: str, client: str, secret: str, scope: str, authority: str) -> ClientCredentials:
    return ClientCredentials(url, client, secret, scope, authority)


class ClientCredentials(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens of OAuth's client credentials grant (RFC 6749, 4.4), each used for most of its life."""

    def __init__(self, url: str, client: str, secret: str, scope: str = "", authority: str = "") -> None:
        """Ask for nothing yet.

        Args:
            url: Endpoint of tokens.
            client: Id of the client.
            secret: Its secret.
            scope: What for; empty for the endpoint's own choice.
            authority: PEM file of the authority that the endpoint's certificate is of; empty for the system's.
        """
        self._url, self._client, self._secret, self._scope, self._authority = url, client, secret, scope, authority
        self._lock = threading.Lock()
        self._token, self._until = "", 0.0

    def token(self) -> str:
        """Return a token that is valid.

        Raises:
            RefusedError: The endpoint knows no such client or secret.
            RetryError: The endpoint does not answer, or with something else.
        """
        with self._lock:
            if time.monotonic() >= self._until:
                self._token, seconds = self._ask()
                self._until = time.monotonic() + 0.8 * seconds
            return self._token

    def _ask(self) -> tuple[str, float]:
        login = base64.b64encode(f"{self._client}:{self._secret}".encode()).decode()
        form = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        asked = Request(self._url, urlencode(form).encode(), {"Authorization": f"Basic {login}"})
        trust = ssl.create_default_context(cafile=self._authority or None) if self._url.startswith("https:") else None
        try:
            with urlopen(asked, timeout=_ANSWER_SECONDS, context=trust) as answer:
                body = json.load(answer)
            return str(body["access_token"]), float(body.get("expires_in", 60))
        except HTTPError as error:
            told = f"the endpoint of tokens {self._url} answers {error.code}"
            if error.code in (400, 401, 403):
                cure = "Fix sasl_oauth_client_id and sasl_oauth_client_secret"
                raise RefusedError(FIELD, told, cure) from None
            raise RetryError(told) from None
        except (URLError, OSError, ValueError, KeyError, TypeError) as error:
            raise RetryError(f"the endpoint of tokens {self._url} gives none: {error}") from error
