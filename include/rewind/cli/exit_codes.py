"""What the process returns, for the help of every command."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from rewind.core.errors import RewindError
from rewind.core.nearest import meant

INTERRUPTED = 130
WIDTH = 100


def known() -> dict[int, str]:
    """Return what each exit code means."""
    found = {0: "done", 1: "Airflow refused the request, or an unforeseen error", 2: "the arguments cannot be read"}
    for kind in _kinds(RewindError):
        said = " ".join((kind.__doc__ or "").partition("\n\n")[0].split())
        found.setdefault(kind.exit_code, said[:1].lower() + said[1:].rstrip("."))
    return {**dict(sorted(found.items())), INTERRUPTED: "interrupted"}


def epilog() -> str:
    """Return the exit codes as the last part of a help text."""
    lines = [line for code, text in known().items() for line in _wrapped(code, text)]
    return "\n".join(["exit codes:", *lines])


class Parser(argparse.ArgumentParser):
    """A parser that takes options by their whole names, and whose help ends with the exit codes; so do its commands."""

    def __init__(self, **kwargs: Any) -> None:
        """Make a parser as `argparse.ArgumentParser` does."""
        help_form = {"epilog": epilog(), "formatter_class": argparse.RawDescriptionHelpFormatter}
        # A prefix that is one option's today may be two options' in the next release.
        super().__init__(**{**help_form, "allow_abbrev": False, **kwargs})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as `argparse.ArgumentParser` does, and refuse what is left with the nearest option of this command."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            hint = f". {meant(unknown[0], options)}" if unknown[0].startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return found, unknown


def _kinds(root: type[RewindError]) -> list[type[RewindError]]:
    return [kind for below in root.__subclasses__() for kind in (below, *_kinds(below))]


def _wrapped(code: int, text: str) -> list[str]:
    return textwrap.wrap(f"{code:>5}  {text}", WIDTH, subsequent_indent=" " * 7, drop_whitespace=True)
