"""A real Spark standalone master with two workers, as processes of this machine."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rewind.local import ports
from rewind.runtime.drivers import jvm
from tests.support.workshop import wait_for

CONF = """\
spark.cores.max 1
spark.executor.cores 1
spark.executor.memory 512m
"""
HIDE = 'for folder in {folders}; do mount -t tmpfs none "$folder" || exit 1; done; exec "$@"'


@contextmanager
def cluster(folder: Path, hidden: Sequence[Path]) -> Iterator[tuple[str, Path]]:
    """Run a master and two workers in a folder; yield the master's URL and a configuration folder for its clients.

    The workers run in a folder of their own with nothing of ours on any path, and find the `hidden` folders empty:
    what a job needs must come with it.
    """
    for path in hidden:
        seen = subprocess.run([*without(hidden), "ls", "-A", str(path)], capture_output=True, text=True, check=False)
        assert (seen.returncode, seen.stdout) == (0, ""), f"user namespaces are needed to hide {path}: {seen.stderr}"
    conf = folder / "conf"
    conf.mkdir(parents=True)
    (conf / "spark-defaults.conf").write_text(CONF)
    port = ports.choose("master", None, folder / "ports")
    url = f"spark://127.0.0.1:{port}"
    started = [_start(folder, "master", "master.Master", "--host", "127.0.0.1", "--port", str(port))]
    try:
        wait_for("the master", lambda: "I have been elected leader" in (folder / "master.out").read_text(), 60)
        for name in ("worker-1", "worker-2"):
            started.append(_start(folder, name, "worker.Worker", "--cores", "3", "--memory", "3g", url, hidden=hidden))
            told = folder / f"{name}.out"
            wait_for(name, lambda told=told: "Successfully registered" in told.read_text(), 60)
        yield url, conf
    finally:
        for process in started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def without(hidden: Sequence[Path]) -> list[str]:
    """Return the beginning of a command line whose process finds the folders empty."""
    folders = " ".join(shlex.quote(str(path)) for path in hidden)
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", HIDE.format(folders=folders), "sh"]


def _start(folder: Path, name: str, main: str, *arguments: str, hidden: Sequence[Path] = ()) -> subprocess.Popen[bytes]:
    home = folder / name
    home.mkdir()
    spark_class = Path(sys.executable).parent / "spark-class"
    environment = {
        "PATH": os.environ["PATH"],
        "JAVA_HOME": str(jvm.java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(home),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / f"{name}.out").open("wb") as output:
        return subprocess.Popen(
            [
                *(without(hidden) if hidden else ()),
                str(spark_class),
                f"org.apache.spark.deploy.{main}",
                "--webui-port",
                "0",
                *arguments,
            ],
            cwd=home,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
