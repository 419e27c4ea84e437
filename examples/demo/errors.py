"""What the demo says when something is not as it should be."""

from __future__ import annotations

from rewind.core.errors import RewindError


class DemoError(RewindError):
    """Something was not as it should be."""
