"""Move the live pointer to an approved candidate."""

import functools
import sys

from rewind.steps import cut_over, main

if __name__ == "__main__":
    rewind_id = main.rewind_argument()
    sys.exit(main.run(functools.partial(cut_over.run, rewind_id=rewind_id), tag=rewind_id))
