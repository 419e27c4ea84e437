"""Which name was meant by one that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def meant(name: str, known: Iterable[str]) -> str:
    """Return the known names as a cure, the nearest first: `Did you mean "from"? Known: from, to`."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    question = f'Did you mean "{near[0]}"? ' if near else ""
    return f"{question}Known: {', '.join(names) or 'nothing'}"
