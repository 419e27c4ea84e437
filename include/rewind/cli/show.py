"""`status`, `resolve` and `plans show`: what is, and nothing changed."""

from __future__ import annotations

import argparse
import time

from rich.console import Console
from rich.live import Live

from rewind.cli import context, output, render
from rewind.core.planning import plan
from rewind.registry import rewinds
from rewind.registry.snapshot import snapshot
from rewind.views import status
from rewind.views.pointer import resolve

WATCH_SECONDS = 2.0
UNREADABLE = 75


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that only show."""
    shown = subparsers.add_parser(
        "status", parents=[output.FORM], help="pipelines, generations, positions, rewinds, garbage"
    )
    shown.add_argument("--watch", action="store_true", help="go on until interrupted")
    shown.set_defaults(func=_status)
    resolved = subparsers.add_parser(
        "resolve", parents=[output.FORM], help="which job of a pipeline is live, and where it writes"
    )
    resolved.add_argument("pipeline")
    resolved.set_defaults(func=_resolve)
    plans = subparsers.add_parser("plans", help="plans that dry runs made").add_subparsers(
        required=True, metavar="show"
    )
    one = plans.add_parser("show", parents=[output.FORM], help="print one plan")
    one.add_argument("id")
    one.set_defaults(func=_plan)


def _status(arguments: argparse.Namespace) -> int:
    if arguments.watch and not arguments.json:
        return _watch()
    settings = context.settings()
    found = status.read(settings, context.broker(settings))
    output.show(arguments, found, render.page(found))
    return 0 if found.registry_read else UNREADABLE


def _watch() -> int:
    settings = context.settings()
    with Live(console=Console(), screen=True, auto_refresh=False) as live:
        while True:
            live.update(render.page(status.read(settings, context.broker(settings))), refresh=True)
            time.sleep(WATCH_SECONDS)


def _resolve(arguments: argparse.Namespace) -> int:
    found = resolve(arguments.pipeline, context.settings().registry_url).to_json()
    output.tell(arguments, found, (f"{name:<18} {value}" for name, value in found.items()))
    return 0


def _plan(arguments: argparse.Namespace) -> int:
    with snapshot(context.settings().registry_url) as connection:
        found = rewinds.read_plan(connection, arguments.id)
    output.tell(arguments, found, plan.explain(found))
    return 0
