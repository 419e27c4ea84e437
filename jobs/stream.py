"""Run the stream of one generation until it is wished to drain."""

import argparse
import functools
import sys

from rewind.steps.base import recording
from rewind.steps.streaming import stream

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--job-id", required=True)
    job_id = parser.parse_args().job_id
    sys.exit(recording.run(functools.partial(stream.run, job_id=job_id), tag=job_id))
