"""Compare what both jobs wrote since the switch."""

import functools
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import recheck

if __name__ == "__main__":
    rewind_id = recording.rewind_argument()
    sys.exit(recording.run(functools.partial(recheck.run, rewind_id=rewind_id), tag=rewind_id))
