"""Small libraries that are put before a process's own, to bend what it sees of its machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path


def compiled(source: Path, folder: Path) -> Path:
    """Return the library of a source in C, made in a folder unless it is there."""
    library = folder / f"{source.stem}.so"
    if not library.exists():
        if shutil.which("gcc") is None and os.geteuid() == 0:
            subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", "gcc", "libc6-dev"], check=False)
        assert shutil.which("gcc"), f"{source.name} needs a compiler: apt-get install gcc libc6-dev"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    return library
