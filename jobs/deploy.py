"""Make the first generation of a pipeline and let it run."""

import argparse
import functools
import sys

from rewind.core.planning import requested_range
from rewind.steps.base import recording
from rewind.steps.lifecycle import deploy

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--from", dest="start", default="earliest", help=requested_range.ORIGIN_FORMS)
    given = parser.parse_args()
    body = functools.partial(deploy.run, pipeline=given.pipeline, start=given.start)
    sys.exit(recording.run(body, tag=given.pipeline))
