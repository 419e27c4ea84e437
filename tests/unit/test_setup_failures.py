"""What set-up says when it cannot go on: the real script, a cause each, one line with the remedy.

It runs on a copy of the checkout, offline: its index is a folder with a stand-in for uv.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from provision import failures

from tests.support.workshop import wait_for

HASH_MISMATCH = """Using Python 3.11.7 environment at: .venv
Resolved 181 packages in 106ms
error: Failed to download and build `pyspark-client==4.2.0`
  cause: Hash mismatch for `pyspark-client==4.2.0`

         Expected:
           sha256:5008

         Computed:
           sha256:4008
"""
REFUSED = """error: Failed to fetch: http://127.0.0.1:9/simple/a2wsgi/
  cause: error sending request for url (http://127.0.0.1:9/simple/a2wsgi/)
  cause: tcp connect error
  cause: Connection refused (os error 111)
"""
NO_ROOM = """error: Failed to extract archive: pyspark-4.2.0.tar.gz
  cause: failed to write to file `/cache/pyspark`
  cause: No space left on device (os error 28)
"""


class Checkout:
    """A copy of the checkout whose set-up reaches nothing but a folder of wheels."""

    def __init__(self, project: Path, folder: Path) -> None:
        self.folder, self.home, self.wheels = folder / "rewind", folder / "home", folder / "wheels"
        ignored = shutil.ignore_patterns("__pycache__")
        for name in ("scripts", "include/rewind"):
            shutil.copytree(project / name, self.folder / name, ignore=ignored)
        for file in [*project.glob("requirements*"), *project.glob("jars.*"), project / "Makefile"]:
            shutil.copy(file, self.folder / file.name)
        self.wheels.mkdir()
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "REWIND_HOME": str(self.home),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": "/dev/null",
        }

    def serve_uv(self, script: str) -> None:
        """Let a shell script be the pinned uv."""
        wheel = self.wheels / "uv-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            program = zipfile.ZipInfo("uv-1.data/scripts/uv")
            program.external_attr = 0o100755 << 16
            archive.writestr(program, f"#!/bin/sh\n{script}\n")
            archive.writestr("uv-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: uv\nVersion: 1\n")
            archive.writestr("uv-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr("uv-1.dist-info/RECORD", "")
        value = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (self.folder / "requirements-setup.txt").write_text(f"uv==1 --hash=sha256:{value}\n")

    def uv_says(self, text: str, code: int) -> None:
        """Let the pinned uv fail when it installs."""
        said = self.folder / "said"
        said.write_text(text)
        self.serve_uv(
            f'[ "$1 $2" != "pip sync" ] || {{ cat "{said}"; exit {code}; }}; [ "$1" != cache ] || echo "{self.home}"'
        )

    def setup(self, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        """Run the script, after some lines that make a cause."""
        script = self.folder / "scripts" / "setup.py"
        code = (
            f"import runpy, sys\nsys.path.insert(0, {str(script.parent)!r})\n{before}\nrunpy.run_path({str(script)!r})"
        )
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command, env=self.environment | environment, capture_output=True, text=True, check=False, timeout=120
        )

    def refusal(self, before: str = "", **environment: str) -> str:
        """Return the one line that set-up ends with."""
        done = self.setup(before, **environment)
        assert done.returncode == 1, done.stdout + done.stderr
        lines = done.stderr.splitlines()
        assert len(lines) == 1, done.stderr
        return lines[0]


@pytest.fixture
def checkout(project: Path, tmp_path: Path) -> Checkout:
    return Checkout(project, tmp_path)


def test_no_network(checkout: Checkout) -> None:
    line = checkout.refusal(PIP_NO_INDEX="", PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0", no_proxy="*")

    assert line.startswith("setup: uv: no answer from the network (")
    assert "Check network, proxy and index, then run `make setup` again: what is complete is kept" in line


def test_no_network_for_the_packages(checkout: Checkout) -> None:
    checkout.uv_says(REFUSED, 2)

    assert checkout.refusal() == (
        "setup: packages: no answer from the network (error: Failed to fetch: http://127.0.0.1:9/simple/a2wsgi/). "
        "Check network, proxy and index, then run `make setup` again: what is complete is kept"
    )


def test_a_wrong_hash_of_uv(checkout: Checkout) -> None:
    checkout.serve_uv("exit 0")
    lock = checkout.folder / "requirements-setup.txt"
    lock.write_text(lock.read_text()[:-2] + ("0\n" if lock.read_text()[-2] != "0" else "1\n"))

    line = checkout.refusal()
    assert line.startswith("setup: uv: the index serves another uv==1 than the lock names (its sha256 differs)")
    assert not list((checkout.home / "tools").glob("*/bin/uv"))


def test_a_wrong_hash_of_a_package(checkout: Checkout) -> None:
    checkout.uv_says(HASH_MISMATCH, 1)

    assert checkout.refusal() == (
        "setup: packages: the index serves another pyspark-client==4.2.0 than the lock names (its sha256 differs); it "
        "was not installed. Choose an index that serves the original, or restore the lock; for another version run "
        "`make lock`"
    )


def test_no_java(checkout: Checkout) -> None:
    include = str(checkout.folder / "include")
    hidden = f"sys.path.insert(0, {include!r})\nfrom rewind.runtime.drivers import jvm\njvm.SYSTEM = '/none'"
    line = checkout.refusal(hidden, PATH="/none", JAVA_HOME="")

    assert line == (
        "setup: JAVA_HOME: no Java 17 or later with the module jdk.incubator.vector was found. "
        "Install openjdk-17-jre-headless, or set JAVA_HOME to a full JDK"
    )


def test_a_full_disk_that_uv_meets(checkout: Checkout) -> None:
    checkout.uv_says(NO_ROOM, 2)

    line = checkout.refusal()
    assert line.startswith("setup: packages: the disk is full (")
    assert line.endswith("Set-up takes about 4 GiB: free some, then run `make setup` again: what is complete is kept")


def test_a_full_disk_that_set_up_meets_itself(checkout: Checkout) -> None:
    (checkout.home / "logs").mkdir(parents=True)
    (checkout.home / "logs" / "setup.log").symlink_to("/dev/full")

    assert checkout.refusal().startswith("setup: set-up: the disk is full (")


@pytest.mark.parametrize(("version", "named"), [((3, 10, 13), "3.10"), ((3, 14, 0), "3.14"), ((2, 7, 18), "2.7")])
def test_an_old_or_too_new_python(checkout: Checkout, version: tuple[int, int, int], named: str) -> None:
    line = checkout.refusal(f"sys.version_info = {version}")

    assert line == (
        f"setup: {sys.executable} is Python {named}, and Rewind needs 3.11, 3.12 or 3.13. Install python3.11 and "
        "python3.11-venv, or name one: `make setup PYTHON=python3.12`"
    )
    assert not checkout.home.exists()


def make(checkout: Checkout, *arguments: str, **environment: str) -> list[str]:
    """Return what `make setup` says when it fails, without make's own line."""
    done = subprocess.run(
        ["make", "-C", str(checkout.folder), "--no-print-directory", "setup", *arguments],
        env=checkout.environment | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stdout == ""
    return [line for line in done.stderr.splitlines() if not line.startswith("make: ***")]


def test_make_refuses_a_python_that_does_not_fit(checkout: Checkout) -> None:
    names = ("python3.11", "python3.12", "python3.13", "python3")
    for name in names:
        program = checkout.wheels / name
        # Stands for Python 3.14: it says so to whoever asks, in the words of the real one.
        program.write_text(
            f"#!/bin/sh\nexec {sys.executable} -c 'import runpy, sys; sys.version_info = (3, 14, 0)\n"
            'if sys.argv[1] == "-c": exec(sys.argv[2])\nelse: runpy.run_path(sys.argv[1])\' "$@"\n'
        )
        program.chmod(0o755)
    path = f"{checkout.wheels}:/usr/bin:/bin"

    (line,) = make(checkout, PATH=path)
    assert "is Python 3.14, and Rewind needs 3.11, 3.12 or 3.13." in line


def test_make_refuses_a_python_that_is_not_there(checkout: Checkout) -> None:
    (line,) = make(checkout, "PYTHON=python3.99")
    assert line.startswith("setup: there is no python3.99. Install python3.11 and python3.11-venv")


def test_any_other_failure_names_its_log(tmp_path: Path) -> None:
    log = tmp_path / "setup-packages.log"

    assert str(failures.explain("packages", 9, "one\n  two  words \n\n", log)) == (
        f"packages: failed with exit code 9 (two words). Read {log}, "
        "then run `make setup` again: what is complete is kept"
    )


def test_a_module_that_is_not_served_is_named() -> None:
    said = ":: UNRESOLVED DEPENDENCIES ::\n\t\t:: org.apache.kafka#kafka-tools;4.2.0: not found\n"

    assert str(failures.explain("jars for Kafka", 1, said, Path("log"))) == (
        "jars for Kafka: the repository has no org.apache.kafka#kafka-tools;4.2.0. "
        "Correct jars.xml, or choose another mirror"
    )


def test_a_set_up_waits_for_what_a_killed_one_has_started(checkout: Checkout) -> None:
    told, go = checkout.folder / "told", checkout.folder / "go"
    installs = f'echo begun >> "{told}"; while [ ! -e "{go}" ]; do sleep 0.05; done; echo ended >> "{told}"; exit 3'
    checkout.serve_uv(f'[ "$1 $2" != "pip sync" ] || {{ {installs}; }}; echo "{checkout.home}"')
    command = [sys.executable, str(checkout.folder / "scripts" / "setup.py")]
    with subprocess.Popen(command, env=checkout.environment) as killed:
        wait_for("uv", told.exists, 60)
        killed.kill()
    with subprocess.Popen(command, env=checkout.environment, stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        assert second.stdout.readline() == (
            "setup: another set-up runs, or what a killed one had started: waiting for its end\n"
        )
        assert told.read_text() == "begun\n"
        go.touch()
        second.stdout.read()
    assert second.returncode == 1
    assert told.read_text() == "begun\nended\nbegun\nended\n"
