"""Where benchmarks read and write."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
HOME = Path(os.environ.get("REWIND_HOME") or PROJECT / ".rewind").resolve()
WORK = HOME / "bench"
JARS = Path(os.environ.get("REWIND_JARS") or HOME / "jars").resolve()
LOCK = PROJECT / "requirements-bench.txt"
RECORD = PROJECT / "benchmarks" / "record.json"
"""What was measured last on a quiet machine, committed: a later run is held against it."""
PAGE = PROJECT / "docs" / "performance.md"
