"""The token of those that only read the pointer and the metrics: programs, which have no login."""

from __future__ import annotations

import hmac

from rewind.core.errors import RefusedError
from rewind.core.settings import Settings
from rewind.runtime.secrets import secret_file

SHORTEST = 32
"""Characters of a token: a shorter one could be guessed."""
CURE = "Make one: (umask 077; openssl rand -hex 32 > read-token)"


def bears(settings: Settings, authorization: str) -> bool:
    """Return whether an `Authorization` header bears the token; False where an installation has none.

    Raises:
        RefusedError: The file of the token is missing, can be read by others, or holds too short a one.
    """
    token = _token(settings)
    scheme, _, given = authorization.partition(" ")
    # In a time that says nothing of how much of it is right.
    same = hmac.compare_digest(given.strip().encode(), token.encode())
    return bool(token) and scheme.lower() == "bearer" and same


def _token(settings: Settings) -> str:
    path = settings.read_token_file
    if path is None:
        return ""
    token = secret_file.read(path, "REWIND_READ_TOKEN_FILE").strip()
    if len(token) < SHORTEST:
        raise RefusedError("REWIND_READ_TOKEN_FILE", f"holds less than {SHORTEST} characters", CURE)
    return token
