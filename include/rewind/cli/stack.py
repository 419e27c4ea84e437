"""`python -m rewind stack up|down|status|logs`."""

from __future__ import annotations

import argparse
import subprocess

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rewind.cli import output
from rewind.core.errors import RefusedError
from rewind.local import stack
from rewind.local.voice import Voice

NEXT = "make demo, make status, make logs NAME=scheduler, or make down"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command `stack` and its four verbs; each sets `func(args) -> exit code`."""
    parser = subparsers.add_parser("stack", help="the local stack: a broker and Airflow")
    verbs = parser.add_subparsers(required=True, metavar="up|down|status|logs")
    for name, function, text in (
        ("up", _up, "start what does not run"),
        ("down", _down, "stop everything"),
        ("status", _status, "show the processes; exit code 3 when one does not run"),
    ):
        verbs.add_parser(name, parents=[output.FORM], help=text).set_defaults(func=function)
    logs = verbs.add_parser("logs", help="show the log of one process")
    logs.add_argument("name", nargs="?", default="scheduler", help=", ".join(stack.NAMES))
    logs.add_argument("-f", "--follow", action="store_true", help="go on until interrupted")
    logs.add_argument("-n", "--lines", type=int, default=50, help="so many lines from the end")
    logs.set_defaults(func=_logs)


def _up(arguments: argparse.Namespace) -> int:
    voice = Voice(Console(stderr=True))
    with voice.doing("Starting the broker and Airflow"):
        running = stack.up(stack.home(), voice=voice)
        errors = {failed["filename"]: _error_of(failed) for failed in running.api().import_errors()}
    broken = [Text.assemble(("cannot be imported: ", "red"), f"{name}: {line}") for name, line in errors.items()]
    body = {"airflow": running.airflow_url, "kafka": running.broker.bootstrap, "cannot_be_imported": errors}
    output.show(arguments, body, summary(running), *broken)
    return 0


def summary(running: stack.Stack) -> Table:
    """Return how to reach a stack, and what to do next."""
    table = Table.grid(padding=(0, 2))
    for name, value in (
        ("Airflow", running.airflow_url),
        ("user", running.user),
        ("password", running.password),
        ("Kafka", running.broker.bootstrap),
        ("next", NEXT),
    ):
        table.add_row(name, value)
    return table


def _down(arguments: argparse.Namespace) -> int:
    with Console(stderr=True).status("Stopping Airflow, the streams and the broker"):
        stack.down(stack.home())
    output.tell(
        arguments, {"down": True, "home": stack.home()}, [f"The stack is down; its data stays in {stack.home()}"]
    )
    return 0


def _status(arguments: argparse.Namespace) -> int:
    members = stack.status(stack.home())
    table = Table("process", "state", "pid", "log")
    for member in members:
        table.add_row(member.name, member.state, str(member.pid or ""), str(member.log))
    output.show(arguments, members, table)
    return 0 if all(member.pid for member in members) else 3


def _logs(arguments: argparse.Namespace) -> int:
    log = stack.home() / "logs" / f"{arguments.name}.log"
    if arguments.name not in stack.NAMES or not log.exists():
        raise RefusedError("NAME", f"there is no log of {arguments.name!r}", f"Names are {', '.join(stack.NAMES)}")
    follow = ["-F"] if arguments.follow else []
    try:
        return subprocess.run(["tail", "-n", str(arguments.lines), *follow, str(log)], check=False).returncode
    except KeyboardInterrupt:
        return 0


def _error_of(failed: dict[str, str]) -> str:
    """Return the error below the frames of a traceback: of several broken folders, a line each."""
    lines = failed["stack_trace"].strip().splitlines()
    framed = [n for n, line in enumerate(lines) if line[:1].isspace() or line.startswith("Traceback ")]
    return "\n".join(lines[max(framed, default=-1) + 1 :])
