"""Move consumer groups from one output of a pipeline to another, or only tell where each would go on."""

import argparse
import functools
import json
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import consumer_groups

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--move-id", required=True)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--request", required=True, type=json.loads, help="the form, as JSON")
    given = parser.parse_args()
    body = functools.partial(consumer_groups.run, move_id=given.move_id, pipeline=given.pipeline, asked=given.request)
    sys.exit(recording.run(body, tag=given.move_id))
