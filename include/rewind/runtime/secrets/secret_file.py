"""Files with secrets: only their owner may read them."""

from __future__ import annotations

from pathlib import Path

from rewind.core.errors import RefusedError


def read(path: Path, field: str) -> str:
    """Return the text of a file with secrets.

    Args:
        path: The file.
        field: The variable that names it.

    Raises:
        RefusedError: It cannot be read, or others than its owner can read it.
    """
    try:
        if path.stat().st_mode & 0o077:
            raise RefusedError(field, f"{path} can be read by others", "chmod 600 it: it holds secrets")
        return path.read_text()
    except OSError as error:
        raise RefusedError(field, f"{path} cannot be read ({error.strerror})", "Make it, or unset it") from None
