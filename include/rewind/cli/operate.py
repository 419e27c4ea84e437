"""Commands that write to the registry what running jobs read, and `upgrade`, which brings it to this release."""

from __future__ import annotations

import argparse
import getpass

from rewind.cli import context, output
from rewind.core.settings import Settings
from rewind.registry import adjustments, audit, database, leases, owners, schema, streams
from rewind.registry.database import reading, writing
from rewind.runtime.drivers import declared_dead


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that steer what runs."""
    for name, function, text in (
        ("pause", _pause, "pause the backfill of a rewind after its chunk"),
        ("resume", _resume, "let it go on"),
        ("throttle", _throttle, "limit its speed"),
        ("finish", _finish, "end the observation of a rewind now"),
    ):
        verb = subparsers.add_parser(name, parents=[output.FORM], help=text)
        verb.add_argument("rewind", help="id of the rewind, as `status` shows it")
        verb.set_defaults(func=function)
        if name == "throttle":
            verb.add_argument("--rate", type=int, help="records per second; without it the limit is lifted")
    for name, text in (("run", "let a stream run; lifts a quarantine"), ("drain", "end it after its batch")):
        verb = subparsers.add_parser(name, parents=[output.FORM], help=text)
        verb.add_argument("owner", help="a job id, or mirror-<topic>")
        verb.set_defaults(func=_wish, wanted={"run": streams.RUN, "drain": streams.DRAIN}[name])
    upgrade = subparsers.add_parser(
        "upgrade", parents=[output.FORM], help="bring the registry to this release's schema"
    )
    upgrade.set_defaults(func=_upgrade)
    dead = subparsers.add_parser(
        "declare-dead", parents=[output.FORM], help="say that a driver is dead, where nothing can prove it"
    )
    dead.add_argument("owner", help="a job id, or mirror-<topic>")
    dead.add_argument("--token", type=int, help="the token that is meant; without it, who holds which is shown")
    dead.add_argument("--reason", default="", help="how you know, for the history")
    dead.add_argument("--stopped", action="store_true", help="you have seen its processes gone, or frozen")
    dead.set_defaults(func=_declare_dead)


def _pause(arguments: argparse.Namespace) -> int:
    return _control(arguments, paused=True)


def _resume(arguments: argparse.Namespace) -> int:
    return _control(arguments, paused=False)


def _control(arguments: argparse.Namespace, *, paused: bool) -> int:
    limit = adjustments.pause(context.settings().registry_url, arguments.rewind, getpass.getuser(), paused=paused)
    limited = f", at most {limit} records/s" if limit and not paused else ""
    return _tell_controls(arguments, paused, limit, f"{'paused' if paused else 'goes on'}{limited}")


def _throttle(arguments: argparse.Namespace) -> int:
    rate = arguments.rate
    paused = adjustments.throttle(context.settings().registry_url, arguments.rewind, getpass.getuser(), rate)
    return _tell_controls(arguments, paused, rate, f"at most {rate} records/s" if rate else "no limit")


def _tell_controls(arguments: argparse.Namespace, paused: bool, rate: int | None, text: str) -> int:
    body = {"rewind_id": arguments.rewind, "paused": paused, "records_per_second": rate}
    output.tell(arguments, body, [f"{arguments.rewind}: {text}"])
    return 0


def _finish(arguments: argparse.Namespace) -> int:
    adjustments.finish(context.settings().registry_url, arguments.rewind, getpass.getuser())
    body = {"rewind_id": arguments.rewind, adjustments.FINISH: True}
    output.tell(arguments, body, [f"{arguments.rewind}: its observation ends at the next look"])
    return 0


def _upgrade(arguments: argparse.Namespace) -> int:
    database.upgrade(context.settings().registry_url)
    with reading(context.settings().registry_url) as connection:
        contested = [each.told() for each in owners.contested(connection)]
    body = {"protocol": schema.PROTOCOL, "contested": contested}
    output.tell(arguments, body, ["the registry has the schema of this release", *contested])
    return 0


def _declare_dead(arguments: argparse.Namespace) -> int:
    settings, owner, token = context.settings(), arguments.owner, arguments.token
    if token is None:
        return _tell_holder(arguments, settings)
    declared_dead.declare(settings, owner, token, getpass.getuser(), arguments.reason, stopped=arguments.stopped)
    text = f"{owner}: the holder of token {token} is declared dead; its supervisor starts another driver"
    output.tell(arguments, {"owner": owner, "token": token, "declared_dead": True}, [text])
    return 0


def _tell_holder(arguments: argparse.Namespace, settings: Settings) -> int:
    owner = arguments.owner
    with reading(settings.registry_url) as connection:
        found = declared_dead.held(connection, owner)
    alive = found.holder is not None and leases.alive(found.holder)
    ends = f"{found.renewed_at + declared_dead.CUT_OFF:%H:%M:%S}Z"
    lives = "lives, or may live" if alive else "is gone: nothing to declare"
    lines = [
        f"{owner}: token {found.token} is held by {found.holder}, which {lives}",
        f"if it is dead: rewind declare-dead {owner} --token {found.token} --reason '<how you know>'",
        f"add --stopped if you saw its processes gone or frozen; one that only lost the registry has ended at {ends}",
    ]
    output.tell(arguments, {"owner": owner, "token": found.token, "holder": found.holder, "alive": alive}, lines)
    return 0


def _wish(arguments: argparse.Namespace) -> int:
    owner, wanted = arguments.owner, arguments.wanted
    with writing(context.settings().registry_url) as connection:
        stream = streams.needed(connection, owner)
        streams.wish(connection, owner, stream.kind, wanted)
        audit.note(connection, audit.Act(getpass.getuser(), wanted, audit.of_owner(connection, owner), owner))
    output.tell(arguments, {"owner": owner, "wish": wanted}, [f"{owner}: desired state {wanted}"])
    return 0
