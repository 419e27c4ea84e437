"""Rewind: reprocess a streaming pipeline beside itself, compare, switch, collect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rewind.transforms.spans import span
    from rewind.views.pointer import Resolved, resolve

__all__ = ["Resolved", "resolve", "span"]

# `import rewind` must cost nothing and need nothing but the standard library: drivers, DAG files and readers
# import it alike. So what is offered here is loaded when it is asked for.
_HOMES = {
    "resolve": "rewind.views.pointer",
    "Resolved": "rewind.views.pointer",
    "span": "rewind.transforms.spans",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rewind' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
