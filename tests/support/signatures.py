"""What a class offers, to compare a fake with the real thing."""

from __future__ import annotations

import inspect


def public(kind: type) -> dict[str, list[str]]:
    """Return the parameters of the public methods that a class itself defines, by name."""
    functions = {name: method for name, method in vars(kind).items() if inspect.isfunction(method) and name[0] != "_"}
    return {name: list(inspect.signature(method).parameters) for name, method in functions.items()}
