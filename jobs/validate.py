"""Compare a candidate with live and store the verdict."""

import functools
import sys

from rewind.steps import main, validate

if __name__ == "__main__":
    rewind_id = main.rewind_argument()
    sys.exit(main.run(functools.partial(validate.run, rewind_id=rewind_id), tag=rewind_id))
