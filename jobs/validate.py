"""Compare a candidate with live and store the verdict."""

import functools
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import validate

if __name__ == "__main__":
    rewind_id = recording.rewind_argument()
    sys.exit(recording.run(functools.partial(validate.run, rewind_id=rewind_id), tag=rewind_id))
