"""Since when there is an installation: what is scheduled begins after that, not with what was due before."""

from __future__ import annotations

from datetime import UTC, datetime

from rewind.core.settings import Settings

BEFORE_ALL = datetime(2025, 1, 1, tzinfo=UTC)
"""Of an installation that does not know."""


def begin(settings: Settings, at: datetime) -> None:
    """Record since when there is an installation; the first record stays.

    Args:
        settings: The installation, whose folder of data is there.
        at: The instant, with its zone.
    """
    file = settings.data / "since"
    if not file.exists():
        draft = file.with_name(".since")
        draft.write_text(at.isoformat())
        draft.replace(file)


def since(settings: Settings) -> datetime:
    """Return since when there is an installation."""
    try:
        return datetime.fromisoformat((settings.data / "since").read_text())
    except FileNotFoundError:
        return BEFORE_ALL
