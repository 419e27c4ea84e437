"""In what two generations differ: settings and files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rewind.core.pipeline import thaw
from rewind.core.plan import Difference

SHOWN = 12
"""Characters of a hash that tell files apart for a reader."""


def of_settings(live: Mapping[str, Any], candidate: Mapping[str, Any]) -> list[Difference]:
    """Return the settings in which two frozen configurations differ."""
    # A setting that a release did not know yet had its default.
    old, new = thaw(live).frozen(), thaw(candidate).frozen()
    return [Difference(key, str(old.get(key, "")), str(value)) for key, value in new.items() if old.get(key) != value]


def of_files(live: Mapping[str, str], candidate: Mapping[str, str]) -> list[Difference]:
    """Return the files in which two bundles differ, given their hashes by path."""
    return [
        Difference(path, live.get(path, "")[:SHOWN], candidate.get(path, "")[:SHOWN])
        for path in sorted(live.keys() | candidate.keys())
        if live.get(path) != candidate.get(path)
    ]
