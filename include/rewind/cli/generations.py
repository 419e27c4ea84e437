"""`generations` and `diff`: what was live when and owns what, and in what two of them differ."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from rich.table import Table
from sqlalchemy import Connection

from rewind.cli import context, output, render
from rewind.core.errors import RefusedError
from rewind.core.model import Generation
from rewind.registry import generations
from rewind.registry.snapshot import snapshot
from rewind.views import generation_diff
from rewind.views.generation_diff import Compared
from rewind.views.status_generations import GenerationView, generations_of
from rewind.views.status_jobs import Ends


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands about generations."""
    listed = subparsers.add_parser(
        "generations", parents=[output.FORM], help="all generations of a pipeline, and what each owns"
    )
    listed.add_argument("pipeline")
    listed.set_defaults(func=_generations)
    diff = subparsers.add_parser("diff", parents=[output.FORM], help="what differs between two generations")
    diff.add_argument("old", help="job id")
    diff.add_argument("new", nargs="?", help="job id; by default the live one of the same pipeline")
    diff.add_argument("--code", action="store_true", help="their code line by line, too")
    diff.set_defaults(func=_diff)


def _generations(arguments: argparse.Namespace) -> int:
    settings = context.settings()
    ends = Ends(context.broker(settings), settings.bootstrap)
    found = generations_of(settings.registry_url, arguments.pipeline, ends)
    output.show(arguments, found, table(found))
    return 0


def table(found: Iterable[GenerationView]) -> Table:
    """Return generations as a table, a line for each thing that one owns."""
    made = Table("job", "state", "epochs", "made by", "handoff", "position", "lag", "owns", box=None)
    for view in found:
        job = view.job
        owns = "\n".join(f"{e.kind} {e.name} ({e.state})" for e in view.owns)
        places = (render.position(job.handoff or {}), render.position(job.position), render.count(job.lag))
        epochs = ", ".join(map(str, view.epochs))
        made.add_row(job.job_id, render.coloured(job.state), epochs, view.rewind_id or "deploy", *places, owns)
    return made


def _diff(arguments: argparse.Namespace) -> int:
    settings = context.settings()
    with snapshot(settings.registry_url) as connection:
        old = generations.read(connection, arguments.old)
        new = _live(connection, old) if arguments.new is None else generations.read(connection, arguments.new)
    found = generation_diff.compare(settings, old, new)
    output.tell(arguments, _body(found), [*_lines(found), *(found.lines if arguments.code else ())])
    return 0


def _live(connection: Connection, other: Generation) -> Generation:
    live = generations.live(connection, other.pipeline)
    if live is None:
        raise RefusedError("new", f"{other.pipeline} has no live job", "Name the other generation")
    return live[0]


def _body(found: Compared) -> dict[str, object]:
    pairs = [{"what": d.what, "old": d.live, "new": d.candidate} for d in found.differences]
    return {"old": found.old, "new": found.new, "differences": pairs, "code": found.lines, "notes": found.notes}


def _lines(found: Compared) -> Iterable[str]:
    yield f"{found.old} -> {found.new}: " + (f"{len(found.differences)} differ" if found.differences else "the same")
    yield from (f"  {d.what}: {d.live or 'absent'} -> {d.candidate or 'absent'}" for d in found.differences)
    yield from (f"  note: {note}" for note in found.notes)
