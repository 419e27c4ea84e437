"""Make the empty candidate of a rewind: its record, bundle, topics and folder."""

import functools
import sys

from rewind.steps import main, spin_up

if __name__ == "__main__":
    rewind_id = main.rewind_argument()
    sys.exit(main.run(functools.partial(spin_up.run, rewind_id=rewind_id), tag=rewind_id))
