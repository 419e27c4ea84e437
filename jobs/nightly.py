"""Replay a stretch of history through a live job's frozen code, and compare it with what live wrote."""

import argparse
import functools
import sys

from rewind.core.nights import EXAMPLE
from rewind.steps.base import recording
from rewind.steps.replays import nightly

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job-id", required=True, help="the live job")
    parser.add_argument("--start", required=True, help="first instant of what is replayed, ISO 8601")
    parser.add_argument("--end", required=True, help="instant after it")
    parser.add_argument("--zone", default="UTC", help="time zone of its date")
    parser.add_argument("--sample", default="{}", help=f"which records, as {EXAMPLE}")
    parser.add_argument("--run-id", default="", help="the run that asks")
    parser.add_argument("--missed", default="[]", help="intervals before it without a run, as pairs of instants")
    given = vars(parser.parse_args())
    sys.exit(recording.run(functools.partial(nightly.run, given=given), tag=given["job_id"]))
