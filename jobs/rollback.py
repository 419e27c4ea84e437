"""Make the standby of a pipeline live again, or only tell what that would do."""

import argparse
import functools
import json
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import rollback

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollback-id", required=True)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--request", required=True, type=json.loads, help="the form, as JSON")
    given = parser.parse_args()
    body = functools.partial(rollback.run, rollback_id=given.rollback_id, pipeline=given.pipeline, asked=given.request)
    sys.exit(recording.run(body, tag=given.rollback_id))
