"""Move the live pointer to an approved candidate."""

import functools
import sys

from rewind.steps.base import recording
from rewind.steps.lifecycle import cut_over

if __name__ == "__main__":
    rewind_id = recording.rewind_argument()
    sys.exit(recording.run(functools.partial(cut_over.run, rewind_id=rewind_id), tag=rewind_id))
