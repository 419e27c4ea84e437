"""The file of Kafka's options: what it may hold, what fits together, and what both clients make of it."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from rewind.core.errors import RefusedError
from rewind.runtime.kafka import kafka_access
from rewind.runtime.kafka.kafka_access import FIELD, python_options, spark_options

SCRAM = {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512"}
LOGIN = {"sasl_plain_username": "ann", "sasl_plain_password": "hush-1"}
TOKEN = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "OAUTHBEARER",
    "sasl_oauth_token_url": "https://login.test/token",
    "sasl_oauth_client_id": "rewind",
    "sasl_oauth_client_secret": "hush-1",
}
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n"


@pytest.fixture
def installed(make_settings, tmp_path):
    """Settings with an options file: `installed({"security_protocol": "SSL"})`, or its text."""
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    (tmp_path / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00")
    (tmp_path / "store.p12").write_bytes(b"\x30\x82\x01\x00")
    for name, mode in (("key.pem", 0o600), ("open.pem", 0o644)):
        (tmp_path / name).write_text("-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n")
        (tmp_path / name).chmod(mode)

    def make(options, mode=0o600):
        path = tmp_path / "options.json"
        path.write_text(options if isinstance(options, str) else json.dumps(options))
        path.chmod(mode)
        return make_settings("a:1,b:2", REWIND_KAFKA_OPTIONS_FILE=str(path))

    return make


@pytest.mark.parametrize(
    ("options", "mode", "problem"),
    [
        ("{}", 0o640, "can be read by others"),
        ("{}", 0o604, "can be read by others"),
        ("{", 0o600, "is not JSON"),
        ("[]", 0o600, "is not a JSON object"),
        ('"x"', 0o600, "is not a JSON object"),
        ({"bootstrap_servers": "x"}, 0o600, "bootstrap_servers may not be set. Known: security_protocol"),
        ({"sasl_mechanisms": "PLAIN"}, 0o600, 'sasl_mechanisms may not be set. Did you mean "sasl_mechanism"?'),
        ({"ssl_check_hostname": "false"}, 0o600, "ssl_check_hostname may not be set"),
        ({"sasl_plain_password": 5}, 0o600, "sasl_plain_password is no text"),
        ({"sasl_plain_password": ""}, 0o600, "sasl_plain_password is no text"),
        (
            {"security_protocol": "TLS"},
            0o600,
            "security_protocol is 'TLS'. Use PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        ({"security_protocol": "SASL_SSL"}, 0o600, "sasl_mechanism is not set. Use PLAIN, SCRAM-SHA-256"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, 0o600, "sasl_mechanism is 'GSSAPI'. Use PLAIN"),
        (SCRAM, 0o600, "sasl_plain_username is not set. SCRAM-SHA-512 needs it"),
        ({**SCRAM, "sasl_plain_username": "ann"}, 0o600, "sasl_plain_password is not set. SCRAM-SHA-512 needs it"),
        (LOGIN, 0o600, "sasl_plain_username has no meaning with PLAINTEXT"),
        ({"security_protocol": "SSL", **LOGIN}, 0o600, "sasl_plain_username has no meaning with SSL"),
        (
            {**SCRAM, **LOGIN, "sasl_oauth_client_id": "x"},
            0o600,
            "sasl_oauth_client_id has no meaning with SASL_SSL and SCRAM",
        ),
        ({"ssl_cafile": "ca.pem"}, 0o600, "ssl_cafile has no meaning with PLAINTEXT"),
        ({**TOKEN, "sasl_oauth_token_url": "file:///x"}, 0o600, "sasl_oauth_token_url is no http or https address"),
        ({"security_protocol": "SSL", "ssl_cafile": "none"}, 0o600, "cannot be read (No such file or directory)"),
        ({"security_protocol": "SSL", "ssl_cafile": "key.pem"}, 0o600, "holds no certificate"),
        (
            {"security_protocol": "SSL", "ssl_cafile": "store.jks"},
            0o600,
            "store.jks is a JKS store, not PEM. Convert it: keytool",
        ),
        (
            {"security_protocol": "SSL", "ssl_cafile": "store.p12"},
            0o600,
            "is a PKCS#12 store, not PEM. Convert it: openssl pkcs12",
        ),
        ({"security_protocol": "SSL", "ssl_certfile": "ca.pem"}, 0o600, "ssl_keyfile is not set. SSL needs it"),
        ({"security_protocol": "SSL", "ssl_keyfile": "key.pem"}, 0o600, "ssl_certfile is not set. SSL needs it"),
        (
            {"security_protocol": "SSL", "ssl_certfile": "ca.pem", "ssl_keyfile": "ca.pem"},
            0o600,
            "ca.pem can be read by others",
        ),
        (
            {"security_protocol": "SSL", "ssl_certfile": "ca.pem", "ssl_keyfile": "open.pem"},
            0o600,
            "open.pem can be read by others",
        ),
    ],
)
def test_what_a_file_may_not_say_is_refused_by_name(installed, options, mode, problem):
    for read in (python_options, spark_options):
        with pytest.raises(RefusedError) as raised:
            read(installed(options, mode))
        assert raised.value.field.startswith(FIELD)
        assert problem in str(raised.value)
        assert "hush-1" not in str(raised.value)


def test_a_file_that_is_missing_is_named(make_settings, tmp_path):
    with pytest.raises(RefusedError, match="cannot be read"):
        python_options(make_settings(REWIND_KAFKA_OPTIONS_FILE=str(tmp_path / "none")))


def test_without_a_file_there_is_the_address_alone(make_settings):
    assert python_options(make_settings("a:1,b:2")) == {"bootstrap_servers": ["a:1", "b:2"]}
    assert spark_options(make_settings("a:1,b:2")) == {"kafka.bootstrap.servers": "a:1,b:2"}


def test_a_file_beside_it_is_found_and_travels_as_text(installed, tmp_path):
    settings = installed({"security_protocol": "SSL", "ssl_cafile": "ca.pem"})
    assert python_options(settings) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "security_protocol": "SSL",
        "ssl_cafile": str(tmp_path / "ca.pem"),
    }
    assert spark_options(settings) == {
        "kafka.bootstrap.servers": "a:1,b:2",
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.certificates": CERTIFICATE,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_names_and_passwords_keep_each_character(installed, mechanism):
    given = {**SCRAM, "sasl_mechanism": mechanism, "sasl_plain_username": 'a,b=c"d', "sasl_plain_password": 'x"\\\n;y'}
    scram = mechanism.startswith("SCRAM")
    found = python_options(installed(given))
    assert (found["sasl_plain_username"], found["sasl_plain_password"]) == (
        'a=2Cb=3Dc"d' if scram else 'a,b=c"d',
        'x"\\\n;y',
    )
    assert kafka_access.principal(found) == 'User:a,b=c"d'
    module = "scram.ScramLoginModule" if scram else "plain.PlainLoginModule"
    assert spark_options(installed(given))["kafka.sasl.jaas.config"] == (
        f'org.apache.kafka.common.security.{module} required username="a,b=c\\"d" password="x\\"\\\\\\n;y";'
    )


def test_a_token_is_had_by_both(installed, tmp_path):
    settings = installed({**TOKEN, "sasl_oauth_scope": "kafka", "ssl_cafile": "ca.pem"})
    found = python_options(settings)
    provider = found.pop("sasl_oauth_token_provider")
    assert provider is python_options(settings)["sasl_oauth_token_provider"], (
        "one token serves all clients of a process"
    )
    assert not [name for name in found if name.startswith("sasl_oauth")]
    options = spark_options(settings)
    assert options["kafka.sasl.jaas.config"] == (
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        ' clientId="rewind" clientSecret="hush-1" scope="kafka"'
        f' ssl.truststore.type="PEM" ssl.truststore.location="{tmp_path}/ca.pem";'
    )
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == "https://login.test/token"


@pytest.mark.parametrize("form", ["PKCS8", "TraditionalOpenSSL"])
@pytest.mark.parametrize("password", ["", "key pass"])
def test_a_key_of_any_form_reaches_spark_open(installed, tmp_path, form, password):
    key = rsa.generate_private_key(65537, 2048)
    kept = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, getattr(serialization.PrivateFormat, form), kept)
    (tmp_path / "key.pem").write_bytes(pem)
    given = {"security_protocol": "SSL", "ssl_certfile": "ca.pem", "ssl_keyfile": "key.pem"}
    options = spark_options(installed({**given, **({"ssl_password": password} if password else {})}))
    opened = serialization.load_pem_private_key(options["kafka.ssl.keystore.key"].encode(), None)
    assert opened.private_numbers() == key.private_numbers()
    assert options["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    assert options["kafka.ssl.keystore.certificate.chain"] == CERTIFICATE
    wrong = {**given, **({} if password else {"ssl_password": "no"})}
    with pytest.raises(RefusedError, match="ssl_keyfile cannot be opened"):
        spark_options(installed(wrong))
