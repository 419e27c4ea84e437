"""Prepare what Rewind needs and does not find: Java, `.venv`, the jars, the start-up archive.

Run by the Makefile with any Python from 3.11; stdlib only, since nothing is installed yet. It can be
repeated: what is there and right is left alone. `--relock-jars` rewrites `jars.sha256`.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT / "include"))

from rewind.control import jvm  # noqa: E402
from rewind.core.errors import RefusedError  # noqa: E402

HOME = Path(os.environ.get("REWIND_HOME") or PROJECT / ".rewind").resolve()
JARS = Path(os.environ.get("REWIND_JARS") or HOME / "jars").resolve()
VENV = PROJECT / ".venv"
LOCKS = {True: PROJECT / "requirements.txt", False: PROJECT / "requirements-dev.txt"}
"""What is installed, by whether it is for running alone."""
JAR_MODULES = PROJECT / "jars.xml"
JAR_SUMS = PROJECT / "jars.sha256"
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3")
SESSION_CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def main() -> None:
    """Run all steps, one set-up at a time."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--relock-jars", action="store_true", help="write jars.sha256 from what Ivy retrieves")
    parser.add_argument("--runtime", action="store_true", help="install what Rewind runs on, without tools and tests")
    given = parser.parse_args()
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / "setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        java = ensure_java()
        ensure_environment(LOCKS[given.runtime])
        ensure_jars(java, relock=given.relock_jars)
        ensure_archive(java)


def ensure_java() -> Path:
    """Return the home of a usable Java, installing one where that is possible."""
    if jvm.find_java() is None and os.geteuid() == 0 and shutil.which("apt-get"):
        say("installing openjdk-17-jre-headless with apt-get")
        run(["apt-get", "update"], "apt-get update", fatal=False)
        run(["apt-get", "install", "-y", "--no-install-recommends", "openjdk-17-jre-headless"], "apt-get", fatal=False)
        jvm.find_java.cache_clear()
    return jvm.java_home()


def ensure_environment(lock: Path) -> None:
    """Make `.venv` from a hash lock, again whenever the lock changed."""
    stamp, wanted = VENV / ".rewind-lock", digest(lock)
    if read(stamp) == wanted and (VENV / "bin" / "python").exists():
        return
    say(f"making .venv from {lock.name}")
    shutil.rmtree(VENV, ignore_errors=True)
    install_with_uv(lock) if shutil.which("uv") else install_with_pip(lock)
    stamp.write_text(wanted)


def install_with_uv(lock: Path) -> None:
    """Install a lock with uv."""
    target = str(VENV / "bin" / "python")
    run(["uv", "venv", "--quiet", "--python", interpreter("venv"), str(VENV)], "uv venv")
    run(["uv", "pip", "install", "--quiet", "--python", target, "--require-hashes", "-r", str(lock)], "uv pip install")


def install_with_pip(lock: Path) -> None:
    """Install a lock with the pip that comes with Python."""
    run([interpreter("ensurepip"), "-m", "venv", str(VENV)], "python -m venv")
    command = [str(VENV / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*command, "--require-hashes", "-r", str(lock)], "pip install")


def interpreter(module: str) -> str:
    """Return the first Python from 3.11 that has `module` (Debian ships some without ensurepip)."""
    test = f"import sys, {module}; sys.exit(sys.version_info < (3, 11))"
    found = [path for name in PYTHONS if (path := shutil.which(name))]
    usable = (
        path for path in found if not subprocess.run([path, "-c", test], capture_output=True, check=False).returncode
    )
    chosen = next(usable, None)
    if chosen is None:
        fail(f"no Python 3.11 or later with the module {module} was found. Install python3.11 and python3.11-venv")
    return chosen


def ensure_jars(java: Path, *, relock: bool) -> None:
    """Retrieve the jars with pyspark's own Ivy when their list changed, and check every one of them."""
    stamp, wanted = JARS / ".stamp", digest(JAR_MODULES) + ("" if relock else digest(JAR_SUMS))
    if relock or read(stamp) != wanted:
        say(f"retrieving the jars into {shown(JARS)}")
        retrieve_jars(java)
    if relock:
        JAR_SUMS.write_text("".join(f"{value}  {name}\n" for name, value in present_sums().items()))
        wanted = digest(JAR_MODULES) + digest(JAR_SUMS)
    check_jars()
    stamp.write_text(wanted)


def retrieve_jars(java: Path) -> None:
    """Run Ivy's main into a new folder beside the old one, and put it in its place."""
    ivy = next(iter(VENV.glob("lib/python*/site-packages/pyspark/jars/ivy-*.jar")), None)
    if ivy is None:
        fail("pyspark's Ivy is not in .venv. Remove .venv and run `make setup` again")
    JARS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=JARS) as folder:
        pattern = f"{folder}/[conf]/[artifact]-[revision](-[classifier]).[ext]"
        command = [str(java / "bin" / "java"), "-jar", str(ivy), "-warn", "-ivy", str(JAR_MODULES)]
        run([*command, "-cache", str(HOME / "ivy"), "-confs", "spark", "kafka", "-retrieve", pattern], "Ivy")
        for name in ("spark", "kafka"):
            shutil.rmtree(JARS / name, ignore_errors=True)
            Path(folder, name).rename(JARS / name)
    shutil.rmtree(HOME / "ivy", ignore_errors=True)


def check_jars() -> None:
    """Fail unless the jars are exactly those of `jars.sha256`."""
    lines = (line.split() for line in JAR_SUMS.read_text().splitlines())
    listed, present = {name: value for value, name in lines}, present_sums()
    cure = f"Remove {shown(JARS)} and run `make setup` again; if it stays, jars.sha256 does not belong to jars.xml"
    for name in sorted(listed | present):
        if name not in present:
            fail(f"the jar {name} is missing. {cure}")
        if name not in listed:
            fail(f"the jar {name} is not listed in jars.sha256. {cure}")
        if listed[name] != present[name]:
            fail(f"the jar {name} has another sha256 than jars.sha256 says. {cure}")


def present_sums() -> dict[str, str]:
    """Return the sha256 of each jar by its name below the folder."""
    return {str(jar.relative_to(JARS)): digest(jar) for jar in sorted(JARS.glob("*/*.jar"))}


def ensure_archive(java: Path) -> None:
    """Make the class-data archive, again whenever a jar or the Java is not the one it was made with."""
    stamp, archive, wanted = JARS / ".archive-stamp", JARS / jvm.ARCHIVE, archive_inputs(java)
    if archive.exists() and read(stamp) == wanted:
        return
    say("making the start-up archive (about a minute)")
    archive.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(dir=HOME) as folder:
        made = Path(folder, jvm.ARCHIVE)
        submit(java, f'"-XX:ArchiveClassesAtExit={made}"', folder)
        made.rename(archive)
    # Proved by a real submit: a class path that differs from the training's disables an archive silently.
    submit(java, f"{jvm.driver_java_options(JARS, short=True)} -Xshare:on", "--prove")
    stamp.write_text(wanted)


def archive_inputs(java: Path) -> str:
    """Return a digest of what an archive depends on: the JVM checks path, size and mtime of each jar."""
    spark = sorted(VENV.glob("lib/python*/site-packages/pyspark/jars/*.jar"))
    jars = [
        *spark,
        *sorted((JARS / "spark").glob("*.jar")),
        java / "lib" / "modules",
        java / "lib" / "server" / "libjvm.so",
    ]
    facts = [(str(jar), jar.stat().st_size, jar.stat().st_mtime_ns) for jar in jars if jar.exists()]
    training = digest(PROJECT / "scripts" / "train_archive.py")
    return hashlib.sha256(json.dumps([facts, SESSION_CONF, training]).encode()).hexdigest()


def submit(java: Path, java_options: str, argument: str) -> None:
    """Run the training main as a job is run: same class path, nothing of the caller's Spark settings."""
    conf = {**SESSION_CONF, "spark.driver.extraJavaOptions": java_options}
    command = [str(VENV / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--driver-class-path", jvm.spark_class_path(JARS)]
    command += [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    ignored = ("SPARK_CONF_DIR", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS")
    environment = {key: value for key, value in os.environ.items() if key not in ignored}
    environment |= {"JAVA_HOME": str(java), "PYSPARK_PYTHON": str(VENV / "bin" / "python")}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "PATH": f"{VENV / 'bin'}:{os.environ['PATH']}"}
    run([*command, str(PROJECT / "scripts" / "train_archive.py"), argument], "the archive's spark-submit", environment)


def run(command: list[str], name: str, environment: dict[str, str] | None = None, *, fatal: bool = True) -> None:
    """Run a command quietly; when it fails, show the end of what it said."""
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode and fatal:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        fail(f"{name} failed with exit code {done.returncode}:\n{tail}")


def digest(path: Path) -> str:
    """Return the sha256 of a file, empty when there is none."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def read(path: Path) -> str:
    """Return the text of a file, empty when there is none."""
    return path.read_text() if path.exists() else ""


def shown(path: Path) -> str:
    """Return a path as short as the reader needs it."""
    return str(path.relative_to(PROJECT)) if path.is_relative_to(PROJECT) else str(path)


def say(text: str) -> None:
    """Print what is being done."""
    print(f"setup: {text}", flush=True)


def fail(text: str) -> NoReturn:
    """Leave with one message."""
    sys.exit(f"setup: {text}")


if __name__ == "__main__":
    try:
        main()
    except RefusedError as refused:
        fail(str(refused))
