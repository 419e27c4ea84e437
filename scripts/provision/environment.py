"""`.venv`, as a lock says: made and repaired by uv in place."""

from __future__ import annotations

import contextlib
import csv
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from provision import commands
from provision.failures import SetupError
from provision.places import LOGS, SETUP_LOCK, VENV, base_python, digest, read
from provision.progress import Board
from provision.uv import Uv

STEP = "packages"
STAMP = VENV / ".rewind-lock"
# uv unpacks the wheel at once: to compress pyspark's 450 MB for that would take a third of all that uv computes.
BUILD_OPTIONS = ["--config-settings-package", "pyspark:--build-option=--compression=stored"]
_MOVED = re.compile(r"(?P<verb>Downloading|Downloaded|Building|Built) (?P<what>\S+)|(?P<phase>Resolved|Prepared) ")


def is_right(lock: Path) -> bool:
    """Tell whether `.venv` is what the lock says, for this Python."""
    return read(STAMP) == _wanted(lock) and (VENV / "bin" / "python").exists()


def ensure(lock: Path, uv: Uv, board: Board, built: Callable[[str, str], None]) -> None:
    """Make `.venv` what the lock says.

    Args:
        lock: The requirements with their hashes.
        uv: The installer.
        board: Where progress is shown.
        built: Called with a package and its release when its source, verified, is in uv's cache to be built.
    """
    if is_right(lock):
        return
    with board.step(STEP, "resolving"):
        STAMP.unlink(missing_ok=True)
        _ensure_python(uv)
        mend()
        _sync(lock, uv, board, built)
        STAMP.write_text(_wanted(lock))


def mend() -> None:
    """Forget what a killed set-up installed in part: uv goes by these folders, and installs it again."""
    for info in VENV.glob("lib/python*/site-packages/*.dist-info"):
        if not is_complete(info):
            shutil.rmtree(info)


def is_complete(info: Path) -> bool:
    """Tell whether a package is installed to its end: the installer's name is added to its record last."""
    try:
        files = [row[0] for row in csv.reader((info / "RECORD").read_text().splitlines()) if row]
    except OSError:
        return False
    return f"{info.name}/INSTALLER" in files and all((info.parent / file).exists() for file in files)


def cache(uv: Uv) -> Path:
    """Return the folder in which uv keeps what it fetched."""
    command = [str(uv.program), "cache", "dir"]
    return Path(subprocess.run(command, env=uv.environment, capture_output=True, text=True, check=True).stdout.strip())


def _ensure_python(uv: Uv) -> None:
    if _version(VENV / "bin" / "python") == sys.version_info[:2]:
        return
    made = [str(uv.program), "venv", "--clear", "--python", str(base_python()), str(VENV)]
    commands.run(made, "venv", environment=uv.environment)


def _version(python: Path) -> tuple[int, ...] | None:
    code = "import os, sys; print(*sys.version_info[:2]) if sys.prefix != sys.base_prefix else os._exit(1)"
    try:
        said = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return tuple(int(part) for part in said.split())


def _sync(lock: Path, uv: Uv, board: Board, built: Callable[[str, str], None]) -> None:
    where, watch = cache(uv), Watch(board, built)
    options = [*uv.options, *BUILD_OPTIONS, "--require-hashes", "--build-constraints", str(SETUP_LOCK)]
    options += ["--python", str(VENV / "bin" / "python")]

    def run(*verb: str, source: Path) -> None:
        command = [str(uv.program), "pip", *verb, *options, str(source)]
        commands.run(command, STEP, environment=uv.environment, watch=watch.line, tick=watch.tick, rooms=[where])

    if left := unbuilt(lock, where):
        # A source that was fetched and not built, by a set-up that was killed: where a server names no lifetime for its
        # files, uv would fetch it again, unless it may not. What fails here is done, or told, by what follows.
        source = LOGS / "unbuilt.txt"
        source.write_text("\n".join(left))
        with contextlib.suppress(SetupError):
            run("install", "--offline", "--no-deps", "--requirements", source=source)
    run("sync", source=lock)


def unbuilt(lock: Path, where: Path) -> list[str]:
    """Return the requirements of a lock whose source is in uv's cache without a wheel made of it."""
    pinned = re.findall(r"^(([\w.-]+)==(\S+)(?:.*\\\n)(?: +--hash=\S+(?: \\)?\n)+)", lock.read_text(), re.MULTILINE)
    return [text for text, name, release in pinned if _is_unbuilt(where, f"{name}/{release}")]


def _is_unbuilt(where: Path, name: str) -> bool:
    made = [folder for kind in ("*", "index/*") for folder in where.glob(f"sdists-v*/{kind}/{name}/*/")]
    wheels = [wheel for folder in made for pattern in ("*.whl", "*/*.whl") for wheel in folder.glob(pattern)]
    return any((folder / "src").is_dir() for folder in made) and not wheels


class Watch:
    """How far uv is, by the lines it prints for large downloads and builds."""

    def __init__(self, board: Board, built: Callable[[str, str], None]) -> None:
        self.board, self.built = board, built
        self.begun: set[str] = set()
        self.done: set[str] = set()
        self.doing = "resolving"

    def line(self, line: str) -> None:
        """Take one line of uv's."""
        if not (moved := _MOVED.match(line)):
            return
        if moved["phase"]:
            self.doing = {"Resolved": "fetching", "Prepared": "installing"}[moved["phase"]]
            return
        what, _, release = moved["what"].partition("==")
        (self.done if moved["verb"] in ("Downloaded", "Built") else self.begun).add(what)
        if moved["verb"] == "Building":
            self.doing = f"building {what}"
            self.built(what, release)

    def tick(self, pid: int) -> None:
        """Show it."""
        count = f"{len(self.done)} of {len(self.begun)} large ones, " if self.begun else ""
        share = len(self.done) / max(24, len(self.begun))
        self.board.show(STEP, f"{count}{self.doing}{_written(pid)}", share)


def _written(pid: int) -> str:
    """Return how much a process has written: it moves while one large file is fetched. Only Linux knows."""
    try:
        account = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    except OSError:
        return ""
    return f", {int(account['wchar']) // 2**20} MiB written"


def _wanted(lock: Path) -> str:
    return f"{digest(lock)} python{sys.version_info[0]}.{sys.version_info[1]}"
