"""A set-up that is killed at five moments of its life: it resumes, and fetches nothing again that was complete."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.scenarios.quick_setup import Clone, check_right, clone
from tests.support.workshop import wait_for


@dataclass(frozen=True)
class Moment:
    """A moment of a set-up.

    Attributes:
        name: What set-up is doing.
        reached: Tells from a clone and the jars that were fetched before the run whether it is there.
        alone: Whether the script alone is killed, and what it has started lives on.
    """

    name: str
    reached: Callable[[Clone, int], bool]
    alone: bool = False


MOMENTS = (
    Moment("fetching packages", lambda made, _: " Downloaded " in made.log("packages")),
    Moment("building pyspark", lambda made, _: "Building pyspark==" in made.log("packages")),
    Moment("installing packages", lambda made, _: "Prepared " in made.log("packages")),
    Moment("retrieving Kafka's jars", lambda made, before: fetched_jars(made) > before + 2 or kafka(made), alone=True),
    Moment("training the archive", lambda made, _: "TRAINING 3 of" in made.log("archive")),
)


def killed_five_times(project: Path, folder: Path) -> dict[str, object]:
    """Set a clone up, killed at each of the moments, and return how much of what was complete was fetched again."""
    made, complete = clone(project, folder), dict[Path, tuple[int, int]]()
    kept: dict[str, object] = {}
    for moment in MOMENTS:
        shutil.rmtree(made.state / "logs", ignore_errors=True)
        running, before = made.start(), fetched_jars(made)
        wait_for(moment.name, lambda: _is_reached(moment, made, before, running), 900)  # noqa: B023
        check_kept(complete, made)
        _kill(running, alone=moment.alone)
        wait_for("the end of what it started", lambda: _is_free(made), 600)
        complete |= fetched(made)
        kept[f"complete_when_killed_{moment.name.replace(' ', '_')}"] = len(complete)
    made.set_up()
    check_kept({path: seen for path, seen in complete.items() if made.uv_cache in path.parents}, made)
    kept["packages_installed"] = check_right(made)
    kept["packages_fetched_twice"] = fetched_twice(made)
    return kept


def fetched(made: Clone) -> dict[Path, tuple[int, int]]:
    """Return what is complete in the caches, with inode and time of change: fetched again it would have others."""
    uv, ivy = made.uv_cache, made.state / "ivy"
    packages = [*uv.glob("archive-v*/*/*.dist-info/METADATA"), *uv.glob("sdists-v*/*/*/*/*/src/setup.py")]
    jars = [*ivy.glob("*/*/*/*.jar"), *ivy.glob("*/*/ivy-*.xml")]
    tools = list(made.state.glob("tools/*/bin/uv"))
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in [*packages, *jars, *tools]}


def check_kept(complete: dict[Path, tuple[int, int]], made: Clone) -> None:
    """Check that all that was complete still is, untouched."""
    now = fetched(made)
    changed = {str(path): (seen, now.get(path)) for path, seen in complete.items() if now.get(path) != seen}
    assert not changed, changed


def fetched_twice(made: Clone) -> list[str]:
    """Return the packages that uv's cache holds more than once: each fetching of one makes an entry."""
    found = Counter(info.name for info in made.uv_cache.glob("archive-v*/*/*.dist-info"))
    found.update(path.parent.name for path in made.uv_cache.glob("sdists-v*/*/pyspark/*/*/src"))
    return sorted(name for name, times in found.items() if times > 1)


def fetched_jars(made: Clone) -> int:
    """Return how many jars Ivy has fetched."""
    return sum(1 for _ in (made.state / "ivy").glob("*/*/*/*.jar"))


def kafka(made: Clone) -> bool:
    """Tell whether Kafka's jars are in place."""
    return (made.state / "jars" / "kafka" / ".stamp").exists()


def _is_reached(moment: Moment, made: Clone, before: int, running: subprocess.Popen[bytes]) -> bool:
    assert running.poll() is None, f"it ended before {moment.name}: {made.said()}"
    return moment.reached(made, before)


def _kill(running: subprocess.Popen[bytes], *, alone: bool) -> None:
    """Kill a set-up: its script, or all that it has started too."""
    if alone:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        (script,) = [pid for pid in children if re.search(rb"setup\.py", Path(f"/proc/{pid}/cmdline").read_bytes())]
        os.kill(int(script), signal.SIGKILL)
    else:
        os.killpg(running.pid, signal.SIGKILL)
    assert running.wait(60) != 0


def _is_free(made: Clone) -> bool:
    """Tell whether nobody holds the lock of set-ups: the script and all that it started have ended."""
    with (made.state / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
