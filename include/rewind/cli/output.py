"""How a command answers: lines or tables for a person, or with `--json` one value for a machine."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import Any

from rich.console import Console, RenderableType

from rewind.views.status import plain

FORM = argparse.ArgumentParser(add_help=False)
"""Parent of every command that answers with a value."""
FORM.add_argument("--json", action="store_true", help="as JSON; integers are exact")


def tell(arguments: argparse.Namespace, body: Any, lines: Iterable[str]) -> None:
    """Print a value: as JSON when it was asked for, else as lines."""
    if arguments.json:
        print_json(body)
    else:
        for line in lines:
            print(line)


def show(arguments: argparse.Namespace, body: Any, *tables: RenderableType) -> None:
    """Print a value: as JSON when it was asked for, else as tables."""
    if arguments.json:
        print_json(body)
    else:
        Console().print(*tables, sep="\n")


def print_json(body: Any) -> None:
    """Print any value of the view as JSON."""
    print(json.dumps(plain(body), indent=2, sort_keys=False))
