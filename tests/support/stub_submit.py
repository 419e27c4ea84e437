"""A spark-submit that plays what it is told of a step; what it was told nothing of goes to the real one."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.tiers import WARM_SUBMIT
from tests.support.workshop import PROJECT

CLUSTER, HERE = "cluster", "here"

SCRIPT = '''#!{python}
"""Play one submit; everything told and done is in {folder}."""
import json, os, signal, sys, time
from pathlib import Path

folder, given = Path("{folder}"), sys.argv[1:]

def log(what, **more):
    with (folder / "log").open("a") as file:
        file.write(json.dumps(dict(what=what, at=time.time(), **more)) + "\\n")

def calls(what):
    lines = (folder / "log").read_text().splitlines() if (folder / "log").exists() else []
    return [call for call in map(json.loads, lines) if call["what"] == what]

def lives(pid):
    try:
        return Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

def ask(driver):
    log("status", driver=driver)
    print(json.dumps(dict(submissionId=driver, driverState=(folder / "state").read_text()), indent=1,
        separators=(",", " : ")))

def kill(driver):
    log("kill", driver=driver)
    play = json.loads((folder / "kill").read_text())
    (folder / "state").write_text(play["state"])
    sys.exit(play["exit"])

def cluster(name, play):
    driver = f"driver-20250904070000-{{len(calls('start')):04d}}"
    log("start", name=name, driver=driver)
    (folder / "state").write_text(play["state"])
    print(driver)
    sys.exit(play["exit"])

def here(name, play):
    # As a JVM does: the driver is a child, in a session of its own and deaf to a request to end.
    child = os.fork()
    if child:
        sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    log("start", name=name, driver=os.getpid(), beside=[c["driver"] for c in calls("start") if lives(c["driver"])])
    rows = folder / "rows"
    while (done := len(rows.read_text().splitlines()) if rows.exists() else 0) < play["rows"]:
        with rows.open("a") as file:
            file.write(f"{{done}}\\n")
        time.sleep(1)
    sys.path.insert(0, "{include}")
    from rewind.registry import rewinds
    from rewind.registry.database import writing
    rewind_id, _, step = name.rpartition(".")
    with writing(os.environ["REWIND_REGISTRY_URL"]) as connection:
        attempt = rewinds.begin_step(connection, rewind_id, step)
        rewinds.end_step(connection, rewind_id, step, attempt, "done", {{}})
    os._exit(0)

if "--status" in given:
    ask(given[-1])
elif "--kill" in given:
    kill(given[-1])
else:
    name = given[given.index("--name") + 1]
    play = folder / "plays" / name.rpartition(".")[2]
    told = json.loads(play.read_text()) if play.exists() else None
    if told is None:
        if (folder / "warm").exists():
            os.execv("{python}", ["{python}", "{warm}", (folder / "warm").read_text(), *given])
        with (folder / "real").open("a") as file:
            file.write(name + "\\n")
        os.execv("{real}", ["{real}", *given])
    (cluster if told["where"] == "cluster" else here)(name, told)
'''


@dataclass(frozen=True)
class Stub:
    """The stub in a folder: `bin` goes first on the path of whoever submits."""

    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def play(self, step: str, where: str, rows: int = 0, state: str = "RUNNING", code: int = 0) -> None:
        """Play the submits of a step from now on, all anew.

        Args:
            step: The step.
            where: Where its driver runs.
            rows: Rows that a driver here writes, one a second.
            state: State of a driver in the cluster once it is submitted.
            code: Exit code of such a submit.
        """
        for name in ("log", "rows"):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / "plays" / step).write_text(
            json.dumps({"where": where, "rows": rows, "state": state, "exit": code})
        )
        self.kills("KILLED")

    def forget(self) -> None:
        """Play nothing any more."""
        for play in (self.folder / "plays").iterdir():
            play.unlink()

    def warm(self, gateway: Path) -> None:
        """Send what is not played into the tests' warm JVM from now on (`tests.support.warm`)."""
        (self.folder / "warm").write_text(str(gateway))

    def kills(self, state: str, code: int = 0) -> None:
        """Say how a request to kill is answered, and in which state the driver then is."""
        (self.folder / "kill").write_text(json.dumps({"state": state, "exit": code}))

    def state(self, state: str) -> None:
        (self.folder / "state").write_text(state)

    def calls(self, what: str) -> list[dict[str, Any]]:
        log = self.folder / "log"
        found = map(json.loads, log.read_text().splitlines()) if log.exists() else ()
        return [call for call in found if call["what"] == what]

    def real(self) -> int:
        """Return how many submits went to the real spark-submit."""
        file = self.folder / "real"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def rows(self) -> list[int]:
        rows = self.folder / "rows"
        return [int(row) for row in rows.read_text().splitlines()] if rows.exists() else []


def install(folder: Path) -> Stub:
    """Put the stub into a folder."""
    stub = Stub(folder)
    stub.bin.mkdir(parents=True)
    (folder / "plays").mkdir()
    script = stub.bin / "spark-submit"
    real = Path(sys.executable).parent / "spark-submit"
    places = {"folder": folder, "include": PROJECT / "include", "real": real, "warm": WARM_SUBMIT}
    script.write_text(SCRIPT.format(python=sys.executable, **places))
    script.chmod(0o755)
    return stub


def on_path(stub: Stub) -> dict[str, str]:
    """Return the path that finds the stub first."""
    return {"PATH": f"{stub.bin}{os.pathsep}{os.environ['PATH']}"}
