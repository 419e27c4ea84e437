"""What differs between two versions of a pipeline: settings, kept state, files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rewind.core.pipeline import Pipeline


@dataclass(frozen=True)
class Version:
    """One version of a pipeline.

    Attributes:
        config: Its configuration, `Pipeline.frozen()`.
        state: What state it keeps, operator by operator.
        files: SHA-256 of every file, by its path within the bundle's source.
    """

    config: Mapping[str, Any]
    state: tuple[str, ...]
    files: Mapping[str, str]


@dataclass(frozen=True)
class Difference:
    """One thing in which the candidate differs from live: a setting or a file.

    Attributes:
        what: Name of the setting, or path of the file within the bundle.
        live: Live's value, or a short hash of its file; empty when live has none.
        candidate: The candidate's.
    """

    what: str
    live: str
    candidate: str


def differences(live: Version, candidate: Version) -> list[Difference]:
    """Return what differs: settings, then state, then files by path."""
    # A setting that an older release did not know yet had its default.
    old, new = Pipeline.from_frozen(live.config).frozen(), Pipeline.from_frozen(candidate.config).frozen()
    settings = [
        Difference(key, str(old.get(key, "")), str(value)) for key, value in new.items() if old.get(key) != value
    ]
    kept = [Difference("state", "; ".join(live.state), "; ".join(candidate.state))]
    files = [
        Difference(path, live.files.get(path, "")[:12], candidate.files.get(path, "")[:12])
        for path in sorted(candidate.files.keys() | live.files.keys())
        if live.files.get(path) != candidate.files.get(path)
    ]
    return settings + (kept if live.state != candidate.state else []) + files
