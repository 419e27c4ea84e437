"""Send the approved rows of a repair to live's output."""

import functools
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import merge

if __name__ == "__main__":
    rewind_id = recording.rewind_argument()
    sys.exit(recording.run(functools.partial(merge.run, rewind_id=rewind_id), tag=rewind_id))
