"""Prove mirrors: no record lost, none twice with different bytes, all as Kafka still has them."""

import argparse
import functools
import sys

from rewind.steps.base import recording
from rewind.steps.mirroring import proving

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topic", action="append", default=[], help="whose mirror; without it all are verified")
    given = parser.parse_args()
    sys.exit(recording.run(functools.partial(proving.run, topics=given.topic), tag="prove"))
