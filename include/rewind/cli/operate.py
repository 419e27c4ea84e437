"""Commands that write to the registry what running jobs read, and `upgrade`, which brings it to this release."""

from __future__ import annotations

import argparse
import getpass

from rewind.cli import context
from rewind.control import database, deaths, leases, steering, streams
from rewind.control.database import transaction


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that steer what runs."""
    for name, function, text in (
        ("pause", _pause, "pause the backfill of a rewind after its chunk"),
        ("resume", _resume, "let it go on"),
        ("throttle", _throttle, "limit its speed"),
        ("finish", _finish, "end the observation of a rewind now"),
    ):
        verb = subparsers.add_parser(name, help=text)
        verb.add_argument("rewind", help="id of the rewind, as `status` shows it")
        verb.set_defaults(func=function)
        if name == "throttle":
            verb.add_argument("--rate", type=int, help="records per second; without it the limit is lifted")
    for name, text in (("run", "let a stream run; lifts a quarantine"), ("drain", "end it after its batch")):
        verb = subparsers.add_parser(name, help=text)
        verb.add_argument("owner", help="a job id, or mirror-<topic>")
        verb.set_defaults(func=_wish, wanted={"run": streams.RUN, "drain": streams.DRAIN}[name])
    upgrade = subparsers.add_parser("upgrade", help="bring the registry to this release's schema")
    upgrade.set_defaults(func=_upgrade)
    dead = subparsers.add_parser("declare-dead", help="say that a driver is dead, where nothing can prove it")
    dead.add_argument("owner", help="a job id, or mirror-<topic>")
    dead.add_argument("--token", type=int, help="the token that is meant; without it, who holds which is told")
    dead.add_argument("--reason", default="", help="how you know, for the history")
    dead.set_defaults(func=_declare_dead)


def _pause(arguments: argparse.Namespace) -> int:
    return _control(arguments.rewind, paused=True)


def _resume(arguments: argparse.Namespace) -> int:
    return _control(arguments.rewind, paused=False)


def _control(rewind: str, *, paused: bool) -> int:
    limit = steering.pause(context.settings().registry_url, rewind, paused=paused)
    print(
        f"{rewind}: {'paused' if paused else 'goes on'}{f', at most {limit} records/s' if limit and not paused else ''}"
    )
    return 0


def _throttle(arguments: argparse.Namespace) -> int:
    steering.throttle(context.settings().registry_url, arguments.rewind, arguments.rate)
    print(f"{arguments.rewind}: {f'at most {arguments.rate} records/s' if arguments.rate else 'no limit'}")
    return 0


def _finish(arguments: argparse.Namespace) -> int:
    steering.finish(context.settings().registry_url, arguments.rewind)
    print(f"{arguments.rewind}: its observation ends at the next look")
    return 0


def _upgrade(_: argparse.Namespace) -> int:
    database.upgrade(context.settings().registry_url)
    print("the registry has the schema of this release")
    return 0


def _declare_dead(arguments: argparse.Namespace) -> int:
    settings, owner = context.settings(), arguments.owner
    if arguments.token is None:
        with transaction(settings.registry_url) as connection:
            found = deaths.held(connection, owner)
        lives = "lives, or may live" if found.holder and leases.alive(found.holder) else "is gone: nothing to declare"
        print(f"{owner}: token {found.token} is held by {found.holder}, which {lives}")
        print(f"if it is dead: rewind declare-dead {owner} --token {found.token} --reason '<how you know>'")
        return 0
    deaths.declare(settings, owner, arguments.token, getpass.getuser(), arguments.reason)
    print(f"{owner}: the holder of token {arguments.token} is declared dead; its supervisor starts another driver")
    return 0


def _wish(arguments: argparse.Namespace) -> int:
    with transaction(context.settings().registry_url) as connection:
        stream = streams.needed(connection, arguments.owner)
        streams.wish(connection, arguments.owner, stream.kind, arguments.wanted)
    print(f"{arguments.owner}: wished to {arguments.wanted}")
    return 0
