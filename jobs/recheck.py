"""Compare what both jobs wrote since the switch."""

import functools
import sys

from rewind.steps import main, recheck

if __name__ == "__main__":
    rewind_id = main.rewind_argument()
    sys.exit(main.run(functools.partial(recheck.run, rewind_id=rewind_id), tag=rewind_id))
