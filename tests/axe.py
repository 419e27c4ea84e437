"""axe-core, a judge of accessibility, from npm's registry: pinned, checked, and kept for the next run."""

from __future__ import annotations

import base64
import fcntl
import hashlib
import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from tests.browser import Page

VERSION = "4.14.1"
SHA512 = "FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ=="
"""Of the package, in base 64, as `npm view axe-core@4.14.1 dist.integrity` tells it."""
NPM = shutil.which("npm")
SERIOUS = ("serious", "critical")


def source(folder: Path) -> str:
    """Return the program; it is fetched when the folder does not hold it yet."""
    package = folder / f"axe-core-{VERSION}.tgz"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "axe.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not package.is_file():
            assert NPM, "no npm is installed, with which axe-core is fetched"
            subprocess.run(
                [NPM, "pack", "--silent", f"axe-core@{VERSION}"], cwd=folder, check=True, capture_output=True
            )
    found = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    assert found == SHA512, f"{package} is not axe-core {VERSION}: delete it"
    with tarfile.open(package) as files:
        program = files.extractfile("package/axe.min.js")
        assert program is not None
        return program.read().decode()


def problems(page: Page, program: str) -> list[str]:
    """Return the serious problems of what a page shows, each with its rule, place and reason."""
    page.run(f"{program}; void 0")
    found: dict[str, Any] = json.loads(page.run("axe.run(document).then((found) => JSON.stringify(found))"))
    assert found["passes"], "nothing was judged"
    return [
        f"{rule['id']} ({rule['impact']}): {node['html'][:200]}: {node['failureSummary']}"
        for rule in found["violations"]
        if rule["impact"] in SERIOUS
        for node in rule["nodes"]
    ]
