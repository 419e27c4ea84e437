"""Mirror one topic until the mirror is wished to drain."""

import argparse
import functools
import sys

from rewind.core import names
from rewind.steps.base import recording
from rewind.steps.mirroring import mirror

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--owner", required=True, help="the mirror's owner name, mirror-<topic>")
    owner = parser.parse_args().owner
    body = functools.partial(mirror.run, topic_name=names.mirrored_topic(owner))
    sys.exit(recording.run(body, tag=owner))
