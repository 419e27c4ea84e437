"""axe-core, the judge of pages' accessibility: fetched from npm once, held against its published hash."""

from __future__ import annotations

import base64
import hashlib
import subprocess
import tarfile
from pathlib import Path

from tests.support.browser import Page

PACKAGE, VERSION = "axe-core", "4.10.3"
INTEGRITY = "Xm7bpRXnDSX2YE2YFfBk2FnF0ep6tmG7xPh8iHee8MIcrgq762Nkce856dYtJYLkuIoYZvGfTs/PbZhideTcEg=="
"""SHA-512 of the package as npm publishes it, in base64."""
SERIOUS = "['serious', 'critical']"


def script(folder: Path) -> str:
    """Return the script, from a folder or from npm into it.

    Raises:
        AssertionError: What came is not what was published.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{PACKAGE}-{VERSION}.tgz"
    if not path.is_file():
        command = ["npm", "pack", f"{PACKAGE}@{VERSION}", "--silent", "--pack-destination", str(folder)]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    found = base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    assert found == INTEGRITY, f"{path} is not {PACKAGE} {VERSION}: remove it"
    with tarfile.open(path) as archive:
        member = archive.extractfile("package/axe.min.js")
        assert member is not None
        return member.read().decode()


def serious(page: Page, source: str) -> list[str]:
    """Return the serious problems of what a page shows: the rule, and where it is broken."""
    # By the debugger: the policy of the page lets no script in that is not its own.
    page.run(f"{source}; undefined")
    told = (
        "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations"
        f".filter((v) => {SERIOUS}.includes(v.impact))"
        ".map((v) => `${v.id}: ${v.nodes.map((n) => n.target.join(' ')).join(', ')}`))"
    )
    return list(page.run(told))
