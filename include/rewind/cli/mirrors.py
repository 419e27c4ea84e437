"""`prove` and `record-deletion`: whether mirrors hold what they should, and what they rightly lack."""

from __future__ import annotations

import argparse

from rich.table import Table

from rewind.cli import context, output, render, trigger
from rewind.core.errors import RefusedError, RetryError
from rewind.core.offsets import told
from rewind.registry.mirrors import deletions, mirror_log
from rewind.registry.snapshot import snapshot
from rewind.views import status

DAG = "prove_mirrors"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    prove = subparsers.add_parser(
        "prove", parents=[output.FORM], help="look for records that a mirror has lost, or that are not as in Kafka"
    )
    prove.add_argument("--topic", default="", help="whose mirror; without it all are verified")
    prove.add_argument(
        "--dry-run", action="store_true", help="dry run: show what would be verified, and what was found last"
    )
    prove.set_defaults(func=_prove)
    deleted = subparsers.add_parser(
        "record-deletion",
        parents=[output.FORM],
        help=f"say that records were deleted from a mirror on purpose; {trigger.ONLY_TELLS}",
    )
    deleted.add_argument("topic", help="the mirrored topic")
    deleted.add_argument("--partition", type=int, required=True)
    deleted.add_argument("--from", dest="start", type=int, required=True, help="first offset")
    deleted.add_argument("--to", dest="end", type=int, required=True, help="offset after the last one")
    deleted.add_argument("--reason", default="", help="why, for the history")
    deleted.add_argument(
        "--dry-run",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="dry run (default); pass --no-dry-run to apply",
    )
    deleted.set_defaults(func=_record_deletion)


def _prove(arguments: argparse.Namespace) -> int:
    with snapshot(context.settings().registry_url) as connection:
        mirrored = mirror_log.topics(connection)
    if arguments.topic and arguments.topic not in mirrored:
        cure = f"Start it with mirror_{arguments.topic}, or choose one of {', '.join(mirrored) or 'none'}"
        raise RefusedError("topic", f"{arguments.topic!r} has no mirror", cure)
    if not arguments.dry_run:
        return trigger.tell_started(arguments, DAG, {"topic": arguments.topic} if arguments.topic else {})
    found = status.read(context.settings(), None)
    if not found.registry_read:
        raise RetryError(found.problems[0])
    wanted = [mirror for mirror in found.mirrors if mirror.topic in mirrored and arguments.topic in ("", mirror.topic)]
    table = Table("mirror", "version", "would be verified up to", "last proof", box=None)
    for mirror in wanted:
        table.add_row(mirror.topic, str(mirror.version), render.position(mirror.position), render.proof(mirror.proof))
    body = [{"topic": m.topic, "version": m.version, "position": m.position, "proof": m.proof} for m in wanted]
    output.show(arguments, body, table)
    return 0


def _record_deletion(arguments: argparse.Namespace) -> int:
    url = context.settings().registry_url
    wanted = (arguments.topic, arguments.partition, arguments.start, arguments.end)
    if arguments.dry_run:
        with snapshot(url) as connection:
            found = deletions.look(connection, *wanted)
    else:
        found = deletions.record(url, *wanted, arguments.reason)
    verb = "would be recorded" if arguments.dry_run else "recorded"
    lines = [f"{found.topic}: {verb} as deleted: {told(found.partition, part)}" for part in found.gone]
    body = {
        "topic": found.topic,
        "topic_id": found.topic_id,
        "partition": found.partition,
        "offsets": [[part.start, part.end] for part in found.gone],
        "recorded": not arguments.dry_run,
    }
    output.tell(arguments, body, lines or [f"{found.topic}: all of it is recorded as deleted already"])
    return 0
