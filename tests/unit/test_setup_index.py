"""Which index set-up uses: what is configured for pip or for uv holds for both."""

from __future__ import annotations

from pathlib import Path

import pytest
from provision import index


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user without settings."""
    return {
        "HOME": str(tmp_path),
        "PIP_CONFIG_FILE": str(tmp_path / "pip.conf"),
        "XDG_CONFIG_DIRS": str(tmp_path / "no"),
    }


def test_nothing_configured_is_nothing_said(home: dict[str, str]) -> None:
    pip = index.pip_settings(home | {"PIP_CONFIG_FILE": "/dev/null"})

    assert index.for_uv({key: value for key, value in pip.items() if key != "cert"}, home) == {}
    assert index.uv_options(pip) == []


def test_pips_file_holds_for_uv(home: dict[str, str]) -> None:
    Path(home["PIP_CONFIG_FILE"]).write_text(
        "[global]\nindex-url = https://user:p%40ss@mirror.test/simple\ntimeout = 7\ncert = /ours.pem\n"
        "[install]\nextra-index-url = https://a.test/simple\n  https://b.test/simple\ntrusted-host = a.test\n"
        "proxy = http://proxy.test:3128\nfind-links = /wheels\n"
    )

    assert index.for_uv(index.pip_settings(home), home) == {
        "ALL_PROXY": "http://proxy.test:3128",
        "SSL_CERT_FILE": "/ours.pem",
        "UV_DEFAULT_INDEX": "https://user:p%40ss@mirror.test/simple",
        "UV_FIND_LINKS": "/wheels",
        "UV_HTTP_TIMEOUT": "7",
        "UV_INDEX": "https://a.test/simple https://b.test/simple",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_INSECURE_HOST": "a.test",
    }


def test_pips_variables_come_before_its_files_and_install_before_global(home: dict[str, str]) -> None:
    Path(home["PIP_CONFIG_FILE"]).write_text(
        "[install]\nindex-url = https://b.test\n[global]\nindex-url = https://a.test\n"
    )

    assert index.pip_settings(home)["index-url"] == "https://b.test"
    assert index.pip_settings(home | {"PIP_INDEX_URL": "https://c.test"})["index-url"] == "https://c.test"


@pytest.mark.parametrize("name", ["UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS"])
def test_an_index_that_is_uvs_own_stays(home: dict[str, str], name: str) -> None:
    given = home | {name: "https://own.test/simple"}

    assert index.for_uv({"index-url": "https://pip.test/simple"}, given) == {}


def test_an_index_in_uvs_file_stays_and_pip_takes_it_too(home: dict[str, str]) -> None:
    file = Path(home["HOME"]) / ".config" / "uv" / "uv.toml"
    file.parent.mkdir(parents=True)
    file.write_text(
        '[[index]]\nurl = "https://extra.test"\n[[index]]\nurl = "https://own.test/simple"\ndefault = true\n'
    )

    assert index.for_uv({"index-url": "https://pip.test/simple"}, home) == {}
    assert index.for_pip({}, home) == {"PIP_INDEX_URL": "https://own.test/simple"}
    assert index.for_pip({"index-url": "https://pip.test/simple"}, home) == {}


def test_pip_takes_a_named_index_of_uv(home: dict[str, str]) -> None:
    given = home | {"UV_DEFAULT_INDEX": "ours=https://own.test/simple?a=b"}

    assert index.for_pip({}, given) == {"PIP_INDEX_URL": "https://own.test/simple?a=b"}


@pytest.mark.parametrize(
    ("said", "options"), [("true", ["--no-index"]), ("1", ["--no-index"]), ("false", []), ("0", [])]
)
def test_no_index_has_no_variable_of_uv(said: str, options: list[str]) -> None:
    assert index.uv_options({"no-index": said}) == options
