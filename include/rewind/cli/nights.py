"""`nights`: what nightly replays found."""

from __future__ import annotations

import argparse

from rich.table import Table

from rewind.cli import context, output, render
from rewind.registry import nightly_replays
from rewind.registry.snapshot import snapshot
from rewind.views.status_nights import night_of

MOST = 30


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    listed = subparsers.add_parser(
        "nights", parents=[output.FORM], help="what nightly replays found, newest first; missed ones too"
    )
    listed.add_argument("pipeline", nargs="?", default="", help="of which pipeline; without it of all")
    listed.add_argument("--newest", type=int, default=MOST, help=f"how many (default {MOST})")
    listed.set_defaults(func=_nights)


def _nights(arguments: argparse.Namespace) -> int:
    named = [arguments.pipeline] if arguments.pipeline else None
    with snapshot(context.settings().registry_url) as connection:
        found = [night_of(night) for night in nightly_replays.newest(connection, arguments.newest, named)]
    table = Table("night", "pipeline", "state", "replayed", "offsets", "rows", "differ in", "evidence", "why", box=None)
    for night in found:
        differing = ", ".join(f"{name} {count:,}" for name, count in sorted(night.differing.items()))
        numbers = (render.count(night.offsets), render.count(night.rows))
        evidence = f"{night.replay_id}/{night.report}" if night.report else ""
        state = render.coloured(night.state)
        table.add_row(night.label, night.pipeline, state, night.sample, *numbers, differing, evidence, night.reason)
    output.show(arguments, found, table)
    return 0
