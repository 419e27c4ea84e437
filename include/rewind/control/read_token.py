"""The read-only token: by it readers and scrapers without a login get the pointer and the metrics, and nothing else."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from pathlib import Path

from rewind.core.errors import RefusedError

TOKEN, FILE = "REWIND_READ_TOKEN", "REWIND_READ_TOKEN_FILE"
SHORTEST = 16
"""Characters; a shorter one could be guessed."""
SCHEME = "bearer"


def from_environment(environment: Mapping[str, str]) -> str | None:
    """Return the token of an installation, or None when none is set.

    Raises:
        RefusedError: It is too short, or its file is missing, or open to others.
    """
    path = environment.get(FILE)
    token = _read(Path(path)) if path else environment.get(TOKEN)
    if token and len(token) < SHORTEST:
        problem = f"has fewer than {SHORTEST} characters"
        raise RefusedError(FILE if path else TOKEN, problem, "Make one with `openssl rand -hex 32`")
    return token or None


def presented(header: str, token: str | None) -> bool:
    """Return whether an `Authorization` header carries the token; how long that takes tells nothing of it."""
    scheme, _, given = header.partition(" ")
    return token is not None and scheme.lower() == SCHEME and hmac.compare_digest(given.encode(), token.encode())


def _read(path: Path) -> str:
    try:
        if path.stat().st_mode & 0o077:
            raise RefusedError(FILE, f"{path} is open to others", "Give it mode 0600")
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        raise RefusedError(FILE, f"{path} cannot be read ({error})", f"Mend it, or leave {FILE} out") from None
