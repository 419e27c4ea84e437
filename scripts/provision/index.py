"""One setting of the package index for pip and uv, whichever of them the user has configured.

pip fetches uv, and uv the rest; but uv does not read pip's files and variables, nor pip those of uv. What is set for
the one holds for the other, unless that has a setting of its own.
"""

from __future__ import annotations

import configparser
import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_OWN_INDEX = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS")
_NO = ("", "0", "false", "no", "off")


def pip_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what pip goes by when it installs, by option: variables before `[install]` before `[global]`."""
    parser = configparser.RawConfigParser()
    chosen = environment.get("PIP_CONFIG_FILE")
    # The last one wins, as with pip; null device: no file at all.
    parser.read([] if chosen == os.devnull else [*_pip_files(environment), *([chosen] if chosen else [])])
    found: dict[str, str] = {}
    for section in ("global", "install"):
        found |= dict(parser.items(section)) if parser.has_section(section) else {}
    named = {key[4:].lower(): value for key, value in environment.items() if key.startswith("PIP_") and value}
    return {key.replace("_", "-"): value for key, value in (found | named).items()}


def for_pip(pip: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that pip needs beside its own settings."""
    url = environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL") or _default(uv_file(environment))
    # uv takes `name=url`.
    return {"PIP_INDEX_URL": url[url.find("=http") + 1 :]} if url and "index-url" not in pip else {}


def for_uv(pip: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that uv needs beside its own settings."""
    wanted = {
        "SSL_CERT_FILE": pip.get("cert") or environment.get("REQUESTS_CA_BUNDLE"),
        "SSL_CLIENT_CERT": pip.get("client-cert"),
        "UV_HTTP_TIMEOUT": pip.get("timeout") or pip.get("default-timeout"),
        "UV_INSECURE_HOST": _listed(pip.get("trusted-host"), " "),
        "ALL_PROXY": pip.get("proxy"),
    }
    own = uv_file(environment)
    if not any(environment.get(name) for name in _OWN_INDEX) and not own.keys() & {"index", "index-url", "find-links"}:
        wanted |= {
            "UV_DEFAULT_INDEX": pip.get("index-url"),
            "UV_INDEX": _listed(pip.get("extra-index-url"), " "),
            "UV_FIND_LINKS": _listed(pip.get("find-links"), ","),
            # As pip does: whichever index has it. The hashes hold what is taken.
            "UV_INDEX_STRATEGY": "unsafe-best-match" if "extra-index-url" in pip else None,
        }
    return {name: value for name, value in wanted.items() if value and not environment.get(name)}


def uv_options(pip: Mapping[str, str]) -> list[str]:
    """Return the options of uv that have no variable."""
    return ["--no-index"] if pip.get("no-index", "").lower() not in _NO else []


def uv_file(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of the user's or the system's `uv.toml`, with those of its `[pip]`."""
    chosen = environment.get("UV_CONFIG_FILE")
    for path in [Path(chosen)] if chosen else [_config(environment) / "uv" / "uv.toml", Path("/etc/uv/uv.toml")]:
        if path.is_file():
            settings = tomllib.loads(path.read_text())
            pip: dict[str, Any] = settings.get("pip", {})
            return settings | pip
    return {}


def _pip_files(environment: Mapping[str, str]) -> list[Path]:
    home = Path(environment.get("HOME", "~")).expanduser()
    mac = home / "Library" / "Application Support" / "pip"
    own = mac if sys.platform == "darwin" and mac.is_dir() else _config(environment) / "pip"
    shared = [Path(folder, "pip") for folder in environment.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":")]
    folders = [*shared, Path("/Library/Application Support/pip"), Path("/etc"), home / ".pip", own, Path(sys.prefix)]
    return [folder / "pip.conf" for folder in folders]


def _config(environment: Mapping[str, str]) -> Path:
    home = Path(environment.get("HOME", "~")).expanduser()
    return Path(environment.get("XDG_CONFIG_HOME") or home / ".config")


def _default(settings: Mapping[str, Any]) -> str:
    chosen = [str(index["url"]) for index in settings.get("index", []) if index.get("default")]
    return chosen[0] if chosen else str(settings.get("index-url", ""))


def _listed(value: str | None, separator: str) -> str | None:
    return separator.join(value.split()) if value else None
