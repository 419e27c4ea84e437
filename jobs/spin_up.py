"""Make the empty candidate of a rewind: its record, bundle, topics and folder."""

import functools
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import spin_up

if __name__ == "__main__":
    rewind_id = recording.rewind_argument()
    sys.exit(recording.run(functools.partial(spin_up.run, rewind_id=rewind_id), tag=rewind_id))
