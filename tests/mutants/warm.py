"""A contained process that has imported what all tests import of others, and forks for each pytest.

Starting pytest costs most of what a cheap test does. What is ours is never imported here: a child imports it with the
fault that is planted at that time.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.mutants import contained, copies

IMPORTED = ("alembic", "hypothesis", "jsonschema", "kafka.admin", "pyspark.sql", "pytest", "rich", "sqlalchemy", "yaml")
POLL_SECONDS = 0.02


class Warm:
    """Runs pytest after pytest in one copy, one at a time.

    Attributes:
        copied: The copy.
        temporary: A folder for temporary files.
    """

    def __init__(self, copied: Path, temporary: Path) -> None:
        """Start the process.

        Args:
            copied: The copy.
            temporary: A folder for temporary files; beside the copy, all that can be written to.
        """
        self.copied, self.temporary = copied, temporary
        self._environment = os.environ | contained.environment(copied, temporary)
        self._process = self._started()

    def close(self) -> None:
        """End it and all that it started."""
        self._process.communicate()

    def pytest(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path, timeout: float) -> int | None:
        """Run pytest; return its exit code, None when it took too long or took its parent along."""
        if self._process.poll() is not None:
            self._process = self._started()
        asked = {"arguments": list(arguments), "environment": dict(environment), "log": str(log), "seconds": timeout}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        answer = self._process.stdout.readline()
        if not answer:
            # A fault in what ends processes may end this one too.
            self._process.wait()
        return json.loads(answer or "null")

    def _started(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            contained.command([sys.executable, "-m", "tests.mutants.warm"]),
            cwd=self.copied,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )


def main() -> None:
    """Fork for each line of stdin and tell the child's exit code, null when it was ended for taking too long."""
    contained.enter()
    for name in IMPORTED:
        import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            _run(asked)
        print(json.dumps(_awaited(child, asked["seconds"])), flush=True)


def _awaited(child: int, seconds: float) -> int | None:
    deadline, code = time.monotonic() + seconds, None
    while code is None and time.monotonic() < deadline:
        # What a test leaves behind becomes a child of this process.
        pid, status = os.waitpid(-1, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status) if pid == child else None
        time.sleep(0 if pid else POLL_SECONDS)
    _end_all_others()
    return None if code is None or code < 0 else code


def _end_all_others() -> None:
    """End all that a test left: of a namespace's first process, all others are its own."""
    if os.getpid() != 1:
        raise OSError("not the first process of a namespace of its own")
    with suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _run(asked: Mapping[str, Any]) -> None:
    import pytest

    code = 70
    try:
        os.setsid()
        # The package of the copy anew: it is its own plugin that notes.
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        os.environ.update(asked["environment"])
        with Path(asked["log"]).open("w") as log, Path(os.devnull).open() as nothing:
            for descriptor, file in ((0, nothing), (1, log), (2, log)):
                os.dup2(file.fileno(), descriptor)
        code = int(pytest.main([*copies.OPTIONS, *asked["arguments"]]))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
