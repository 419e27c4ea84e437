"""All commands, and what the process returns."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise

from rewind.cli.exit_codes import INTERRUPTED, Parser
from rewind.core.errors import RefusedError, RewindError

COMMANDS = (
    "rewind.cli.show",
    "rewind.cli.generations",
    "rewind.cli.trigger",
    "rewind.cli.answer",
    "rewind.cli.operate",
    "rewind.cli.collect",
    "rewind.cli.mirrors",
    "rewind.cli.nights",
    "rewind.cli.audit",
    "rewind.cli.pointer_server",
    "rewind.cli.completion",
    "rewind.cli.stack",
    "rewind.cli.demo",
)
"""Modules with an `add_parser(subparsers)`; each command sets `func(arguments) -> exit code`."""


def main(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; an error raised on purpose is one line on stderr."""
    parsed = parser().parse_args(arguments)
    try:
        _refuse_empty(arguments)
        return int(parsed.func(parsed))
    except RewindError as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has enough of it (`| head`): that is no failure, and nothing more can be printed.
        sys.stderr.close()
        return 0


def _refuse_empty(arguments: Sequence[str]) -> None:
    """Refuse an empty text: it is a variable of a script that was not set, and would be taken for a default.

    Raises:
        RefusedError: There is one.
    """
    for before, word in pairwise(("", *arguments)):
        option, equals, value = word.partition("=")
        if not word.strip() or (word.startswith("--") and equals and not value.strip()):
            named = option if equals else before if before.startswith("--") else "arguments"
            raise RefusedError(named, "is empty", "Give a value, or leave it out")


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    made = Parser(prog="rewind", description="Reprocess a streaming pipeline beside itself.")
    subparsers = made.add_subparsers(required=True, metavar="command")
    for name in COMMANDS:
        import_module(name).add_parser(subparsers)
    return made
