"""Make the plan of a rewind, print it, and unless it is a dry run make the rewind active with it."""

import argparse
import functools
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import plan

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rewind-id", required=True)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--request", required=True, help="the parameters of the rewind DAG, as JSON")
    given = parser.parse_args()
    body = functools.partial(plan.run, rewind_id=given.rewind_id, pipeline=given.pipeline, request=given.request)
    sys.exit(recording.run(body, tag=given.rewind_id))
