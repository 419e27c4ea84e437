"""Feed a candidate its history from the mirror, chunk by chunk, and fix its handoff."""

import functools
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import backfill

if __name__ == "__main__":
    rewind_id = recording.rewind_argument()
    sys.exit(recording.run(functools.partial(backfill.run, rewind_id=rewind_id), tag=rewind_id))
