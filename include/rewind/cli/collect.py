"""`collect`: what would be deleted and when, or a run of the DAG that deletes it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from rewind.cli import context, output, render, trigger
from rewind.core.errors import RetryError
from rewind.views import status
from rewind.views.status_garbage import Garbage

DAG = "collect_garbage"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    collect = subparsers.add_parser(
        "collect", parents=[output.FORM], help="what is to be deleted, and when; --no-dry-run deletes what is due"
    )
    collect.add_argument(
        "--dry-run",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="dry run (default); pass --no-dry-run to apply",
    )
    collect.set_defaults(func=_collect)


def _collect(arguments: argparse.Namespace) -> int:
    if not arguments.dry_run:
        return trigger.tell_started(arguments, DAG, {"dry_run": False})
    # What is garbage is in the registry alone: Kafka need not be there.
    found = status.read(context.settings(), None)
    if not found.registry_read:
        raise RetryError(found.problems[0])
    garbage = [thing for pipeline in found.pipelines for thing in pipeline.garbage]
    output.show(arguments, garbage, table(garbage))
    return 0


def table(garbage: Iterable[Garbage]) -> RenderableType:
    """Return what is to be deleted as a table, a line for each thing."""
    made = Table("job", "state", "goes", "why it is there", "things", box=None)
    for left in garbage:
        goes = render.when(left.due_at) if left.due_at else "at once"
        things = "\n".join(f"{kind} {name}" for kind, name in left.things)
        made.add_row(left.job_id, render.coloured(left.state), goes, left.waits, things)
    return made if made.row_count else Text("Nothing is to be deleted.")
