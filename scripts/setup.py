"""Prepare what Rewind needs and does not find: Java, `.venv`, the jars, the start-up archive.

Run by the Makefile with Python 3.11 to 3.13; stdlib only, since nothing is installed yet. It can be repeated: what is
there and right is left alone, and what was killed is resumed. `--relock` writes the locks again.
"""

import sys

# Before any import of ours, and in words that each Python reads: an older one fails on their syntax.
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit(
        "setup: %s is Python %d.%d, and Rewind needs 3.11, 3.12 or 3.13. Install python3.11 and python3.11-venv, "  # noqa: UP031
        "or name one: `make setup PYTHON=python3.12`" % (sys.executable, sys.version_info[0], sys.version_info[1])
    )

from provision.main import main

sys.exit(main())
