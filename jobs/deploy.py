"""Make the first generation of a pipeline and let it run."""

import argparse
import functools
import sys

from rewind.core import asked
from rewind.steps import deploy, main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pipeline", required=True)
    parser.add_argument("--from", dest="start", default="earliest", help=asked.ORIGIN_FORMS)
    given = parser.parse_args()
    body = functools.partial(deploy.run, pipeline=given.pipeline, start=given.start)
    sys.exit(main.run(body, tag=given.pipeline))
