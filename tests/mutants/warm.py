"""A process that has imported what all tests import of others, and forks for each pytest: starting one costs most.

What is ours is never imported here: a child imports it with the fault that is planted at that time.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.mutants import copies

IMPORTED = ("alembic", "hypothesis", "jsonschema", "kafka.admin", "pyspark.sql", "pytest", "rich", "sqlalchemy", "yaml")


class Warm:
    """Runs pytest after pytest, one at a time."""

    def __init__(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutants.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A line that is read must not take the next one with it: `select` would not see that.
            bufsize=0,
            cwd=Path(__file__).resolve().parents[2],
        )

    def close(self) -> None:
        """End it."""
        self._process.communicate()

    def pytest(
        self, copied: Path, arguments: Sequence[str], environment: Mapping[str, str], log: Path, timeout: float
    ) -> int | None:
        """Run pytest in a copy and return its exit code; None when it was ended for taking too long."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = [*copies.OPTIONS, *arguments]
        asked = {"in": str(copied), "arguments": given, "environment": dict(environment), "log": str(log)}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        group = int(self._process.stdout.readline())
        in_time, _, _ = select.select([self._process.stdout], [], [], timeout)
        # Its own children too, also when it has ended.
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
        code = int(self._process.stdout.readline())
        return code if in_time else None


def main() -> None:
    """Fork for each line of stdin; tell the child's pid, then its exit code."""
    for name in IMPORTED:
        import_module(name)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _run(json.loads(line))
        with suppress(ProcessLookupError, PermissionError):
            # Here too: whoever reads the pid may end its group at once.
            os.setpgid(child, child)
        print(child, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _run(asked: Mapping[str, Any]) -> None:
    import pytest

    code = 70
    try:
        with suppress(PermissionError):
            os.setpgid(0, 0)
        os.chdir(asked["in"])
        sys.path[0] = asked["in"]
        # The package of that folder, not the one that this runs from.
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        os.environ.update(asked["environment"])
        with Path(asked["log"]).open("w") as log, Path(os.devnull).open() as nothing:
            for descriptor, file in ((0, nothing), (1, log), (2, log)):
                os.dup2(file.fileno(), descriptor)
        code = int(pytest.main(list(asked["arguments"])))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
