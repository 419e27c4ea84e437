"""Abort a rewind whose pointer has not moved: stop its candidate and collect what it made."""

import argparse
import functools
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import abort

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rewind-id", required=True)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--reason", default="")
    given = parser.parse_args()
    body = functools.partial(abort.run, rewind_id=given.rewind_id, pipeline=given.pipeline, reason=given.reason)
    sys.exit(recording.run(body, tag=given.rewind_id))
