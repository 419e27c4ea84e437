"""Feed a candidate its history from the mirror, chunk by chunk, and fix its handoff."""

import functools
import sys

from rewind.steps import backfill, main

if __name__ == "__main__":
    rewind_id = main.rewind_argument()
    sys.exit(main.run(functools.partial(backfill.run, rewind_id=rewind_id), tag=rewind_id))
