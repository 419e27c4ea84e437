r"""The order of set-up: what waits for what, and what runs beside it.

```
uv -> packages ---------------> archive
          \-> jars for Spark --/
                    \-> jars for Kafka
```

Ivy comes with pyspark, and starts from its source, which uv has verified and is still building. Kafka's jars arrive
while the archive is made.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from provision import archive, commands, environment, failures, jars, locks, uv
from provision.failures import SetupError
from provision.places import HOME, LOCKS, LOGS
from provision.progress import Board
from rewind.core.errors import RefusedError
from rewind.runtime.drivers import jvm

WAITING = "another set-up runs, or what a killed one had started: waiting for its end"
DRAW_SECONDS = 0.2


def main() -> int:
    """Prepare what is missing, and return an exit code; each failure is one line."""
    try:
        HOME.mkdir(parents=True, exist_ok=True)
        with _alone():
            _prepare_missing(_arguments())
    except (SetupError, RefusedError) as failure:
        return _fail(str(failure))
    except OSError as error:
        return _fail(str(failures.of_system(error)))
    except KeyboardInterrupt:
        return _fail("interrupted. `make setup` resumes", 130)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="setup.py", description="Prepare Java, .venv, the jars and the start-up archive."
    )
    parser.add_argument("--relock", action="store_true", help="write requirements*.txt and jars.sha256 again")
    parser.add_argument("--runtime", action="store_true", help="install what Rewind runs on, without tools and tests")
    return parser.parse_args()


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of set-ups, which all that they start inherits."""
    with (HOME / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"setup: {WAITING}", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        commands.hold(lock.fileno())
        yield


def _prepare_missing(given: argparse.Namespace) -> None:
    java, lock = _java(), LOCKS[given.runtime]
    missing = _missing(lock, java, relock=given.relock)
    if not missing:
        return
    board = Board(missing, sys.stdout, LOGS / "setup.log")
    try:
        _prepare(lock, java, board, relock=given.relock)
    except (SetupError, RefusedError, OSError) as failure:
        board.log(f"failed: {failure}")
        raise
    finally:
        commands.stop_all()
        board.close()


def _java() -> Path:
    """Return the home of a usable Java, installing one where that is possible."""
    if jvm.find_java() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("setup: installing openjdk-17-jre-headless with apt-get", flush=True)
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "openjdk-17-jre-headless"]):
            subprocess.run(["apt-get", *arguments], capture_output=True, check=False)
        jvm.find_java.cache_clear()
    return jvm.java_home()


def _missing(lock: Path, java: Path, *, relock: bool) -> list[str]:
    """Return the names of the steps that there is work for."""
    packages, confs = environment.is_right(lock), [conf for conf in jars.CONFS if relock or not jars.is_right(conf)]
    steps = {
        uv.STEP: (relock or not packages) and not uv.program().exists(),
        locks.STEP: relock,
        environment.STEP: relock or not packages,
        **{name: conf in confs for conf, name in jars.STEPS.items()},
        archive.STEP: not archive.is_right(java) or not packages or "spark" in confs,
    }
    return [name for name, wanted in steps.items() if wanted]


def _prepare(lock: Path, java: Path, board: Board, *, relock: bool) -> None:
    """Run all steps, each as soon as what it needs is there."""
    ivy: Future[Path] = Future()
    with ThreadPoolExecutor() as pool:
        packages = pool.submit(_packages, lock, board, ivy, relock=relock)
        spark = pool.submit(jars.ensure, "spark", java, ivy.result, board, relock=relock)
        kafka = pool.submit(_after, [spark], jars.ensure, "kafka", java, ivy.result, board, relock=relock)
        made = pool.submit(_after, [packages, spark], archive.ensure, java, board)
        _follow([packages, spark, kafka, made], board)
    if relock:
        jars.lock()
    shutil.rmtree(jars.CACHE, ignore_errors=True)


def _packages(lock: Path, board: Board, ivy: Future[Path], *, relock: bool) -> None:
    """Make the environment, and hand Ivy out as soon as it is to be had."""

    def building(package: str, release: str) -> None:
        if package == "pyspark" and (found := jars.unpacked_ivy(environment.cache(tool), release)):
            ivy.set_result(found)

    try:
        if relock or not environment.is_right(lock):
            tool = uv.ensure(board)
            if relock:
                locks.write(tool, board)
            environment.ensure(lock, tool, board, building)
        if not ivy.done():
            ivy.set_result(jars.installed_ivy())
    except BaseException as failure:
        if not ivy.done():
            ivy.set_exception(failure)
        raise


def _after(needed: list[Future[None]], step: Any, *arguments: Any, **options: Any) -> None:
    for future in needed:
        future.result()
    step(*arguments, **options)


def _follow(steps: list[Future[None]], board: Board) -> None:
    """Show progress until all steps are done, or the first has failed: then stop the others."""
    pending = set(steps)
    try:
        while pending:
            finished, pending = wait(pending, DRAW_SECONDS, FIRST_EXCEPTION)
            board.draw()
            for step in finished:
                step.result()
    except BaseException:
        commands.stop_all()
        raise


def _fail(text: str, code: int = 1) -> int:
    print(f"setup: {' '.join(text.split())}", file=sys.stderr, flush=True)
    return code
