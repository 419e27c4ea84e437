"""A fresh clone that sets itself up, with a home and caches of its own, timed against its parts."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rewind.runtime.drivers import jvm

CONFS = ("spark", "kafka")
PYTHON = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
OURS = ("REWIND_", "XDG_", "UV_", "PIP_CACHE", "VIRTUAL_ENV", "PYTHONPATH", "SPARK_", "PYSPARK_")
"""Settings of whoever runs the tests that a newcomer does not have; those of the index are kept."""
KEPT = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_FIND_LINKS", "UV_INSECURE_HOST")
SUBMITS = """
import sys
sys.path.insert(0, "scripts")
from pathlib import Path
from provision import archive, places
from provision.progress import Board
from rewind.runtime.drivers import jvm
java, folder, board = jvm.java_home(), Path(sys.argv[1]), Board([], sys.stdout, Path(sys.argv[1], "log"))
submit = archive.submit
submit(java, f'-XX:TieredStopAtLevel=1 "-XX:ArchiveClassesAtExit={folder / jvm.ARCHIVE}"', [str(folder)], board)
submit(java, f"{jvm.driver_java_options(folder, short=True)} -Xshare:on", ["--prove"], board)
"""
RIGHT = """
import sys
sys.path.insert(0, "scripts")
from provision import archive, environment, jars, places
from rewind.runtime.drivers import jvm
packages = list(places.VENV.glob("lib/python*/site-packages/*.dist-info"))
assert environment.is_right(places.LOCKS[False]), "packages"
assert not [info.name for info in packages if not environment.is_complete(info)]
assert all(map(jars.is_right, jars.CONFS)), "jars"
assert archive.is_right(jvm.java_home()), "archive"
print(len(packages))
"""


@dataclass
class Clone:
    """A clone with a home and caches of its own.

    Attributes:
        folder: Where it is.
        home: The HOME of what runs in it.
    """

    folder: Path
    home: Path
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True)
        theirs = {name: value for name, value in os.environ.items() if name in KEPT or not name.startswith(OURS)}
        self.environment = theirs | {"HOME": str(self.home)}

    @property
    def state(self) -> Path:
        """Where set-up keeps what is not `.venv`."""
        return self.folder / ".rewind"

    @property
    def uv_cache(self) -> Path:
        return self.home / ".cache" / "uv"

    def start(self) -> subprocess.Popen[bytes]:
        """Start `make setup` as the leader of a process group."""
        command = ["make", "setup", f"PYTHON={PYTHON}"]
        with (self.home / "make.log").open("ab") as log:
            return subprocess.Popen(
                command, cwd=self.folder, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )

    def set_up(self) -> None:
        """Run `make setup` to its end."""
        running = self.start()
        assert running.wait(1_800) == 0, self.said()

    def run(self, *command: str | Path) -> str:
        """Run a command in the clone, and return what it prints."""
        done = subprocess.run(
            [str(part) for part in command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-4_000:]
        return done.stdout

    def said(self) -> str:
        """Return what `make setup` has printed so far."""
        log = self.home / "make.log"
        return log.read_text() if log.exists() else ""

    def log(self, step: str) -> str:
        """Return what the program of a step has printed in this run or the last."""
        log = self.state / "logs" / f"setup-{step}.log"
        return log.read_text(errors="replace") if log.exists() else ""


def clone(project: Path, folder: Path) -> Clone:
    """Return a fresh clone of the checkout's last commit."""
    folder.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(project), str(folder / "rewind")], check=True)
    return Clone(folder / "rewind", folder / "home")


@dataclass(frozen=True)
class Took:
    """What something took, in seconds by the clock and by the processors."""

    wall: float
    cpu: float

    def __add__(self, other: Took) -> Took:
        return Took(self.wall + other.wall, self.cpu + other.cpu)


def timed(action: Callable[[], object]) -> Took:
    """Return what an action and the processes that it waited for took."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    action()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(time.monotonic() - begun, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def bare(made: Clone, uv: Path) -> dict[str, Took]:
    """Return what the parts of set-up take one after the other, bare, in a clone with empty caches."""
    python, jars, training = made.folder / ".venv" / "bin" / "python", made.state / "jars", made.state / "training"
    made.run(uv, "venv", "--quiet", "--python", PYTHON, ".venv")
    sync = [uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, "requirements-dev.txt"]
    took = {"uv": timed(lambda: made.run(*sync))}
    ivy = next(made.folder.glob(".venv/lib/python*/site-packages/pyspark/jars/ivy-*.jar"))
    retrieve = [
        jvm.java_home() / "bin" / "java",
        "-jar",
        ivy,
        "-warn",
        "-ivy",
        "jars.xml",
        "-cache",
        made.state / "ivy",
    ]
    retrieve += ["-confs", *CONFS, "-retrieve", f"{jars}/[conf]/[artifact]-[revision](-[classifier]).[ext]"]
    took["ivy"] = timed(lambda: made.run(*retrieve))
    training.mkdir()
    took["training"] = timed(lambda: made.run(PYTHON, "-c", SUBMITS, training))
    return took


def compared(project: Path, folder: Path) -> dict[str, float]:
    """Return the figures of a set-up and of its bare parts, each from a clone of its own, in one run."""
    whole, parts = clone(project, folder / "whole"), clone(project, folder / "parts")
    setup = timed(whole.set_up)
    took = bare(parts, next(whole.state.glob("tools/*/bin/uv")))
    total = sum(took.values(), Took(0, 0))
    figures = {"setup_seconds": setup.wall, "setup_cpu_seconds": setup.cpu}
    for name, part in took.items():
        figures |= {f"bare_{name}_seconds": part.wall, f"bare_{name}_cpu_seconds": part.cpu}
    figures |= {"setup_to_bare": setup.wall / total.wall, "setup_to_bare_cpu": setup.cpu / total.cpu}
    check_right(whole)
    return {name: round(value, 2) for name, value in figures.items()}


def check_right(made: Clone) -> int:
    """Check that a clone is set up, that set-up then has nothing to say, and return the number of its packages."""
    count = int(made.run(PYTHON, "-c", RIGHT))
    imports = "import airflow, coverage, delta, great_expectations, kafka, pyspark"
    made.run(made.folder / ".venv" / "bin" / "python", "-W", "ignore", "-c", imports)
    assert made.run("make", "--no-print-directory", "setup", f"PYTHON={PYTHON}") == ""
    return count
