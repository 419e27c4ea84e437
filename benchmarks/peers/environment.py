"""The Python of the peers: what Rewind is measured against is installed apart from it."""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from pathlib import Path

from benchmarks.places import LOCK, WORK

HERE = Path(__file__).parent


@functools.cache
def python() -> str:
    """Return the path of a Python with the packages of `requirements-bench.txt`, installed when they are missing."""
    home = WORK / f"peers-{hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]}"
    program = home / "bin" / "python"
    if not (home / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(program), "-m", "pip", "install", "-q", "--require-hashes", "-r", str(LOCK)], check=True)
        (home / "done").touch()
    return str(program)


def command(script: str, *arguments: object) -> list[str]:
    """Return the command line of a peer's script."""
    return [python(), str(HERE / f"{script}.py"), *map(str, arguments)]
