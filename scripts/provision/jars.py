"""The jars of `jars.xml`, retrieved by pyspark's own Ivy and held against `jars.sha256`."""

from __future__ import annotations

import shutil
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from provision import commands
from provision.failures import SetupError
from provision.places import HOME, JARS, PROJECT, VENV, digest, read
from provision.progress import Board

CONFS = ("spark", "kafka")
"""In the order in which they are waited for: the archive needs Spark's alone."""
STEPS = {"spark": "jars for Spark", "kafka": "jars for Kafka"}
JAR_MODULES = PROJECT / "jars.xml"
JAR_SUMS = PROJECT / "jars.sha256"
CACHE = HOME / "ivy"
"""What Ivy fetched; it stays until all jars are in place, so that nothing is fetched twice."""
# A minute of waiting for a server: to compile more than the first compiler does costs ten seconds and gains none.
FRUGAL = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx512m"]

REMEDY = (
    "It was not installed. Run `make setup` again; if it stays, jars.sha256 does not belong to jars.xml: `make lock`"
)


def is_right(conf: str) -> bool:
    """Tell whether one configuration's jars are in place, each as `jars.sha256` says, for the `jars.xml` of now."""
    return read(JARS / conf / ".stamp") == digest(JAR_MODULES) and sums(JARS, conf) == listed(conf)


def ensure(conf: str, java: Path, ivy: Callable[[], Path], board: Board, *, relock: bool = False) -> None:
    """Retrieve one configuration's jars, unless each of them is in place.

    Args:
        conf: Its name in `jars.xml`.
        java: Home of the Java that runs Ivy.
        ivy: Returns Ivy's jar, waiting for it.
        board: Where progress is shown.
        relock: Whether to retrieve whatever is in place, and to take what comes.
    """
    if is_right(conf) and not relock:
        return
    program = ivy()
    with board.step(STEPS[conf], f"0 of {len(listed(conf))}"):
        made = _retrieve(conf, java, program, board)
        if not relock:
            check(made, conf)
        # The stamp comes and goes with the folder that it is about.
        (made / conf / ".stamp").write_text(digest(JAR_MODULES))
        shutil.rmtree(JARS / conf, ignore_errors=True)
        (made / conf).rename(JARS / conf)
        shutil.rmtree(made)


def check(folder: Path, conf: str) -> None:
    """Fail unless the jars in a folder are exactly those of `jars.sha256`."""
    wanted, present = listed(conf), sums(folder, conf)
    for name in sorted(wanted | present):
        if wanted.get(name) != present.get(name):
            shutil.rmtree(CACHE, ignore_errors=True)
            raise SetupError(f"the jar {name} {_difference(name, wanted, present)}. {REMEDY}")


def lock() -> None:
    """Write `jars.sha256` from what is in place."""
    present = [item for conf in sorted(CONFS) for item in sums(JARS, conf).items()]
    JAR_SUMS.write_text("".join(f"{value}  {name}\n" for name, value in present))


def listed(conf: str) -> dict[str, str]:
    """Return the sha256 that each jar of a configuration should have, by its name below the folder."""
    lines = (line.split() for line in JAR_SUMS.read_text().splitlines())
    return {name: value for value, name in lines if name.startswith(f"{conf}/")}


def sums(folder: Path, conf: str) -> dict[str, str]:
    """Return the sha256 that each jar of a configuration has in a folder."""
    return {f"{conf}/{jar.name}": digest(jar) for jar in sorted((folder / conf).glob("*.jar"))}


def installed_ivy() -> Path:
    """Return the Ivy of the installed pyspark."""
    found = next(iter(VENV.glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar")), None)
    if found is None:
        raise SetupError("pyspark's Ivy is not in .venv. Remove .venv and run `make setup` again")
    return found


def unpacked_ivy(cache: Path, release: str) -> Path | None:
    """Return a copy of the Ivy that pyspark's source brings, from uv's cache; None where it is not found.

    How that cache is laid out is uv's own affair, but uv is pinned. uv may let the source go, so the jar is copied.
    """
    below = f"pyspark/{release}/*/src/deps/jars/ivy-*.jar"
    found = next((jar for kind in ("*", "index/*") for jar in cache.glob(f"sdists-v*/{kind}/{below}")), None)
    if found is None:
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copyfile(found, CACHE / "ivy.jar"))


def proxies() -> list[str]:
    """Return the options by which Java goes through the proxy that the environment names."""
    options: list[str] = []
    for scheme, url in urllib.request.getproxies().items():
        parts = urllib.parse.urlsplit(url)
        if scheme in ("http", "https") and parts.hostname:
            port = parts.port or 80
            options += [f"-D{scheme}.proxyHost={parts.hostname}", f"-D{scheme}.proxyPort={port}"]
    return options


def _retrieve(conf: str, java: Path, ivy: Path, board: Board) -> Path:
    """Run Ivy's main into a new folder beside the old one, and return it."""
    made = JARS / ".new"
    shutil.rmtree(made, ignore_errors=True)
    JARS.mkdir(parents=True, exist_ok=True)
    pattern = f"{made}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
    command = [str(java / "bin" / "java"), *FRUGAL, *proxies(), "-jar", str(ivy), "-warn", "-ivy", str(JAR_MODULES)]
    command += ["-cache", str(CACHE), "-confs", conf, "-retrieve", pattern]
    commands.run(command, STEPS[conf], tick=lambda _: _show(conf, board), rooms=[JARS])
    return made


def _show(conf: str, board: Board) -> None:
    """Show how far Ivy is: it first reads the description of each module, then fetches the jars."""
    earlier, count = sum(len(listed(other)) for other in CONFS[: CONFS.index(conf)]), len(listed(conf))
    described, fetched = (
        max(0, min(count, sum(1 for _ in CACHE.glob(files)) - earlier)) for files in ("*/*/ivy-*.xml", "*/*/*/*.jar")
    )
    doing = f"{fetched} of {count}" if fetched else f"{described} of {count} described"
    board.show(STEPS[conf], doing, (described + fetched) / max(1, 2 * count))


def _difference(name: str, wanted: Mapping[str, str], present: Mapping[str, str]) -> str:
    if name not in present:
        return "is missing"
    return "has another sha256 than jars.sha256 says" if name in wanted else "is not listed in jars.sha256"
