"""`python -m rewind demo`, for the example that is no part of the package."""

from __future__ import annotations

import argparse
import sys

from rewind.local import stack

HISTORY, RATE = 200_000, 600
"""Some more a second than the 500 that are promised, for seconds in which the machine is busy."""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command."""
    parser = subparsers.add_parser("demo", help="rewind a running pipeline from start to collected garbage, under load")
    parser.add_argument(
        "--history", type=int, default=HISTORY, help=f"records before the pipeline starts ({HISTORY:,})"
    )
    parser.add_argument("--rate", type=int, default=RATE, help=f"records a second afterwards ({RATE:,})")
    parser.set_defaults(func=_demo)


def _demo(arguments: argparse.Namespace) -> int:
    # It lies in the checkout that the local stack runs from, and drives that stack like any user of it.
    sys.path.append(str(stack.PROJECT))
    from examples.demo.run import run

    return run(arguments.history, arguments.rate)
