"""Send the approved rows of a repair to live's output."""

import functools
import sys

from rewind.steps import main, merge

if __name__ == "__main__":
    rewind_id = main.rewind_argument()
    sys.exit(main.run(functools.partial(merge.run, rewind_id=rewind_id), tag=rewind_id))
