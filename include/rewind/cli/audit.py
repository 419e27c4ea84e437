"""`audit`: who did what."""

from __future__ import annotations

import argparse

from rich.table import Table

from rewind.cli import context, output, render
from rewind.registry import audit
from rewind.registry.snapshot import snapshot

MOST = 50


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    listed = subparsers.add_parser("audit", parents=[output.FORM], help="who did what, newest first")
    listed.add_argument("pipeline", nargs="?", default="", help="of which pipeline; without it of all")
    many = listed.add_mutually_exclusive_group()
    many.add_argument("--newest", type=int, default=MOST, help=f"how many (default {MOST})")
    many.add_argument("--all", action="store_true", help="all there are, to be kept elsewhere")
    listed.set_defaults(func=_audit)


def _audit(arguments: argparse.Namespace) -> int:
    named = [arguments.pipeline] if arguments.pipeline else None
    with snapshot(context.settings().registry_url) as connection:
        found = audit.read(connection, None if arguments.all else arguments.newest, named)
    table = Table("when", "who", "did", "pipeline", "to", "said", box=None)
    for line in found:
        said = ", ".join(f"{name} {value}" for name, value in line.said.items() if value not in (None, ""))
        table.add_row(render.when(line.at), line.person, line.action, line.pipeline, line.subject, said)
    output.show(arguments, found, table)
    return 0
