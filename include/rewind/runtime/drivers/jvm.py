"""The Java of Rewind: which one, the class path of a driver, and the options it starts with.

A class-data archive is only mapped when the class path and the Java are those it was made with, so
set-up and every submit read both from here. Stdlib only: set-up runs before anything is installed.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

from rewind.core.errors import RefusedError

ARCHIVE = "rewind.jsa"
OLDEST_JAVA = 17
# Spark 4.2 uses the vector API; reduced runtimes lack it and fail only in the middle of a query.
NEEDED_MODULE = "jdk.incubator.vector"
SYSTEM = "/usr/lib/jvm"
"""Where Linux distributions put each Java."""


def java_home() -> Path:
    """Return the home of a Java that Spark 4.2 can use.

    Raises:
        RefusedError: There is none.
    """
    home = find_java()
    if home is None:
        problem = f"no Java {OLDEST_JAVA} or later with the module {NEEDED_MODULE} was found"
        raise RefusedError("JAVA_HOME", problem, "Install openjdk-17-jre-headless, or set JAVA_HOME to a full JDK")
    return home


@functools.cache
def find_java() -> Path | None:
    """Return the home of the first usable Java in `JAVA_HOME`, `PATH` and the system's folder, else None."""
    return next((home for home in _candidates() if is_usable(home)), None)


def is_usable(home: Path) -> bool:
    """Tell whether the Java in `home` is new enough and has all modules that Spark needs."""
    try:
        listing = subprocess.run(
            [str(home / "bin" / "java"), "--list-modules"], capture_output=True, text=True, timeout=60, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return False
    versions = dict(line.partition("@")[::2] for line in listing.split())
    major = versions.get("java.base", "0").split(".")[0].split("-")[0]
    return NEEDED_MODULE in versions and major.isdigit() and int(major) >= OLDEST_JAVA


def _candidates() -> list[Path]:
    chosen = os.environ.get("JAVA_HOME")
    on_path = shutil.which("java")
    system = Path(SYSTEM)
    homes = [Path(chosen)] if chosen else []
    homes += [Path(on_path).resolve().parent.parent] if on_path else []
    return homes + (sorted(path for path in system.iterdir() if path.is_dir()) if system.is_dir() else [])


def spark_class_path(jars: Path) -> str:
    """Return the class path that a driver needs beside Spark's own: one order, or the archive is not used."""
    return ":".join(str(jar) for jar in _sorted_jars(jars / "spark"))


def kafka_class_path(jars: Path) -> str:
    """Return the class path of the local broker and its tools."""
    return ":".join(str(jar) for jar in _sorted_jars(jars / "kafka"))


def driver_java_options(jars: Path, *, short: bool) -> str:
    """Return the value of `spark.driver.extraJavaOptions`.

    Args:
        jars: Folder that set-up filled.
        short: Whether the driver is a control step of some seconds, for which the second compiler never pays.
    """
    archive = jars / ARCHIVE
    options = [f'"-XX:SharedArchiveFile={archive}"'] if archive.exists() else []
    return " ".join(options + (["-XX:TieredStopAtLevel=1"] if short else []))


def _sorted_jars(folder: Path) -> list[Path]:
    jars = sorted(folder.glob("*.jar"))
    if not jars:
        raise RefusedError("REWIND_JARS", f"there is no jar in {folder}", "Run `make setup`")
    return jars
