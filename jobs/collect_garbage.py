"""Drain, retire and collect the generations whose grace is over."""

import argparse
import functools
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import collect_garbage

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dry-run", action="store_true", help="only say what would go, and when")
    given = parser.parse_args()
    sys.exit(recording.run(functools.partial(collect_garbage.run, dry_run=given.dry_run), tag="collect_garbage"))
